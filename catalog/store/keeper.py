"""The first connection to a database file: it checks the file and looks after its WAL."""

import os
import sqlite3
from pathlib import Path

from catalog.store.migrations import upgrade
from catalog.store.sqlite import (
    SCHEMA_VERSION,
    Connection,
    DatabaseError,
    check_header,
    connect,
    is_damage,
    look,
    missing_permission,
    remove_wal,
    shm_path,
    truncate_wal,
    wal_path,
)

# Device and number: which file it is, whatever its name.
Inode = tuple[int, int]


class Keeper:
    """A connection that no thread reads or writes through, opened before those that do.

    So it is never in use when the WAL has to be moved into the file, and it has the file and the
    WAL open that were there at first, whatever has come to their paths since.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        # SQLite follows links before it adds to the name.
        self._real_path = Path(os.path.realpath(path))
        self._wal = os.fspath(wal_path(self._real_path))
        self._shm = os.fspath(shm_path(self._real_path))
        self.file = inode(os.fspath(path))
        self.connection = self._connection()
        self._own_wal, self._own_shm = inode(self._wal), inode(self._shm)

    def _connection(self) -> Connection:
        """A connection to a catalog of this release's schema, in WAL mode."""
        try:
            look(self.path, self.name)
            connection = connect(self.path, "mode=rw")
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                # A backup has another mode.
                connection.execute("PRAGMA journal_mode = WAL")
            if check_header(connection, self.name) < SCHEMA_VERSION:
                upgrade(connection, self.path)
        except sqlite3.Error as error:
            raise not_opened(self.path, self.name, error) from error
        return connection

    def wal_size(self) -> int | None:
        """Bytes of the WAL; None where it or its index is no longer the one that is open."""
        try:
            status = os.stat(self._wal)
        except OSError:
            return None
        is_own = (status.st_dev, status.st_ino) == self._own_wal
        return status.st_size if is_own and inode(self._shm) == self._own_shm else None

    def save_wal(self) -> None:
        """Move a WAL into the file that was removed while open, and else is lost with the process.

        No other connection of this process may be in use.
        """
        is_replaced = inode(self._wal) not in (self._own_wal, None) and os.path.getsize(self._wal)
        if is_replaced or inode(self._shm) not in (self._own_shm, None):
            raise DatabaseError(
                f"{self.name}-wal or {self.name}-shm was removed, and another process has made a "
                "new one. Stop all that use the file, then start the service again."
            )
        if not truncate_wal(self.connection):
            raise DatabaseError(f"{self.name}-wal was removed, and another process reads it still.")

    def leave(self) -> None:
        """Move the WAL into a file that is no longer at the path, remove it, and close.

        SQLite would take it for the WAL of the file that is there now.
        """
        try:
            is_empty = truncate_wal(self.connection)
        except sqlite3.DatabaseError as error:
            # A damaged file has nothing to be saved.
            if not is_damage(error):
                raise
        else:
            if not is_empty:
                # Another thread reads the old file, and needs its WAL to the end.
                raise DatabaseError(f"{self.name} is being replaced.")
        is_moved = inode(os.fspath(self._real_path)) != self.file
        if is_moved and self._own_wal == inode(self._wal):
            remove_wal(self._real_path)
        self.connection.close()


def not_opened(path: Path, name: str, error: sqlite3.Error) -> DatabaseError:
    """The error of a file that cannot be opened, with the missing permission if that is why."""
    return DatabaseError(f"{name} cannot be opened: {missing_permission(path) or error}.")


def inode(path: str) -> Inode | None:
    """Which file is at the path."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
