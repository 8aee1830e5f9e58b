"""The database file of an rqlite node, which the service only reads.

The node owns the file: it writes, checkpoints and replaces it. Connections are opened with mode=ro,
so that none of them can do any of that, not even when the last one is closed.

When a node starts or loads a file, it creates its file again; for a moment that is older than what
readers have seen. So every thread reads the old file until the new one has reached its revision,
then closes its connection and opens another. A thread that has no connection to the newest file
that any thread has read waits: it must not show less than what a write or another read has seen.
"""

import os
import sqlite3
import time

from ...schema.schema import SCHEMA_VERSION, check_schema
from ..database_file import FileId, file_id
from ..pool import ConnectionPool
from ..sqlite import Connection, DatabaseError, WouldBlock
from .rqlite_http import Revision, read_revision

# How long readers wait for a new file to reach the revision of the old one.
REPLAY_TIMEOUT = 10.0  # seconds
# Between two checks of it.
CHECK_INTERVAL = 0.05  # seconds
READ_ONLY = "mode=ro"


class NodePool(ConnectionPool):
    """Read-only connections to the file of a node, one for each thread."""

    # The file that threads read, and the connection for revision().
    _current: FileId | None = None
    _revision_reader: Connection | None = None
    # The file at the path that is not read yet, and since when it is there.
    _new: FileId | None = None
    _new_since = 0.0

    def reader(self) -> Connection:
        """Return this thread's connection to the newest file that has reached what was read."""
        started = time.monotonic()
        while True:
            self._deadline.check()
            connection, at_path = self._thread.connection, self._at_path()
            if connection and (connection.file == at_path or connection.in_transaction):
                return connection
            if self._may_read(at_path):
                if new := self._open(at_path):
                    self._thread.connection = new
                    if connection:
                        connection.close()
                    return new
            elif connection and connection.file == self._current:
                return connection
            if self._deadline.on_io_thread:
                raise WouldBlock
            if time.monotonic() - started > REPLAY_TIMEOUT:
                raise DatabaseError(f"{self._name} is being replaced.")
            time.sleep(CHECK_INTERVAL)

    def revision(self) -> Revision | None:
        """Return the revision that threads read now; None if it cannot be read."""
        self._may_read(self._at_path())
        with self._write_lock:
            return read_revision(self._revision_reader) if self._revision_reader else None

    def check_in_place(self) -> None:
        """Do nothing: the node may replace its file."""

    def close(self) -> None:
        """Close the connections of all threads; the next use opens new ones."""
        super().close()
        self._current = self._revision_reader = None

    def _at_path(self) -> FileId | None:
        return file_id(os.fspath(self._path))

    def _may_read(self, at_path: FileId | None) -> bool:
        """Return whether threads may read the file at the path, instead of an earlier one."""
        if at_path is None and self._current is None:
            raise DatabaseError(
                f"{self._name} does not exist. Start the rqlite node whose file it is."
            )
        if at_path is None or at_path == self._current:
            return at_path is not None
        # Another thread compares the files: this one need not wait for it.
        if not self._write_lock.acquire(blocking=False):
            return False
        try:
            return self._compare(at_path, time.monotonic())
        finally:
            self._write_lock.release()

    def _compare(self, at_path: FileId, now: float) -> bool:
        """Make the file the current one, if it has reached the revision of the current one."""
        if at_path != self._new:
            self._new, self._new_since = at_path, now
        old, is_late = self._revision_reader, now - self._new_since >= REPLAY_TIMEOUT
        wanted = read_revision(old) if old and not is_late else None
        try:
            new = self._open(at_path)
        except DatabaseError:
            if wanted:
                return False
            raise
        reached = read_revision(new) if new else None
        if new is None or (wanted and not (reached and reached.has_reached(wanted))):
            return False
        if old:
            old.close()
        self._revision_reader, self._current = new, at_path
        return True

    def _open(self, at_path: FileId | None) -> Connection | None:
        """Open a connection to this file; return None if it is no longer at the path."""
        try:
            connection = self._connect(READ_ONLY)
            version = check_schema(connection, self._name)
        except sqlite3.Error as error:
            if self._at_path() != at_path:
                return None
            raise DatabaseError(f"{self._name} cannot be opened: {error}.") from error
        if self._at_path() != at_path:
            return None
        if version < SCHEMA_VERSION:
            raise DatabaseError(
                f"{self._name} has schema version {version}, and this release needs "
                f"{SCHEMA_VERSION}. Stop all services of the cluster, run the command migrate "
                "once, and start them again."
            )
        connection.file = at_path
        return connection
