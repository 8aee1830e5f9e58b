"""The connections to the database file: one for each thread that reads, and one that writes."""

import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from catalog.store.connection.database_file import CatalogFile, cannot_open, file_status
from catalog.store.connection.deadlines import Deadline
from catalog.store.connection.sqlite import Connection, DatabaseError, WouldBlock, connect, is_busy
from catalog.store.connection.wal import LongReadGate
from catalog.text import path_text

# With SQLite's default of 2 MB, reading pages takes a sixth of the time of a new search.
IO_THREAD_CACHE_KIB = 32_000
# Steps of SQLite between two checks of the deadline: about 50 microseconds and 5 milliseconds. Each
# check needs the GIL, so frequent checks in the pools would slow down the I/O thread.
IO_THREAD_STEPS = 1_000
POOL_STEPS = 100_000
# How long a write waits for the reads of the slow pool before it truncates the WAL; see the
# deadlines in serving/dispatch.py.
LONG_READ_TIMEOUT = 6  # seconds

logger = logging.getLogger(__name__)


class ThreadConnection(threading.local):
    """The connection with which the current thread reads."""

    connection: Connection | None = None
    # Whether this thread holds connection.lock.
    is_locked = False


class ConnectionPool:
    """Connections to the file at a path: one for each thread that reads, one for all writes.

    A thread keeps its connection for as long as it runs: opening one costs 0.24 ms, a query from
    6 microseconds. It holds the connection's lock from reader() to release(), so another thread can
    close a connection that is idle.

    A replaced file: reader() and writer() compare the file at the path with the opened one. If it
    is another file, the first thread to notice opens it as a new CatalogFile, with the next
    generation number. Connections of an earlier generation are closed: idle ones by that thread,
    the others by their own threads in release().

    The WAL: writer() truncates it when it is large, and recovers it when it was removed.

    The I/O thread never waits here. If it would have to wait for a lock or to open a file,
    WouldBlock is raised, and the request starts again in another thread.
    """

    # Of SQLite's URI.
    open_parameters = "mode=rw"

    def __init__(
        self,
        path: Path,
        deadline: Deadline,
        busy_timeout_ms: int,
        wal_limit: int,
        create_command: str,
    ) -> None:
        self._path, self._name = path, path_text(path)
        # For os.stat(), once per request: text is faster than a Path.
        self._path_text = os.fspath(path)
        self._deadline = deadline
        self._busy_timeout_ms, self._wal_limit = busy_timeout_ms, wal_limit
        self._create_command = create_command
        # Locks are acquired in this order: write lock, gate, open lock, locks of connections.
        self._write_lock = threading.Lock()
        self._long_reads = LongReadGate()
        self._open_lock = threading.Lock()
        self._file: CatalogFile | None = None
        self._generation = 0
        self._thread = ThreadConnection()
        self._readers: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._writer: Connection | None = None

    def reader(self) -> Connection:
        """Return the connection with which this thread reads."""
        self._deadline.check()
        thread = self._thread
        connection = thread.connection
        if connection is None:
            return self._open_reader()
        if not thread.is_locked:
            self._deadline.acquire(connection.lock)
            thread.is_locked = True
        file = self._current_file()
        if file and file.generation == connection.generation:
            return connection
        return self._open_reader()

    def release(self) -> None:
        """Let other threads close this thread's connection until it calls reader() again."""
        thread = self._thread
        connection = thread.connection
        if connection is None or not thread.is_locked:
            return
        file = self._file
        if file is None or file.generation != connection.generation:
            connection.close()
        thread.is_locked = False
        connection.lock.release()

    def long_read(self, timeout: float) -> AbstractContextManager[bool]:
        """Run a long read in the block; yield False if none may start before the timeout."""
        return self._long_reads.enter(timeout)

    @contextmanager
    def writer(self) -> Iterator[Connection]:
        """Yield the connection that writes, for this thread alone."""
        with self._deadline.holding(self._write_lock):
            yield self._current_writer()

    def mark_io_thread(self) -> None:
        """Make this thread the I/O thread."""
        self._deadline.on_io_thread = True
        self.release()
        # It was opened with a busy timeout. The I/O thread must not wait.
        self._thread.connection = None

    def has_wal(self) -> bool:
        """Return whether the WAL is at its path, so that no write has to recover it."""
        file = self._file
        return file is None or file.wal_size() is not None

    def status(self) -> os.stat_result | None:
        """Return the status of the file at the path; None if there is none, or an empty one."""
        return file_status(self._path_text, self._name)

    def close(self) -> None:
        """Close all connections of all threads."""
        with self._write_lock, self._open_lock:
            self._close_all()

    def _current_file(self) -> CatalogFile | None:
        """Return the opened file if it is at the path; raise if the path has no usable file."""
        status = self.status()
        if status is None:
            raise DatabaseError(
                f"{self._name} does not exist. Create it with: {self._create_command}"
            )
        file = self._file
        return file if file and file.is_at_path(status) else None

    def _open_file(self) -> CatalogFile:
        """Return the file at the path, opened if it is not yet; call with the open lock held."""
        file = self._current_file()
        if file:
            return file
        if self._file:
            self._file.close_replaced()
            self._file = None
        self._close_idle()
        self._generation += 1
        self._file = self._create_file()
        return self._file

    def _create_file(self) -> CatalogFile:
        return CatalogFile(
            self._path, self._name, self._generation, self._busy_timeout_ms, self._wal_limit
        )

    def _close_idle(self) -> None:
        """Close connections that no thread uses: a replaced file would stay on the disk."""
        for connection in self._readers:
            if connection.lock.acquire(blocking=False):
                connection.close()
                connection.lock.release()
        if self._writer and self._write_lock.acquire(blocking=False):
            self._writer.close()
            self._write_lock.release()

    def _open_reader(self) -> Connection:
        self.release()
        thread = self._thread
        with self._deadline.holding(self._open_lock):
            # The I/O thread does not open files: that can mean to wait for a lock, or to migrate.
            file = self._current_file() if self._deadline.on_io_thread else self._open_file()
            if file is None:
                raise WouldBlock
            if thread.connection:
                thread.connection.close()
            connection = self._connect(file)
            self._limit_to_reads(connection)
            connection.lock.acquire()
            self._readers.add(connection)
            thread.connection, thread.is_locked = connection, True
        return connection

    def _connect(self, file: CatalogFile) -> Connection:
        on_io_thread = self._deadline.on_io_thread
        try:
            connection = connect(
                self._path, self.open_parameters, 0 if on_io_thread else self._busy_timeout_ms
            )
        except sqlite3.Error as error:
            if on_io_thread and is_busy(error):
                raise WouldBlock from error
            raise cannot_open(self._path, self._name, error) from error
        connection.on_io_thread = on_io_thread
        connection.generation = file.generation
        connection.counts = file.counts
        return connection

    def _limit_to_reads(self, connection: Connection) -> None:
        """Let the connection only read, and only until the deadline of its thread."""
        connection.execute("PRAGMA query_only = ON")
        steps = POOL_STEPS
        if connection.on_io_thread:
            connection.execute(f"PRAGMA cache_size = -{IO_THREAD_CACHE_KIB}")
            steps = IO_THREAD_STEPS
        connection.set_progress_handler(self._deadline.is_past, steps)
        connection.is_past_deadline = self._deadline.is_past

    def _current_writer(self) -> Connection:
        """Return the connection that writes, to a file whose WAL is in place."""
        file, connection = self._current_file(), self._writer
        if not (file and connection and connection.generation == file.generation):
            file, connection = self._open_writer()
        wal_size = file.wal_size()
        if wal_size is None:
            self._recover_wal(file)
            _, connection = self._open_writer()
        elif wal_size <= self._wal_limit:
            file.truncate_above = self._wal_limit
        elif wal_size > file.truncate_above:
            with (
                self._long_reads.closed(LONG_READ_TIMEOUT),
                self._deadline.holding(self._open_lock),
            ):
                file.truncate_large_wal(wal_size)
        return connection

    def _open_writer(self) -> tuple[CatalogFile, Connection]:
        with self._deadline.holding(self._open_lock):
            file = self._open_file()
            if self._writer:
                self._writer.close()
            self._writer = self._connect(file)
            # If the WAL grew beyond the limit, truncate it when it restarts.
            self._writer.execute(f"PRAGMA journal_size_limit = {self._wal_limit}")
            return file, self._writer

    def _recover_wal(self, file: CatalogFile) -> None:
        """Save a WAL that was removed, and close all connections to it."""
        with self._deadline.holding(self._open_lock), self._exclusive():
            # Another thread may have replaced the file in the meantime.
            if file is not self._file:
                return
            file.recover_wal()
            self._close_all()
        logger.warning("%s-wal or -shm was removed while in use. No data is lost.", self._name)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Let no other thread read in the block; call with write lock and open lock held."""
        own = self._thread.connection if self._thread.is_locked else None
        with ExitStack() as stack:
            for connection in self._readers:
                if connection is own:
                    continue
                if not connection.lock.acquire(timeout=self._busy_timeout_ms / 1000):
                    raise DatabaseError(f"{self._name}-wal was removed, and a read still uses it.")
                stack.callback(connection.lock.release)
            yield

    def _close_all(self) -> None:
        for connection in self._readers:
            connection.close()
        if self._writer:
            self._writer.close()
        if self._file:
            self._file.close()
        self._file = self._writer = None
