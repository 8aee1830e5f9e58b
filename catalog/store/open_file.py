"""The connections to the file at a path, which an operator may replace or damage at any time."""

import logging
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from catalog.store.deadlines import Deadline, ReadGate
from catalog.store.keeper import Keeper, not_opened
from catalog.store.sqlite import (
    BUSY_TIMEOUT_MS,
    WAL_LIMIT,
    Connection,
    DatabaseError,
    WouldBlock,
    check_length,
    connect,
    is_busy,
    truncate_wal,
)
from catalog.text import path_text

# A sixth of the time of a new search is asking the system for pages.
IO_THREAD_CACHE_KIB = 32_000
# SQLite's steps from one look at the clock to the next: about 50 microseconds and 5 milliseconds.
# Each look needs the GIL, which a thread of the pool takes from the I/O thread.
IO_THREAD_STEPS = 1_000
POOL_STEPS = 100_000
# Before it shrinks the WAL, a write waits this long for reads of the slow pool to end, and then for
# others; see the deadlines in dispatch.py.
LONG_READ_TIMEOUT = 6  # seconds
SHORT_READ_TIMEOUT_MS = 2_500

logger = logging.getLogger(__name__)


class ThreadReader(threading.local):
    """The connection of the current thread, and whether the thread holds its lease."""

    connection: Connection | None = None
    is_leased = False


