"""Creates, copies, migrates and replaces the whole content of a database file."""

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ...system.atomic_files import atomic_replace, drop_from_memory
from ..schema.migrations import rebuild_tables
from ..schema.schema import (
    APPLICATION_ID,
    OLD_SCHEMA_VERSION,
    SCHEMA_VERSION,
    schema_statements,
    schema_version,
)
from .file_paths import remove_wal
from .sqlite import DatabaseError, begin_write, check_integrity, connect, database_uri
from .transaction import Actor, Transaction

logger = logging.getLogger(__name__)


def check_schema(connection: sqlite3.Connection, name: str) -> int:
    """Return the file's schema version; raise DatabaseError if this release cannot use the file."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    version = schema_version(connection)
    if application_id != APPLICATION_ID:
        raise DatabaseError(f"{name} is an SQLite file, but not a widget catalog.")
    if version not in (OLD_SCHEMA_VERSION, SCHEMA_VERSION):
        raise DatabaseError(
            f"{name} has schema version {version}, but this release reads versions "
            f"{OLD_SCHEMA_VERSION} and {SCHEMA_VERSION}. Run export with the release that wrote "
            "the file, and import with this one."
        )
    return version


def create_catalog(path: Path, fill: Callable[[Transaction], None] | None) -> None:
    """Create a new catalog file with the content that the function adds."""
    path.touch(mode=0o600)
    with closing(connect(path, "mode=rw")) as connection:
        with connection:
            connection.execute("BEGIN")
            for statement in schema_statements():
                connection.execute(statement)
            if fill:
                transaction = Transaction(connection)
                fill(transaction)
                transaction.finish()
        connection.execute("PRAGMA journal_mode = WAL")


def copy_to_file(
    connection: sqlite3.Connection, target: Path, *, may_be_damaged: bool = False
) -> None:
    """Atomically replace the target with a copy of the connection's snapshot, verified on disk."""
    with atomic_replace(target) as new:
        with closing(connect(new, "mode=rw")) as copy:
            connection.backup(copy)
            # Without a WAL, the copy can be read from a read-only directory.
            copy.execute("PRAGMA journal_mode = DELETE")
        with new.open("rb") as file:
            drop_from_memory(file)
        if not may_be_damaged:
            # Nothing else uses the file, so it needs no locks.
            with closing(connect(new, "mode=ro&immutable=1")) as copy:
                check_integrity(copy)
        remove_wal(target)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the file, then migrate it to this release's schema; on failure, change nothing."""
    try:
        with connection:
            # Lock the file first: nothing may be written after the copy.
            connection.execute("BEGIN IMMEDIATE")
            version = schema_version(connection)
            if version == SCHEMA_VERSION:
                # Another process has migrated the file.
                return
            copy = path.with_name(f"{path.name}.schema-{version}")
            # Use another connection: on this one, backup() would wait for the open transaction.
            with closing(connect(path, "mode=ro")) as reader:
                copy_to_file(reader, copy)
            rebuild_tables(connection)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatabaseError(f"{path} cannot be migrated and is unchanged: {reason}.") from error
    change = f"from schema version {version} to {SCHEMA_VERSION}"
    logger.warning("Migrated %s %s. The old file was copied to %s.", path, change, copy)


COUNT_ALL = """
SELECT (SELECT count(*) FROM widget) AS widgets, (SELECT count(*) FROM version) AS versions
"""


def replace_content(
    connection: sqlite3.Connection,
    source: Path,
    actor: Actor,
    action: str,
    *,
    keeps_history: bool,
    on_wait: Callable[[], None] | None = None,
) -> None:
    """Replace the catalog with the content of another file, and record this in the audit log.

    See rebuild_tables() for the rows that are kept.
    """
    connection.execute("ATTACH :uri AS source", {"uri": database_uri(source, "mode=ro")})
    try:
        with connection:
            begin_write(connection, on_wait)
            rebuild_tables(connection, "source", keeps_history=keeps_history)
            transaction = Transaction(connection, actor)
            (counts,) = transaction.read(COUNT_ALL)
            transaction.record(action, after=dict(counts))
            transaction.finish()
    finally:
        connection.execute("DETACH source")
