"""One opened database file and its WAL, which an operator may replace or damage at any time."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

from catalog.store.connection.sqlite import (
    Connection,
    DatabaseError,
    connect,
    is_damage,
    result_code,
)
from catalog.store.connection.wal import remove_wal, shm_path, truncate_wal, wal_path
from catalog.store.schema.migrations import migrate
from catalog.store.schema.schema import SCHEMA_VERSION, check_schema

# How long a write that truncates the WAL waits for reads outside LongReadGate; see the deadlines in
# serving/dispatch.py.
SHORT_READ_TIMEOUT_MS = 2_500

# Device and inode number.
FileId = tuple[int, int]


class CatalogFile:
    """The database file that was at the path when it was opened.

    It has a connection that runs no query, opened before all others. So that connection can always
    checkpoint, and it refers to the file and the WAL that were opened, even if there are other
    files at their paths now.
    """

    def __init__(
        self, path: Path, name: str, generation: int, busy_timeout_ms: int, wal_limit: int
    ) -> None:
        # Connections with the same number belong to this file.
        self.generation = generation
        # See Connection.counts.
        self.counts: dict[object, tuple[int, Any]] = {}
        self._path, self._name = path, name
        self._busy_timeout_ms, self._wal_limit = busy_timeout_ms, wal_limit
        # Bytes of the WAL above which a write calls truncate_large_wal().
        self.truncate_above = wal_limit
        # SQLite resolves links before it appends -wal to the name.
        self._real_path = Path(os.path.realpath(path))
        self._wal = os.fspath(wal_path(self._real_path))
        self._shm = os.fspath(shm_path(self._real_path))
        self._id = file_id(os.fspath(path))
        self._size = 0
        self._connection = self._open()
        self._wal_id, self._shm_id = file_id(self._wal), file_id(self._shm)

    def _open(self) -> Connection:
        """Open a connection, and migrate the file to the current schema and to WAL mode."""
        try:
            check_before_opening(self._path, self._name)
            connection = connect(self._path, "mode=rw", self._busy_timeout_ms)
            # A backup is not in WAL mode.
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            if check_schema(connection, self._name) < SCHEMA_VERSION:
                migrate(connection, self._path)
        except sqlite3.Error as error:
            raise cannot_open(self._path, self._name, error) from error
        return connection

    def is_at_path(self, status: os.stat_result) -> bool:
        """Return whether the status of the path is that of this file; raise if it was truncated."""
        if (status.st_dev, status.st_ino) != self._id:
            return False
        size = self._size
        if status.st_size < size:
            # A checkpoint may have extended the file, and another thread may have set the size,
            # after the status was read. A status that is read now is newer than the size.
            latest = file_status(os.fspath(self._path), self._name)
            if latest is None or latest.st_size < size:
                check_length(self._path, self._name)
        self._size = status.st_size
        return True

    def wal_size(self) -> int | None:
        """Return the bytes of the WAL; None if it or its index was removed or replaced."""
        try:
            status = os.stat(self._wal)
        except OSError:
            return None
        is_own = (status.st_dev, status.st_ino) == self._wal_id
        return status.st_size if is_own and file_id(self._shm) == self._shm_id else None

    def truncate_large_wal(self, size: int) -> None:
        """Truncate the WAL; if another process reads from it for long, retry when it has grown."""
        try:
            timeout = min(SHORT_READ_TIMEOUT_MS, self._busy_timeout_ms)
            is_truncated = truncate_wal(self._connection, timeout)
        except sqlite3.Error:
            is_truncated = False
        self.truncate_above = self._wal_limit + (0 if is_truncated else size)

    def recover_wal(self) -> None:
        """Checkpoint a WAL that was removed while open: it exists only as long as the process.

        No other connection of this process may be in use.
        """
        is_replaced = file_id(self._wal) not in (self._wal_id, None) and os.path.getsize(self._wal)
        if is_replaced or file_id(self._shm) not in (self._shm_id, None):
            raise DatabaseError(
                f"{self._name}-wal or {self._name}-shm was removed, and another process has created"
                " a new one. Stop all processes that use the file, then start the service again."
            )
        if not truncate_wal(self._connection, self._busy_timeout_ms):
            raise DatabaseError(
                f"{self._name}-wal was removed, and another process still reads it."
            )

    def close_replaced(self) -> None:
        """Checkpoint and remove the WAL of a file that is no longer at the path, and close it.

        SQLite would apply the WAL to the file that is at the path now.
        """
        try:
            is_truncated = truncate_wal(self._connection, self._busy_timeout_ms)
        except sqlite3.DatabaseError as error:
            # The WAL of a damaged file cannot be saved.
            if not is_damage(error):
                raise
        else:
            if not is_truncated:
                # Another thread reads the old file, and needs its WAL until it is done.
                raise DatabaseError(f"{self._name} is being replaced.")
        is_moved = file_id(os.fspath(self._real_path)) != self._id
        if is_moved and self._wal_id == file_id(self._wal):
            remove_wal(self._real_path)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def file_id(path: str) -> FileId | None:
    """Return what identifies the file at the path; None if there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def file_status(path: str, name: str) -> os.stat_result | None:
    """Return the status of the file at the path; None if there is none, or an empty one."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DatabaseError(f"{name} cannot be accessed: {error.strerror}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise DatabaseError(f"{name} is not a file.")
    return status if status.st_size else None


def check_before_opening(path: Path, name: str) -> None:
    """Raise if the file is not a catalog, before opening it could change it or its WAL."""
    try:
        _check_without_wal(path, name)
    except sqlite3.DatabaseError as error:
        # During a checkpoint the file without its WAL can be inconsistent.
        if result_code(error) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise


def check_length(path: Path, name: str) -> None:
    """Raise DatabaseError if the file is shorter than its header says.

    The page cache and the WAL would hide that it was truncated. A file is also shorter after a
    smaller catalog was restored; then its header says so.
    """
    try:
        _check_without_wal(path, name)
    except sqlite3.DatabaseError as error:
        raise DatabaseError(f"{name} was truncated: {error}.") from error


def _check_without_wal(path: Path, name: str) -> None:
    with closing(connect(path, "mode=ro&immutable=1")) as connection:
        check_schema(connection, name)


def cannot_open(path: Path, name: str, error: sqlite3.Error) -> DatabaseError:
    """Return the error for a file that cannot be opened, with the missing permission if any."""
    return DatabaseError(f"{name} cannot be opened: {missing_permission(path) or error}.")


def missing_permission(path: Path) -> str | None:
    """Return which permission to write to the file is missing; SQLite does not say it."""
    for file in (path, wal_path(path), shm_path(path)):
        if file.exists() and not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            return f"this user may not read and write {file.name}"
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK, effective_ids=True):
        return "this user may not write to its directory, where SQLite creates the WAL"
    return None