class OpenFile:
    """The connections to the file at the path: one for each thread that reads, one to write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # For messages: a name that is not Unicode can be printed too.
        self.name = path_text(self.path)
        self.deadline = Deadline()
        # As text, which the system takes sooner: it is looked at for every request.
        self._path = os.fspath(self.path)
        self._thread = ThreadReader()
        # Acquired in this order. No thread waits for one of them with its lease held.
        self._write_lock = threading.Lock()
        self._long_reads = ReadGate()
        self._open_lock = threading.Lock()
        self._keeper: Keeper | None = None
        self._writer: Connection | None = None
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        # How often all connections had to be opened anew, and how many were opened.
        self._generation = 0
        self._opened = 0
        # Bytes of the file when last looked at, and of the WAL above which it is shrunk.
        self._size = 0
        self._wal_limit = WAL_LIMIT

    def reader(self) -> Connection:
        """This thread's connection to read with; each statement sees the catalog as it is then."""
        thread = self._thread
        self.deadline.check()
        connection = thread.connection
        if connection is None:
            return self._open_reader()
        if not thread.is_leased:
            # The usual case without a call.
            if not connection.lease.acquire(blocking=False):
                self.deadline.acquire(connection.lease)
            thread.is_leased = True
        if self._is_at_path() and connection.generation == self._generation:
            return connection
        return self._open_reader()

    def release(self) -> None:
        """Let other threads close this thread's connection, until it calls reader() again."""
        thread = self._thread
        connection = thread.connection
        if connection and thread.is_leased:
            if connection.generation != self._generation:
                connection.close()
            thread.is_leased = False
            connection.lease.release()

    def close(self) -> None:
        """Close every connection, whichever thread opened it."""
        with self._write_lock, self._open_lock:
            self._close_all()
            self._thread = ThreadReader()

    def _status(self) -> os.stat_result | None:
        """The file at the path, if there is one that is not empty."""
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be looked at: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise DatabaseError(f"{self.name} is not a file.")
        return status if status.st_size else None

    def _is_at_path(self) -> bool:
        """Whether the open file is at the path; raises if there is none or it was cut off."""
        status = self._status()
        if status is None:
            raise DatabaseError(f"{self.name} does not exist. Create it with: flask init")
        # Another thread may set it.
        keeper = self._keeper
        if keeper is None or keeper.file != (status.st_dev, status.st_ino):
            return False
        if status.st_size < self._size:
            check_length(self.path, self.name)
        self._size = status.st_size
        return True

    def _open_reader(self) -> Connection:
        self.release()
        thread = self._thread
        with self.deadline.holding(self._open_lock):
            if not self.deadline.on_io_thread:
                self._open_file()
            elif not self._is_at_path():
                # To open a file can mean to wait for a lock, or to migrate it.
                raise WouldBlock
            if thread.connection:
                thread.connection.close()
            connection = self._connect()
            self._bound_reads(connection)
            connection.lease.acquire()
            thread.connection, thread.is_leased = connection, True
        return connection

    def _current_writer(self) -> Connection:
        """The connection to write with, to a file with its own WAL; called with the write lock."""
        connection = self._writer
        is_at_path = self._is_at_path()
        if not (connection and is_at_path and connection.generation == self._generation):
            connection = self._open_writer()
        size = self._keeper.wal_size() if self._keeper else None
        if size is None:
            self._rejoin_wal()
            connection = self._open_writer()
        elif size > self._wal_limit:
            self._shrink_wal(size)
        return connection

    def _open_writer(self) -> Connection:
        with self.deadline.holding(self._open_lock):
            self._open_file()
            if self._writer:
                self._writer.close()
            self._writer = connection = self._connect()
            connection.lease = self._write_lock
        return connection

    def _connect(self) -> Connection:
        """A further connection to the file that the keeper has open."""
        on_io_thread = self.deadline.on_io_thread
        try:
            connection = connect(self.path, "mode=rw", 0 if on_io_thread else BUSY_TIMEOUT_MS)
        except sqlite3.Error as error:
            if on_io_thread and is_busy(error):
                raise WouldBlock from error
            raise not_opened(self.path, self.name, error) from error
        connection.on_io_thread = on_io_thread
        self._opened += 1
        connection.number, connection.generation = self._opened, self._generation
        self._connections.add(connection)
        return connection

    def _bound_reads(self, connection: Connection) -> None:
        """Let the connection only read, and only until the deadline of its thread."""
        connection.execute("PRAGMA query_only = ON")
        steps = POOL_STEPS
        if connection.on_io_thread:
            connection.execute(f"PRAGMA cache_size = -{IO_THREAD_CACHE_KIB}")
            steps = IO_THREAD_STEPS
        connection.set_progress_handler(self.deadline.is_past, steps)
        connection.is_past_deadline = self.deadline.is_past

    def _open_file(self) -> None:
        """Have a keeper of the file at the path, whichever that is; called with the open lock."""
        if self._is_at_path():
            return
        if self._keeper:
            self._keeper.leave()
            self._keeper = None
            self._generation += 1
        self._close_outdated()
        self._keeper = Keeper(self.path, self.name)
        self._size, self._wal_limit = 0, WAL_LIMIT

    def _close_outdated(self) -> None:
        """Close what idle threads have open of earlier files, which else would stay on the disk."""
        for connection in self._connections:
            is_outdated = connection.generation != self._generation
            if is_outdated and connection.lease.acquire(blocking=False):
                connection.close()
                connection.lease.release()

    def _close_all(self) -> None:
        for connection in self._connections:
            connection.close()
        if self._keeper:
            self._keeper.connection.close()
        self._keeper = self._writer = None

    def _shrink_wal(self, size: int) -> None:
        """Begin the WAL anew, unless another process reads it for long; with the write lock."""
        with self._long_reads.closed(LONG_READ_TIMEOUT), self.deadline.holding(self._open_lock):
            try:
                is_empty = self._keeper is not None and truncate_wal(
                    self._keeper.connection, SHORT_READ_TIMEOUT_MS
                )
            except sqlite3.Error:
                is_empty = False
        self._wal_limit = WAL_LIMIT if is_empty else size + WAL_LIMIT

    def _rejoin_wal(self) -> None:
        """Save a WAL that was removed, and close all connections to it; with the write lock."""
        with self.deadline.holding(self._open_lock), self._alone():
            if self._keeper:
                self._keeper.save_wal()
            self._close_all()
            self._generation += 1
        logger.warning("%s-wal or -shm was removed while in use. Nothing is lost.", self.name)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within, no other thread uses its connection; with the open lock."""
        with ExitStack() as stack:
            own = self._thread.connection if self._thread.is_leased else None
            for connection in self._connections:
                if connection in (own, self._writer):
                    continue
                if not connection.lease.acquire(timeout=BUSY_TIMEOUT_MS / 1000):
                    raise DatabaseError(f"{self.name}-wal was removed, and is being read still.")
                stack.callback(connection.lease.release)
            yield
