"""The connections to the database file: one for each thread that reads, and one that writes."""

import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...text import path_text
from .database_file import (
    DatabaseFile,
    cannot_open,
    file_exists,
)
from .deadlines import Deadline
from .sqlite import (
    Connection,
    DatabaseError,
    WouldBlock,
    connect,
    is_busy,
    set_busy_timeout,
)

# With SQLite's default of 2 MB, reading pages takes a sixth of the time of a new search.
IO_THREAD_CACHE_KIB = 32_000
# Steps of SQLite between two checks of the deadline: about 50 microseconds and 5 milliseconds. Each
# check needs the GIL, so frequent checks in the pools would slow down the I/O thread.
IO_THREAD_STEPS = 1_000
POOL_STEPS = 100_000
# While another process holds the write lock, queued writes wait one after another: keep it short.
STALLED_BUSY_TIMEOUT_MS = 5


class ThreadConnection(threading.local):
    """The connection with which the current thread reads."""

    connection: Connection | None = None


class ConnectionPool:
    """Connections to the file at a path: one for each thread that reads, one for all writes.

    The file is opened once. A thread opens its connection when it first reads, and keeps it:
    opening one costs 0.24 ms, a query from 6 microseconds. Only close() closes the connections of
    other threads, at the end.

    The I/O thread never waits here. If it would have to wait for a lock or to open the file,
    WouldBlock is raised, and the request starts again in another thread.
    """

    def __init__(
        self, path: Path, deadline: Deadline, busy_timeout_ms: int, wal_limit: int
    ) -> None:
        self._path, self._name = path, path_text(path)
        self._deadline = deadline
        self._busy_timeout_ms, self._wal_limit = busy_timeout_ms, wal_limit
        # See Connection.counts.
        self._counts: dict[object, tuple[int, Any]] = {}
        # Held by the thread that writes, or opens the file.
        self._write_lock = threading.Lock()
        self._file: DatabaseFile | None = None
        # Whether the last write found the file locked by another process.
        self._is_stalled = False
        self._thread = ThreadConnection()
        self._readers: weakref.WeakSet[Connection] = weakref.WeakSet()

    def reader(self) -> Connection:
        """Return the connection with which this thread reads."""
        self._deadline.check()
        return self._thread.connection or self._open_reader()

    def end_reads(self) -> None:
        """Make the next statement of this thread see the latest commit."""
        if self._thread.connection:
            self._thread.connection.end_reads()

    @contextmanager
    def writer(self) -> Iterator[Connection]:
        """Yield the connection that writes, for this thread alone; roll back after an error."""
        with self._deadline.holding(self._write_lock):
            file = self._open_file()
            file.check_in_place()
            file.bound_wal()
            try:
                yield file.connection
            except BaseException as error:
                if file.connection.in_transaction:
                    file.connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError) and is_busy(error):
                    self._is_stalled = True
                    set_busy_timeout(file.connection, STALLED_BUSY_TIMEOUT_MS)
                raise
            if self._is_stalled:
                self._is_stalled = False
                set_busy_timeout(file.connection, self._busy_timeout_ms)

    def open(self, *, migrate: bool = False) -> None:
        """Open the file if it is not open; if told so, migrate it to the schema of this release."""
        with self._deadline.holding(self._write_lock):
            self._open_file(migrate=migrate)

    def check_in_place(self) -> None:
        """Raise DatabaseGoneError if the file was opened, and is no longer at the path."""
        if self._file:
            self._file.check_in_place()

    def mark_io_thread(self) -> None:
        """Make this thread the I/O thread."""
        self._deadline.on_io_thread = True
        # It was opened with a busy timeout. The I/O thread must not wait.
        if self._thread.connection:
            self._thread.connection.close()
            self._thread.connection = None

    def close(self) -> None:
        """Close the connections of all threads; the next use opens new ones."""
        with self._write_lock:
            for connection in self._readers:
                connection.close()
            if self._file:
                self._file.close()
            self._file = None
            self._thread = ThreadConnection()

    def _open_file(self, *, migrate: bool = False) -> DatabaseFile:
        """Return the opened file; call with the write lock held."""
        if self._file:
            return self._file
        if not file_exists(self._path, self._name):
            raise DatabaseError(f"{self._name} does not exist. Create it with: widget-catalog init")
        self._file = DatabaseFile(
            *(self._path, self._name, self._busy_timeout_ms, self._wal_limit),
            may_migrate=migrate,
        )
        return self._file

    def _open_reader(self) -> Connection:
        if not self._file:
            # To open the file can mean to wait for a lock.
            if self._deadline.on_io_thread:
                raise WouldBlock
            self.open()
        # Otherwise SQLite would open another file, or create a new WAL.
        self.check_in_place()
        try:
            connection = self._connect("mode=rw")
            # This opens the WAL.
            connection.data_version()
        except sqlite3.Error as error:
            raise cannot_open(self._path, self._name, error) from error
        # Another process may have replaced the file in between.
        self.check_in_place()
        self._thread.connection = connection
        return connection

    def _connect(self, parameters: str) -> Connection:
        """Open a connection that only reads, until the deadline of its thread."""
        on_io_thread = self._deadline.on_io_thread
        try:
            connection = connect(
                self._path, parameters, 0 if on_io_thread else self._busy_timeout_ms
            )
        except sqlite3.OperationalError as error:
            if on_io_thread and is_busy(error):
                raise WouldBlock from error
            raise
        connection.on_io_thread = on_io_thread
        connection.counts = self._counts
        connection.execute("PRAGMA query_only = ON")
        if on_io_thread:
            connection.execute(f"PRAGMA cache_size = -{IO_THREAD_CACHE_KIB}")
        steps = IO_THREAD_STEPS if on_io_thread else POOL_STEPS
        connection.set_progress_handler(self._deadline.is_past, steps)
        connection.is_past_deadline = self._deadline.is_past
        self._readers.add(connection)
        return connection
