"""Backup and restore of the whole catalog, also while the service runs."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from catalog.atomic_files import atomic_replace, scratch_directory
from catalog.store.database import Database
from catalog.store.migrations import rebuild_tables, set_new_revision
from catalog.store.schema import SCHEMA_VERSION, check_schema, schema_version
from catalog.store.sqlite import (
    DatabaseError,
    check_integrity,
    connect,
    copy_to_file,
    is_damage,
)
from catalog.store.wal import remove_wal
from catalog.text import path_text


def backup(database: Database, target: Path) -> None:
    """Copy the current catalog to the target, which is replaced as a whole or not at all."""
    if target.exists() and not target.is_file():
        raise DatabaseError(f"{target} is not a file.")
    if target.exists() and target.samefile(database.path):
        raise DatabaseError(f"{target} is the catalog itself.")
    try:
        with database.read() as connection:
            copy_to_file(connection, target)
    except OSError as error:
        raise DatabaseError(f"{target} cannot be written: {error.strerror}.") from error
    except sqlite3.Error as error:
        raise DatabaseError(f"{database.name} cannot be copied to {target}: {error}.") from error


def restore(database: Database, source: Path) -> Path | None:
    """Replace the whole catalog by a backup; a running service uses it from the next request on.

    A database file that cannot be opened is renamed; return its new path.
    """
    name = path_text(source)
    try:
        with (
            closing(connect(source, "mode=ro")) as connection,
            scratch_directory(database.scratch_parent) as directory,
        ):
            check_schema(connection, name)
            check_integrity(connection)
            copy = directory / "catalog.db"
            copy_to_file(connection, copy)
            return _replace(database, copy)
    except sqlite3.Error as error:
        raise DatabaseError(f"{name} cannot be restored: {error}.") from error


def _replace(database: Database, copy: Path) -> Path | None:
    with closing(connect(copy, "mode=rw")) as connection:
        if schema_version(connection) < SCHEMA_VERSION:
            with connection:
                connection.execute("BEGIN")
                rebuild_tables(connection)
        set_new_revision(connection)
        # The journal mode is stored in the first page, which is copied with the others.
        connection.execute("PRAGMA journal_mode = WAL")
        if database.is_cluster or (database.exists() and not _is_damaged(database)):
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


def _is_damaged(database: Database) -> bool:
    """Return whether the file is damaged; raise if it cannot be used for another reason."""
    try:
        database.check()
    except DatabaseError as error:
        if is_damage(error.__cause__):
            return True
        raise
    return False
