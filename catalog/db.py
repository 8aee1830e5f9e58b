"""One SQLite file: its connections, its schema version, and the one way to write to it."""

import math
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeGuard

from catalog.atomic_files import replacing
from catalog.sqlite_file import (
    BUSY_TIMEOUT_MS,
    SCHEMA_VERSION,
    Connection,
    DatabaseError,
    DeadlineExceeded,
    Statement,
    check_header,
    check_length,
    connect,
    is_busy,
    is_damage,
    is_fault_of_the_file,
    is_want_of_room,
    log_of,
    look,
    missing_permission,
    remove_log,
    run,
    schema_statements,
    shared_memory_of,
    snapshot,
)
from catalog.upgrades import upgrade

STALLED_BUSY_TIMEOUT_MS = 5  # each that waits in the queue has to wait for those before it too
INDEX_HEAD = 48  # bytes of SQLite's WalIndexHdr, which no two commits leave equal
PATIENT_BUSY_TIMEOUT_MS = 60_000
HURRIED_CACHE_KIB = 32_000  # a sixth of the time of a new search is asking the system for pages
STEPS_BETWEEN_LOOKS = 1000  # at the clock, of a thread in a hurry: some 50 microseconds

Inode = tuple[int, int]  # device and number: which file it is, whatever its name


class _Opened(NamedTuple):
    connection: Connection
    file: Inode
    size: int  # of the file, the last time that it was looked at
    log: Inode | None


