"""Backs up and restores the whole catalog, even while the service is running."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from ...system.atomic_files import atomic_replace, file_size, find_unused, is_special, keep_file
from ...system.paths import path_text
from ..connection.database import Database
from ..connection.file_paths import remove_wal, wal_path
from ..connection.lifecycle import check_schema, copy_to_file, replace_content
from ..connection.sqlite import DatabaseError, check_integrity, connect, is_damage, is_disk_full
from ..read.audit import local_actor


def backup(database: Database, target: Path, name: Path) -> None:
    """Copy the current catalog to the target, which is replaced completely or not at all.

    Error messages refer to the target by the given name.
    """
    if is_special(target):
        raise DatabaseError(f"{target} is not a file.")
    if database.is_same_file(target):
        raise DatabaseError(f"{target} is the catalog itself.")
    try:
        with database.read() as connection:
            copy_to_file(connection, target)
    except OSError as error:
        raise DatabaseError(f"{name} cannot be written: {error.strerror}.") from error
    except sqlite3.Error as error:
        if is_disk_full(error):
            raise DatabaseError(f"{name} cannot be written: its disk is full.") from error
        raise DatabaseError(f"{database.name} cannot be copied to {name}: {error}.") from error


def restore(
    database: Database, source: Path, *, action: str = "restore", keeps_history: bool = False
) -> Path | None:
    """Replace the whole catalog with a backup; a running service uses it from the next request on.

    The catalog keeps its tokens, so that no restore makes a revoked token valid again. It also
    keeps its audit log, and adds the action to it. If either is empty, the backup's rows are used.
    The hashes of deleted versions stay and, with keeps_history, so do higher install counts. A
    damaged database file is kept under another name; return that path.
    """
    try:
        _check_backup(source)
        if database.is_cluster or _is_usable(database):
            try:
                database.replace_content(source, local_actor(), action, keeps_history=keeps_history)
                return None
            except sqlite3.DatabaseError as error:
                # Tables with a damaged page cannot be replaced.
                if database.is_cluster or not is_damage(error):
                    raise
                database.close()
        return _replace_file(database, source, action)
    except sqlite3.Error as error:
        reason = f"the disk of {database.name} is full" if is_disk_full(error) else error
        raise DatabaseError(f"{path_text(source)} cannot be restored: {reason}.") from error


def _check_backup(source: Path) -> None:
    with closing(connect(source, "mode=ro")) as connection:
        check_schema(connection, path_text(source))
        check_integrity(connection)


def _replace_file(database: Database, source: Path, action: str) -> Path | None:
    """Create the file from a backup; keep a damaged file under a new path, and return that path.

    The path never lacks a file, because `serve --init` would then serve an empty catalog.
    """
    damaged, target = None, database.real_path
    with atomic_replace(target) as new, closing(connect(new, "mode=rw")) as connection:
        replace_content(connection, source, local_actor(), action, keeps_history=False)
        if database.exists():
            os.chmod(new, stat.S_IMODE(target.stat().st_mode))
            damaged = find_unused(target.with_name(f"{target.name}.damaged"))
            # Keep the WAL too: it contains the newest commits, in case the file can be repaired.
            if file_size(wal_path(target)):
                keep_file(wal_path(target), wal_path(damaged))
            keep_file(target, damaged)
        remove_wal(target)
    return damaged


def _is_usable(database: Database) -> bool:
    """Return whether there is a catalog to replace; raise DatabaseError for any other file."""
    if not database.exists():
        return False
    try:
        database.check()
    except DatabaseError as error:
        if is_damage(error.__cause__):
            return False
        raise
    return True
