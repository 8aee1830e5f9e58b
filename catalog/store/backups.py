"""Backup and restore of the whole catalog, also while the service runs."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from catalog.atomic_files import atomic_replace, drop_from_memory, scratch_directory
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import (
    DatabaseError,
    check_integrity,
    connect,
    copy_to_file,
    is_damage,
)
from catalog.store.connection.wal import remove_wal
from catalog.store.schema.migrations import rebuild_tables, set_new_revision
from catalog.store.schema.schema import SCHEMA_VERSION, check_schema, schema_version
from catalog.store.write.audit import RECORD, local_actor, record
from catalog.text import path_text


def backup(database: Database, target: Path) -> None:
    """Copy the current catalog to the target, which is replaced as a whole or not at all."""
    catalog = database.status()
    if target.exists() and not target.is_file():
        raise DatabaseError(f"{target} is not a file.")
    if catalog and target.exists() and os.path.samestat(target.stat(), catalog):
        raise DatabaseError(f"{target} is the catalog itself.")
    _copy(database, target, target)


def _copy(database: Database, target: Path, name: Path) -> None:
    try:
        with database.read() as connection:
            copy_to_file(connection, target)
    except OSError as error:
        raise DatabaseError(f"{name} cannot be written: {error.strerror}.") from error
    except sqlite3.Error as error:
        raise DatabaseError(f"{database.name} cannot be copied to {name}: {error}.") from error


def backup_verified(database: Database, target: Path, name: Path) -> None:
    """Copy the current catalog to a new file, and check what is on the disk; name is for errors."""
    _copy(database, target, name)
    with target.open("rb") as file:
        drop_from_memory(file)
    try:
        # Nothing else uses the file, so it needs no locks.
        with closing(connect(target, "mode=ro&immutable=1")) as connection:
            check_schema(connection, path_text(name))
            check_integrity(connection)
    except sqlite3.Error as error:
        raise DatabaseError(
            f"The copy of {database.name} in {name} differs from what was written: {error}."
        ) from error


def restore(
    database: Database, source: Path, *, action: str = "restore", keeps_history: bool = False
) -> Path | None:
    """Replace the whole catalog by a backup; a running service uses it from the next request on.

    The catalog keeps its tokens and its record of changes, to which the action is added; one that
    has none gets those of the backup. So no restore makes a revoked token valid again. With
    keeps_history it also keeps install counts that are higher, and the hashes of deleted versions.

    A database file that cannot be opened is renamed; return its new path.
    """
    name = path_text(source)
    try:
        with (
            _open_backup(source) as connection,
            scratch_directory(database.scratch_parent) as directory,
        ):
            copy = directory / "catalog.db"
            copy_to_file(connection, copy)
            return _replace(database, copy, action, keeps_history)
    except sqlite3.Error as error:
        raise DatabaseError(f"{name} cannot be restored: {error}.") from error


@contextmanager
def _open_backup(source: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(source, "mode=ro")) as connection:
        check_schema(connection, path_text(source))
        check_integrity(connection)
        yield connection


def _replace(database: Database, copy: Path, action: str, keeps_history: bool) -> Path | None:
    is_usable = _is_usable(database)
    with closing(connect(copy, "mode=rw")) as connection:
        with connection:
            connection.execute("BEGIN")
            if schema_version(connection) < SCHEMA_VERSION:
                rebuild_tables(connection)
            if is_usable:
                _keep_tables(database, connection)
            if is_usable and keeps_history:
                _keep_history(database, connection)
            connection.execute(*record(RECORD_RESTORE, local_actor(), action))
            set_new_revision(connection)
        # The journal mode is stored in the first page, which is copied with the others.
        connection.execute("PRAGMA journal_mode = WAL")
        if is_usable or database.is_cluster:
            database.replace_content(connection)
            return None
    damaged = None
    if database.exists():
        damaged = database.path.with_name(f"{database.path.name}.damaged")
        os.replace(database.path, damaged)
    remove_wal(database.path)
    with atomic_replace(database.path) as new:
        os.replace(copy, new)
    return damaged


# Where the catalog is restored to, they go on: see restore().
KEPT_TABLES = ("token", "audit")
TRIGGERS = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = :table"

RECORD_RESTORE = f"""{RECORD} NULL, NULL, NULL, NULL, json_object(
    'widgets', (SELECT count(*) FROM widget), 'versions', (SELECT count(*) FROM version)
)
"""


def _keep_tables(database: Database, copy: sqlite3.Connection) -> None:
    """Replace tokens and record of the copy by those of the database, if it has any."""
    if database.is_cluster:
        # The local file may lack that a token was revoked.
        database.check_writes()
    for table in KEPT_TABLES:
        with database.read() as connection:
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        if not rows:
            continue
        # Those of audit let no row be deleted.
        triggers = copy.execute(TRIGGERS, {"table": table}).fetchall()
        for name, _ in triggers:
            copy.execute(f"DROP TRIGGER {name}")
        copy.execute(f"DELETE FROM {table}")
        columns = rows[0].keys()
        places = ", ".join(f":{column}" for column in columns)
        copy.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", map(dict, rows)
        )
        for _, sql in triggers:
            copy.execute(sql)


INSTALL_COUNTS = "SELECT scope, name, download_count FROM widget WHERE download_count > 0"
KEEP_COUNT = """
UPDATE widget SET download_count = :download_count
WHERE scope = :scope AND name = :name AND coalesce(download_count, 0) < :download_count
"""
KEEP_DELETED = """
INSERT INTO deleted_version VALUES (:scope, :name, :version, :sha256_hash) ON CONFLICT DO NOTHING
"""


def _keep_history(database: Database, copy: sqlite3.Connection) -> None:
    """Give widgets of the copy the install counts of the database that are higher.

    Both have counted the same installs, up to where their ways parted. Also add the hashes of
    versions that were deleted in the database.
    """
    with database.read() as connection:
        copy.executemany(KEEP_COUNT, map(dict, connection.execute(INSTALL_COUNTS)))
        copy.executemany(
            KEEP_DELETED, map(dict, connection.execute("SELECT * FROM deleted_version"))
        )


def _is_usable(database: Database) -> bool:
    """Return whether there is a catalog to replace; raise if a file is neither that nor damaged."""
    if not database.exists():
        return False
    try:
        return not _is_damaged(database)
    except DatabaseError:
        # A cluster whose content is no catalog of this release is replaced as a whole.
        if database.is_cluster:
            return False
        raise


def _is_damaged(database: Database) -> bool:
    """Return whether the file is damaged; raise if it cannot be used for another reason."""
    try:
        database.check()
    except DatabaseError as error:
        if is_damage(error.__cause__):
            return True
        raise
    return False