class Database:
    """The catalog's file. Each thread reads through its own connection; all share one to write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # For messages: a name that is not Unicode can be printed too.
        self.name = os.fsencode(self.path).decode("utf-8", "backslashreplace")
        # As text, which the system takes sooner; both are looked at for every answer.
        self._path, self._log = os.fspath(self.path), os.fspath(log_of(self.path))
        # Of the index of the log; the last is in use. To close one would let go of every lock that
        # SQLite has on the same file, as POSIX wants it: they stay open until close().
        self._indexes: list[int] = []
        self._new_indexes = 0  # how often one was opened: all begin alike
        self._thread = threading.local()
        self._write_lock = threading.Lock()
        self._open_lock = threading.Lock()
        self._generation = 0  # how often another file has come to the path
        self._writer: _Opened | None = None
        self._last: _Opened | None = None
        self._stalled = False  # since another process holds the write lock
        self._failed: list[Statement] = []  # the last write, if by a fault of the file
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        # Called once where another process holds the write lock for over a second. Whoever sets
        # it has the patience of a person at a terminal; a web request has not.
        self.on_wait: Callable[[], None] | None = None

    def reader(self) -> Connection:
        """This thread's connection to read with; each statement sees the catalog as it is then."""
        reader = self._thread.reader = self._current(getattr(self._thread, "reader", None), "ON")
        return reader.connection

    def set_deadline(self, seconds: float) -> None:
        """Make reads of this thread raise DeadlineExceeded once so many seconds have passed."""
        self._thread.deadline = time.monotonic() + seconds

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection on which every statement sees the same state of the catalog."""
        connection = self.reader()
        with snapshot(connection):
            yield connection

    @property
    def generation(self) -> int:
        """Which of the files that have been at the path this thread reads; see _leave()."""
        generation: int = self._thread.reader.connection.generation
        return generation

    def state(self) -> object | None:
        """What stays equal for as long as nothing is committed, by whichever process.

        It is the head of the index that SQLite keeps of its log, by which every reader sees what
        is committed. The log itself would tell too soon: a commit is in it before it is on the
        disc, and is seen only after. None where there is no telling. To be asked right after
        reader(), which sees whether the file is still the same.
        """
        try:
            if not self._indexes or not os.fstat(self._indexes[-1]).st_nlink:
                self._open_index()
            head = os.pread(self._indexes[-1], INDEX_HEAD, 0)
        except OSError:
            return None
        is_whole = len(head) == INDEX_HEAD
        return (self.generation, self._new_indexes, head) if is_whole else None

    def _open_index(self) -> None:
        """Look at the index that is at its path now: SQLite makes a new one where the last went."""
        with self._open_lock:
            index = os.open(shared_memory_of(self.path), os.O_RDONLY | os.O_CLOEXEC)
            self._indexes.append(index)
            self._new_indexes += 1

    def write(self, statements: Iterable[Statement]) -> list[int]:
        """Run the statements in one transaction, all or none; answers the rows each changed."""
        try:
            counts = self._transact(statements, "COMMIT")
        except sqlite3.OperationalError as error:
            if not (is_want_of_room(error) and isinstance(statements, list)):
                raise
            # On a full disc there still is the room that the log has, once it begins anew.
            self.reader().execute("PRAGMA wal_checkpoint")
            counts = self._transact(statements, "COMMIT")
        if any(counts):  # else nothing came to the disc
            self._failed = []
        return counts

    def rehearse(self, statements: Iterable[Statement]) -> list[int]:
        """What write() would answer, without keeping anything."""
        return self._transact(statements, "ROLLBACK")

    def _transact(self, statements: Iterable[Statement], end: str) -> list[int]:
        with self._write_lock:
            self._writer = self._current(self._writer, "OFF")
            connection = self._writer.connection
            try:
                if end == "COMMIT" and not self.on_wait and _is_one(statements):
                    # It is a transaction of its own; a statement more would cost a request one
                    # more turn at the interpreter's lock.
                    counts = [connection.execute(*statements[0]).rowcount]
                else:
                    _begin(connection, self.on_wait)
                    counts = run(connection, statements, end)
            except sqlite3.DatabaseError as error:
                if is_busy(error):
                    # Whoever comes next need not wait as long to learn the same.
                    self._wait_for_others(STALLED_BUSY_TIMEOUT_MS)
                elif is_fault_of_the_file(error) and _is_one(statements):
                    self._failed = statements
                raise
            if self._stalled:
                self._wait_for_others(BUSY_TIMEOUT_MS)
            return counts

    def _wait_for_others(self, milliseconds: int) -> None:
        self._stalled = milliseconds < BUSY_TIMEOUT_MS
        if self._writer:
            self._writer.connection.execute(f"PRAGMA busy_timeout = {milliseconds}")

    def exists(self) -> bool:
        """Whether the file holds anything; a file of no bytes is a catalog not yet made."""
        return self._file() is not None

    def check(self) -> None:
        """Raise DatabaseError unless the file is a catalog that this release can serve."""
        self.reader()

    def check_permissions(self) -> None:
        """Raise DatabaseError where there is a file that this user may not write to."""
        if self.exists() and (lacking := missing_permission(self.path)):
            raise DatabaseError(f"{self.name} cannot be written: {lacking}.")

    def check_writes(self) -> None:
        """Raise where the last write failed by a fault of the file, and would fail again.

        It is tried: what is taken back before the commit changes nothing, but is written. Less
        would not do, since there may be room for a part of it.
        """
        if not self._failed:
            return
        if hasattr(self._thread, "deadline"):
            raise DeadlineExceeded  # a write may wait, and a thread in a hurry may not
        self.write([("SAVEPOINT again", {}), *self._failed, ("ROLLBACK TO again", {})])

    def create(self, statements: Iterable[Statement] = ()) -> None:
        """Make the catalog with what the statements put in it, or leave no catalog at all."""
        if self.exists():
            raise DatabaseError(f"{self.name} exists already.")
        try:
            with replacing(self.path) as new, closing(connect(new, "mode=rw")) as connection:
                connection.execute("BEGIN")
                run(connection, [*schema_statements(), *statements], "COMMIT")
                connection.execute("PRAGMA journal_mode = WAL")
                remove_log(self.path)
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be created: {error.strerror}.") from error

    def take_over(self, other: sqlite3.Connection) -> None:
        """Hold from now on what another database holds, in one step that every reader sees."""
        with self._write_lock:
            self._writer = self._current(self._writer, "OFF")
            _begin(self._writer.connection, self.on_wait)  # the next line would wait in silence
            self._writer.connection.execute("ROLLBACK")
            other.backup(self._writer.connection)
            # So that the file alone is whole, as whoever saw it cut off wants to see. It is taken
            # over in any case.
            with suppress(sqlite3.Error):
                self._writer.connection.execute("PRAGMA wal_checkpoint(FULL)")

    def close(self) -> None:
        """Close every connection, whichever thread opened it."""
        with self._write_lock:
            for connection in list(self._connections):
                connection.close()
            while self._indexes:
                os.close(self._indexes.pop())
            self._writer = self._last = None
            self._thread = threading.local()

    def _file(self) -> os.stat_result | None:
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be looked at: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise DatabaseError(f"{self.name} is not a file.")
        return status if status.st_size else None

    def _current(self, opened: _Opened | None, query_only: str) -> _Opened:
        """The connection, opened anew where another file has come to the path."""
        status = self._file()
        if status is None:
            raise DatabaseError(f"{self.name} does not exist. Create it with: flask init")
        file, size = (status.st_dev, status.st_ino), status.st_size
        is_current = opened and opened.connection.generation == self._generation
        if opened and is_current and opened.file == file:
            if size < opened.size:
                check_length(self.path, self.name)
            return opened if size == opened.size else opened._replace(size=size)
        with self._open_lock:
            # A thread that opens its first connection has to see too that the file is another.
            last = opened if is_current else self._last
            if last and last.file != file and last.connection.generation == self._generation:
                self._leave(last)
            if opened:
                opened.connection.close()
            connection = self._open()
            connection.execute(f"PRAGMA query_only = {query_only}")
            if hasattr(self._thread, "deadline"):
                connection.is_hurried = True
                connection.is_past_deadline = self._is_past_deadline
                connection.set_progress_handler(self._is_past_deadline, STEPS_BETWEEN_LOOKS)
                connection.execute(f"PRAGMA cache_size = -{HURRIED_CACHE_KIB}")
            connection.generation = self._generation
            self._connections.add(connection)
            self._last = _Opened(connection, file, size, _inode(self._log))
            return self._last

    def _is_past_deadline(self) -> bool:
        # A connection may be used by a thread that has no deadline.
        deadline = getattr(self._thread, "deadline", math.inf)
        return time.monotonic() > deadline

    def _leave(self, opened: _Opened) -> None:
        """Take leave of a file that is no longer at the path, with all that was written to it.

        Its log must not stay: SQLite would take it for the log of the file that is there now.
        """
        try:
            busy, *_ = opened.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):  # else there is nothing left to save
                raise
        else:
            if busy:  # another thread reads the old file; its log is needed until it has ended
                raise DatabaseError(f"{self.name} is being replaced.")
        if opened.log == _inode(self._log):
            remove_log(self.path)
        self._generation += 1

    def _open(self) -> Connection:
        try:
            look(self.path, self.name)
            connection = connect(self.path, "mode=rw")
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")  # a backup comes without
            if check_header(connection, self.name) < SCHEMA_VERSION:
                upgrade(connection, self.path)
        except sqlite3.Error as error:
            reason = missing_permission(self.path) or error
            raise DatabaseError(f"{self.name} cannot be opened: {reason}.") from error
        return connection


def _inode(path: str) -> Inode | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _is_one(statements: Iterable[Statement]) -> TypeGuard[list[Statement]]:
    return isinstance(statements, list) and len(statements) == 1


def _begin(connection: sqlite3.Connection, on_wait: Callable[[], None] | None) -> None:
    if on_wait:
        connection.execute("PRAGMA busy_timeout = 1000")
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        on_wait()
        connection.execute(f"PRAGMA busy_timeout = {PATIENT_BUSY_TIMEOUT_MS}")
    connection.execute("BEGIN IMMEDIATE")
