"""Complete copies of the catalog, taken and put back while the service runs."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from catalog.atomic_files import replacing, scratch_directory
from catalog.store.database import Database
from catalog.store.migrations import begin_history, rebuild
from catalog.store.sqlite import (
    SCHEMA_VERSION,
    DatabaseError,
    check_header,
    check_integrity,
    connect,
    copy,
    is_damage,
    remove_wal,
    schema_version,
)


def backup(database: Database, target: Path) -> None:
    """Copy the catalog as it is now to the target, which is replaced whole or not at all."""
    if target.exists() and not target.is_file():
        raise DatabaseError(f"{target} is not a file.")
    if target.exists() and target.samefile(database.path):
        raise DatabaseError(f"{target} is the catalog itself.")
    try:
        with database.read() as connection:
            copy(connection, target)
    except OSError as error:
        raise DatabaseError(f"{target} cannot be written: {error.strerror}.") from error
    except sqlite3.Error as error:
        raise DatabaseError(f"{database.name} cannot be copied to {target}: {error}.") from error


def restore(database: Database, source: Path) -> Path | None:
    """Take over all that a backup holds, in one step that a running service sees at once.

    A file that is too damaged to be taken over is set aside; answers where it is then.
    """
    kept = Database(source)
    beside = database.path.absolute().parent
    try:
        with (
            closing(connect(source, "mode=ro")) as connection,
            scratch_directory(beside) as directory,
        ):
            check_header(connection, kept.name)
            check_integrity(connection)
            copied = directory / "catalog.db"
            copy(connection, copied)
            return _put(copied, database)
    except sqlite3.Error as error:
        raise DatabaseError(f"{kept.name} cannot be restored: {error}.") from error


def _put(copied: Path, database: Database) -> Path | None:
    with closing(connect(copied, "mode=rw")) as connection:
        if schema_version(connection) < SCHEMA_VERSION:
            with connection:
                connection.execute("BEGIN")
                rebuild(connection)
        begin_history(connection)
        # The mode is in the first page, and would be taken over with it.
        connection.execute("PRAGMA journal_mode = WAL")
        if database.exists() and not _is_damaged(database):
            database.take_over(connection)
            return None
    aside = None
    if database.exists():
        aside = database.path.with_name(f"{database.path.name}.damaged")
        os.replace(database.path, aside)
    remove_wal(database.path)
    with replacing(database.path) as new:
        os.replace(copied, new)
    return aside


def _is_damaged(database: Database) -> bool:
    """Whether the file is beyond opening; raises where it is sound, but not ours to replace."""
    try:
        database.check()
    except DatabaseError as error:
        if is_damage(error.__cause__):
            return True
        raise
    return False
