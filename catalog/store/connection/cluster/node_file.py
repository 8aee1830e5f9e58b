"""The database file of an rqlite node, which the service only reads.

The node owns the file: it writes, checkpoints and replaces it. Connections are opened with mode=ro,
so that none of them can do any of that, not even when the last one is closed.

When a node starts, it creates its file again from a snapshot and its log; for a moment the file is
older than what readers have seen. So they read the old file until the new one has reached its
revision. rqlite 9.2 and later may keep the file and replace only the WAL and its index. Then open
connections never see another commit. They are closed, and reads fail until the file has reached
the revision again.
"""

import os
import sqlite3
import time
from contextlib import suppress

from catalog.store.connection.cluster.rqlite_http import READ_REVISION, Revision
from catalog.store.connection.database_file import CatalogFile, file_id
from catalog.store.connection.pool import ConnectionPool
from catalog.store.connection.sqlite import (
    Connection,
    DatabaseError,
    ReplicaBehindError,
    WouldBlock,
    connect,
)
from catalog.store.schema.schema import SCHEMA_VERSION, check_schema

# How long readers wait for a new file to reach the revision of the old one.
REPLAY_TIMEOUT = 10.0  # seconds
# Between two checks of it.
CHECK_INTERVAL = 0.05  # seconds
READ_ONLY = "mode=ro"


class FileReplacedError(DatabaseError):
    """The node has replaced its file, so no connection to the old one can be opened."""


class NodeFile(CatalogFile):
    """The file of a node that was at the path when it was opened."""

    def _open(self) -> Connection:
        try:
            connection = connect(self._path, READ_ONLY, self._busy_timeout_ms)
            version = check_schema(connection, self._name)
        except sqlite3.Error as error:
            raise DatabaseError(f"{self._name} cannot be opened: {error}.") from error
        if version < SCHEMA_VERSION:
            connection.close()
            raise DatabaseError(
                f"{self._name} has schema version {version}, and this release needs "
                f"{SCHEMA_VERSION}. Stop all services of the cluster, run the command migrate "
                "once, and start them again."
            )
        return connection

    def open_shared(self) -> Connection:
        """Open the connection for threads that have none when none can be opened any more."""
        self.shared = connect(self._path, READ_ONLY, self._busy_timeout_ms)
        self.shared.generation = self.generation
        self.shared.is_shared = True
        return self.shared

    def is_at_path(self, status: os.stat_result) -> bool:
        """Return whether the status of the path is that of this file."""
        return (status.st_dev, status.st_ino) == self._id

    def is_stale(self) -> bool:
        """Return whether the node has replaced the WAL, so that connections see no new commit."""
        return file_id(self._shm) != self._shm_id

    def revision(self) -> Revision | None:
        """Return the revision of the file; None if it cannot be read."""
        with self._connection.lock, suppress(sqlite3.Error):
            return Revision(*self._connection.execute(READ_REVISION).fetchone())
        return None

    def close_replaced(self) -> None:
        """Close a file that is no longer at the path."""
        self.close()

    def close(self) -> None:
        """Close the connection when no thread reads the revision with it."""
        with self._connection.lock:
            super().close()


class NodePool(ConnectionPool):
    """Read-only connections to the file of a node, one for each thread."""

    open_parameters = READ_ONLY

    _file: NodeFile | None
    # When the path was first seen without the opened file; None while the file is there.
    _replaced_at: float | None = None
    _next_check = 0.0
    _can_switch = False
    # The revision that readers have seen of a file that became stale.
    _last_seen: Revision | None = None

    def _current_file(self) -> NodeFile | None:
        file = self._file
        status = self.status()
        if file is None:
            if status is None:
                raise DatabaseError(
                    f"{self._name} does not exist. Start the rqlite node whose file it is."
                )
            return None
        if status and file.is_at_path(status):
            self._replaced_at, self._can_switch = None, False
            return None if file.is_stale() else file
        return None if self._may_switch(file) else file

    def _may_switch(self, file: NodeFile) -> bool:
        """Return whether to open the file at the path in place of the one that it replaced."""
        now = time.monotonic()
        if self._replaced_at is None:
            self._replaced_at = now
        if self._can_switch or now < self._next_check:
            return self._can_switch
        # The I/O thread opens no file: WouldBlock lets another thread check.
        if self._deadline.on_io_thread:
            return True
        self._next_check = now + CHECK_INTERVAL
        self._can_switch = now - self._replaced_at >= REPLAY_TIMEOUT or self._has_reached(file)
        return self._can_switch

    def _has_reached(self, old: NodeFile) -> bool:
        try:
            new = NodeFile(self._path, self._name, 0, self._busy_timeout_ms, self._wal_limit)
        except DatabaseError:
            return False
        try:
            old_revision, new_revision = old.revision(), new.revision()
        finally:
            new.close()
        if new_revision is None:
            return False
        return old_revision is None or new_revision.has_reached(old_revision)

    def _open_file(self) -> CatalogFile:
        file = self._file
        status = self.status()
        if file and status and file.is_at_path(status) and file.is_stale():
            self._last_seen, self._replaced_at = file.revision(), time.monotonic()
            # SQLite gives a new connection the stale WAL index while any other has it open.
            with self._exclusive():
                self._close_all()
        return super()._open_file()

    def _create_file(self) -> NodeFile:
        file = NodeFile(
            self._path, self._name, self._generation, self._busy_timeout_ms, self._wal_limit
        )
        if self._last_seen and self._replaced_at is not None:
            revision, now = file.revision(), time.monotonic()
            has_reached = revision is not None and revision.has_reached(self._last_seen)
            if not has_reached and now - self._replaced_at < REPLAY_TIMEOUT:
                file.close()
                raise ReplicaBehindError(f"{self._name} was restarted and is behind.")
        self._last_seen = self._replaced_at = None
        self._can_switch = False
        shared = file.open_shared()
        self._limit_to_reads(shared)
        self._readers.add(shared)
        return file

    def _connect(self, file: CatalogFile) -> Connection:
        try:
            connection = super()._connect(file)
        except DatabaseError:
            self._raise_if_replaced(file)
            raise
        try:
            self._raise_if_replaced(file)
        except FileReplacedError:
            connection.close()
            raise
        return connection

    def _raise_if_replaced(self, file: CatalogFile) -> None:
        status = self.status()
        if status is None or not file.is_at_path(status):
            raise FileReplacedError(f"{self._name} is being replaced.")

    def _open_reader(self) -> Connection:
        self.release()
        thread = self._thread
        # The old connection is still needed if no new one can be opened.
        old, thread.connection = thread.connection, None
        try:
            connection = super()._open_reader()
        except FileReplacedError:
            thread.connection = old
            return self._keep_reader()
        except BaseException:
            thread.connection = old
            raise
        # Other threads may use a shared connection.
        if old and not old.is_shared:
            old.close()
        return connection

    def _keep_reader(self) -> Connection:
        """Return a connection to a file that was replaced: the thread's own, or the shared one."""
        if self._deadline.on_io_thread:
            raise WouldBlock
        file, thread = self._file, self._thread
        if file is None:
            raise FileReplacedError(f"{self._name} is being replaced.")
        if not (thread.connection and thread.connection.generation == file.generation):
            thread.connection = file.shared
        self._deadline.acquire(thread.connection.lock)
        thread.is_locked = True
        # Compare the file again, now that the connection is locked.
        return self.reader()
