"""The opened database file with its WAL, and whether both are still where they were opened."""

import logging
import os
import sqlite3
import stat
from pathlib import Path

from ..schema.migrations import migrate
from ..schema.schema import SCHEMA_VERSION, check_schema
from .sqlite import (
    Connection,
    DatabaseError,
    DatabaseGoneError,
    connect,
)
from .wal import remove_wal, shm_path, wal_path

# Device and inode number.
FileId = tuple[int, int]

logger = logging.getLogger(__name__)


class DatabaseFile:
    """The database file that was at the path when it was opened, and the connection that writes.

    That connection is opened before all others and closed after them. It refers to the file and the
    WAL that were opened, even if there are other files at their paths now.
    """

    def __init__(
        self, path: Path, name: str, busy_timeout_ms: int, wal_limit: int, *, may_migrate: bool
    ) -> None:
        """Open it; migrate a file of an older schema, or refuse it."""
        self._path, self._name = os.fspath(path), name
        # SQLite resolves links before it appends -wal to the name.
        self._real_path = Path(os.path.realpath(path))
        self._wal = os.fspath(wal_path(self._real_path))
        self._shm = os.fspath(shm_path(self._real_path))
        self._wal_limit = wal_limit
        # Bytes of the WAL above which the next write truncates it.
        self._truncate_above = wal_limit
        self._size = 0
        # What happened to the file, once it is no longer in place.
        self._change = ""
        self._id = file_id(self._path)
        self.connection = self._open(busy_timeout_ms, may_migrate)
        self._wal_id, self._shm_id = file_id(self._wal), file_id(self._shm)

    def _open(self, busy_timeout_ms: int, may_migrate: bool) -> Connection:
        try:
            connection = connect(self._real_path, "mode=rw", busy_timeout_ms)
            try:
                self._prepare(connection, may_migrate)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise cannot_open(self._real_path, self._name, error) from error
        return connection

    def _prepare(self, connection: Connection, may_migrate: bool) -> None:
        version = check_schema(connection, self._name)
        if version < SCHEMA_VERSION and not may_migrate:
            raise DatabaseError(
                f"{self._name} has schema version {version}, and this release needs "
                f"{SCHEMA_VERSION}. Run widget-catalog migrate, or start the service."
            )
        # A backup is not in WAL mode.
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        if version < SCHEMA_VERSION:
            migrate(connection, self._real_path)
        # If the WAL grew beyond the limit, truncate it when it restarts.
        connection.execute(f"PRAGMA journal_size_limit = {self._wal_limit}")
        # This opens the WAL.
        connection.data_version()

    def check_in_place(self) -> None:
        """Raise DatabaseGoneError unless file and WAL are at their paths; from then on, always."""
        self._change = self._change or self._find_change()
        if self._change:
            raise DatabaseGoneError(self._change)

    def _find_change(self) -> str:
        """Return what happened to the file or its WAL in one sentence; empty if nothing."""
        # Read it before the status: another thread may set it to that of a file that has grown.
        size = self._size
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return f"{self._name} was removed while it was open."
        except OSError as error:
            return f"{self._name} cannot be accessed any more: {error.strerror}."
        if (status.st_dev, status.st_ino) != self._id:
            return f"{self._name} was replaced while it was open."
        # The page cache and the WAL would hide it. No command makes a file shorter.
        if status.st_size < size:
            return f"{self._name} was truncated while it was open."
        self._size = status.st_size
        for path, opened in ((self._wal, self._wal_id), (self._shm, self._shm_id)):
            if file_id(path) != opened:
                suffix = path[-len("-wal") :]
                return f"{self._name}{suffix} was removed or replaced while it was open."
        return ""

    def bound_wal(self) -> None:
        """Truncate a large WAL, which waits for reads; call it between two writes.

        SQLite can restart the WAL only while no connection reads from it. Reads that overlap would
        leave no such moment, but a read that starts after the checkpoint needs no WAL.
        """
        size = os.stat(self._wal).st_size
        if size <= self._wal_limit:
            self._truncate_above = self._wal_limit
        elif size > self._truncate_above:
            try:
                is_truncated = truncate_wal(self.connection)
            except sqlite3.Error:
                is_truncated = False
            # If another process reads for long, try again when the WAL has grown.
            self._truncate_above = self._wal_limit + (0 if is_truncated else size)

    def close(self) -> None:
        """Close the connection; first save the WAL of a file that is no longer in place."""
        if self._change or self._find_change():
            self._save_wal()
        self.connection.close()

    def _save_wal(self) -> None:
        """Write the WAL into the file that was opened; SQLite does so only if both are in place."""
        at_path = file_id(os.fspath(self._real_path))
        if at_path == self._id and file_id(self._shm) not in (self._shm_id, None):
            # Another process has created a new WAL index, and does not see the locks of this one.
            # SQLite then saves the WAL when it is closed, if no other process has the file open.
            return
        try:
            is_saved = truncate_wal(self.connection)
        except sqlite3.Error as error:
            logger.error("The last writes to %s cannot be saved: %s.", self._name, error)
        else:
            if not is_saved:
                logger.error("The last writes to %s cannot be saved: it is read.", self._name)
        if at_path not in (self._id, None) and file_id(self._wal) == self._wal_id:
            # SQLite would apply it to the file that is at the path now.
            remove_wal(self._real_path)


def truncate_wal(connection: sqlite3.Connection) -> bool:
    """Write the WAL into the file and truncate it; return False if reads prevent that."""
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_busy


def file_id(path: str) -> FileId | None:
    """Return what identifies the file at the path; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def file_exists(path: Path, name: str) -> bool:
    """Return whether there is a file at the path that is not empty."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DatabaseError(f"{name} cannot be accessed: {error.strerror}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise DatabaseError(f"{name} is not a file.")
    return status.st_size > 0


def cannot_open(path: Path, name: str, error: sqlite3.Error) -> DatabaseError:
    """Return the error for a file that cannot be opened, with the missing permission if any."""
    return DatabaseError(f"{name} cannot be opened: {missing_permission(path) or error}.")


def missing_permission(path: Path) -> str | None:
    """Return which permission to write to the file is missing; SQLite does not say it."""
    for file in (path, wal_path(path), shm_path(path)):
        if file.exists() and not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            return _read_only(file) or f"this user may not read and write {file.name}"
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        return (
            _read_only(path.parent)
            or "this user may not write to its directory, where SQLite creates the WAL"
        )
    return None


def _read_only(path: Path) -> str | None:
    """Return what to do if the file system is read-only; ProtectSystem= of systemd makes it so."""
    if not os.statvfs(path).f_flag & os.ST_RDONLY:
        return None
    return (
        "its file system is read-only (EROFS). In a unit of systemd, name the directory in"
        " ReadWritePaths="
    )
