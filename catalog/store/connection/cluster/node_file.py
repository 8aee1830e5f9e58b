"""The database file of an rqlite node, which the service only reads.

The node owns the file: it writes, checkpoints and replaces it. Connections are opened with mode=ro,
so that none of them can do any of that, not even when the last one is closed.

When a node starts or loads a file, it creates its file again; for a moment that is older than what
readers have seen. So every thread reads the old file until the new one has reached its revision,
then closes its connection and opens another. A thread that has no connection to the newest file
that any thread has read waits: it must not show less than what a write or another read has seen.
"""

import sqlite3
import time
from collections.abc import Callable

from ...schema.schema import SCHEMA_VERSION
from ..content import check_schema
from ..database import Database
from ..database_file import FileId, file_id
from ..sqlite import Connection, DatabaseError, WouldBlock, connect, set_busy_timeout
from .rqlite_http import Revision, select_revision

# How long readers wait for a new file to reach the revision of the old one.
REPLAY_TIMEOUT = 10.0  # seconds
# Between two checks of it.
CHECK_INTERVAL = 0.05  # seconds
READ_ONLY = "mode=ro"


class NodeFile(Database):
    """The catalog in the file of a node. A connection for each thread reads it."""

    # To the file that threads read now. No thread reads with it, so it has no deadline.
    _latest: Connection | None = None
    # The file at the path that is not read yet, and since when it is there.
    _new: FileId | None = None
    _new_since = 0.0

    def reader(self) -> Connection:
        """Return this thread's connection to the newest file that has reached what was read."""
        started = time.monotonic()
        while True:
            self.deadline.check()
            connection, at_path = self._thread.connection, file_id(self.path)
            if connection and (connection.file == at_path or connection.in_transaction):
                return connection
            # The I/O thread leaves it to another thread to compare the files.
            if not self.deadline.on_io_thread:
                self._follow(at_path)
            current = self._latest.file if self._latest else None
            if connection and connection.file == current:
                return connection
            if current and current == at_path and (new := self._open(at_path, self._connect)):
                self._thread.connection = new
                if connection:
                    connection.close()
                return new
            if self.deadline.on_io_thread:
                raise WouldBlock
            if time.monotonic() - started > REPLAY_TIMEOUT:
                raise DatabaseError(f"{self.name} is being replaced.")
            time.sleep(CHECK_INTERVAL)

    def revision(self) -> Revision | None:
        """Return the revision that threads read now; None if it cannot be read."""
        self._follow(file_id(self.path))
        with self._write_lock:
            return select_revision(self._latest) if self._latest else None

    def check_in_place(self) -> None:
        """Do nothing: the node may replace its file."""

    def close(self) -> None:
        """Close the connections of all threads; the next use opens new ones."""
        super().close()
        self._latest = None

    def missing_error(self) -> DatabaseError:
        """Return the error for a file that no node has created."""
        return DatabaseError(f"{self.name} does not exist. Start the rqlite node whose file it is.")

    def _follow(self, at_path: FileId | None) -> None:
        """Make threads read the file at the path, once it has reached the revision of the last."""
        with self._write_lock:
            latest, now = self._latest, time.monotonic()
            if at_path is None and latest is None:
                raise self.missing_error()
            if at_path is None or (latest and latest.file == at_path):
                return
            if at_path != self._new:
                self._new, self._new_since = at_path, now
            is_late = now - self._new_since >= REPLAY_TIMEOUT
            wanted = select_revision(latest) if latest and not is_late else None
            try:
                new = self._open(at_path, lambda parameters: connect(self.path, parameters))
            except DatabaseError:
                if wanted:
                    return
                raise
            reached = select_revision(new) if new else None
            if new and (wanted is None or (reached and reached.has_reached(wanted))):
                # A write that waits until it is applied reads the revision again and again.
                set_busy_timeout(new, 0)
                self._latest = new

    def _open(self, at_path: FileId, connect_to: Callable[[str], Connection]) -> Connection | None:
        """Open a connection to this file; return None if it is no longer at the path."""
        try:
            connection = connect_to(READ_ONLY)
            version = check_schema(connection, self.name)
        except sqlite3.Error as error:
            if file_id(self.path) != at_path:
                return None
            raise DatabaseError(f"{self.name} cannot be opened: {error}.") from error
        if file_id(self.path) != at_path:
            return None
        if version < SCHEMA_VERSION:
            raise DatabaseError(
                f"{self.name} has schema version {version}, and this release needs "
                f"{SCHEMA_VERSION}. Stop all services of the cluster, run the command migrate "
                "once, and start them again."
            )
        connection.file = at_path
        return connection
