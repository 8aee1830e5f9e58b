"""Connections for reading the database, one per thread."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .database_file import DatabaseFile
from .sqlite import Connection, DatabaseError, WouldBlock, connect, fetch_all, is_busy, snapshot
from .transaction import Values

# With SQLite's default 2 MB cache, an uncached search spends a sixth of its time reading the file.
IO_THREAD_CACHE_KIB = 32_000
# The number of SQLite steps between two deadline checks. The steps take about 50 microseconds on
# the I/O thread, and 5 milliseconds in the pools. Each check needs the GIL, so more frequent checks
# in the pools would slow down the I/O thread.
IO_THREAD_STEPS = 1_000
POOL_STEPS = 100_000


class ThreadConnection(threading.local):
    """The current thread's connection for reading."""

    connection: Connection | None = None


class Readers(DatabaseFile):
    """The database file with a connection for each thread that reads it.

    A thread opens its connection when it first reads, and keeps it: opening a connection takes 240
    microseconds, while a query can take only 6. The I/O thread never waits: a read that would have
    to wait raises WouldBlock instead, and the request starts again in another thread.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._thread = ThreadConnection()
        # All threads' connections by thread id, for close(). If a new thread reuses the id of a
        # finished thread, its connection replaces the old one, which is then closed.
        self._readers: dict[int, Connection] = {}
        # Cached counts, shared by all connections; see Connection.counts.
        self._counts: dict[object, tuple[int, Any]] = {}

    def reader(self) -> Connection:
        """Return this thread's connection for reading; each statement sees the latest commit."""
        self.deadline.check()
        return self._thread.connection or self._open_reader()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection whose statements all see the same snapshot of the catalog."""
        connection = self.reader()
        with snapshot(connection):
            yield connection

    def fetch(self, sql: str, values: Values) -> list[sqlite3.Row]:
        """Run a statement and return its rows."""
        return fetch_all(self.reader(), sql, values)

    def mark_io_thread(self) -> None:
        """Make this thread the I/O thread: instead of waiting, its reads raise WouldBlock."""
        self.deadline.on_io_thread = True
        # Close any open connection: it would wait for locks. The next read opens a new one.
        if self._thread.connection:
            self._thread.connection.close()
            self._thread.connection = None

    def _open_reader(self) -> Connection:
        if not self._writer:
            # Opening the file may have to wait for a lock.
            if self.deadline.on_io_thread:
                raise WouldBlock
            if parameters := self._read_only_parameters():
                return self._open_unchanged(parameters)
            with self.deadline.holding(self._write_lock):
                self._open_writer()
        # Without this check, SQLite could open another file or create a new WAL.
        self.check_in_place()
        try:
            connection = self._connect("mode=rw")
            # This statement opens the WAL.
            connection.data_version()
        except sqlite3.Error as error:
            raise self._cannot_open(error) from error
        # Another process may have replaced the file in between.
        self.check_in_place()
        return self._use(connection)

    def _open_unchanged(self, parameters: str) -> Connection:
        """Open a file, such as a backup, without changing it."""
        try:
            connection = self._connect(parameters)
            self._check_version(connection, may_migrate=False)
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.name} cannot be opened: {error}.") from error
        return self._use(connection)

    def _connect(self, parameters: str) -> Connection:
        """Open a read-only connection that is interrupted at its thread's deadline."""
        on_io_thread = self.deadline.on_io_thread
        timeout = 0 if on_io_thread else self.busy_timeout_ms
        try:
            connection = connect(self.path, parameters, timeout)
        except sqlite3.OperationalError as error:
            if on_io_thread and is_busy(error):
                raise WouldBlock from error
            raise
        connection.on_io_thread = on_io_thread
        connection.counts = self._counts
        fetch_all(connection, "PRAGMA query_only = ON")
        if on_io_thread:
            fetch_all(connection, f"PRAGMA cache_size = -{IO_THREAD_CACHE_KIB}")
        steps = IO_THREAD_STEPS if on_io_thread else POOL_STEPS
        connection.set_progress_handler(self.deadline.is_past, steps)
        connection.check_deadline = self.deadline.check
        return connection

    def _use(self, connection: Connection) -> Connection:
        """Make this the current thread's connection, and return it."""
        self._thread.connection = connection
        self._readers[threading.get_ident()] = connection
        return connection

    def close(self) -> None:
        """Close the connections of all threads; the next use opens new ones."""
        with self._write_lock:
            # Copy the list in one step: another thread may open a connection in the meantime.
            for connection in list(self._readers.values()):
                connection.close()
            self._readers.clear()
            self._close_writer()
            self._thread = ThreadConnection()
