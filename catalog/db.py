"""One SQLite file: its connections, its schema version, and the one way to write to it."""

import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeGuard

from catalog.atomic_files import replacing
from catalog.sqlite_file import (
    APPLICATION_ID,
    BUSY_TIMEOUT_MS,
    SCHEMA_VERSION,
    Connection,
    DatabaseError,
    Statement,
    connect,
    is_busy,
    log_of,
    remove_log,
    run,
    schema_statements,
    schema_version,
)
from catalog.upgrades import upgrade

STALLED_BUSY_TIMEOUT_MS = 50
SETTLED_NS = 20_000_000  # the clock of file systems ticks every 10 ms at the slowest
PATIENT_BUSY_TIMEOUT_MS = 60_000
HURRIED_CACHE_KIB = 32_000  # a sixth of the time of a new search is asking the system for pages
STEPS_BETWEEN_LOOKS = 1000  # at the clock, of a thread in a hurry: some 50 microseconds

Inode = tuple[int, int]  # device and number: which file it is, whatever its name


class _Opened(NamedTuple):
    connection: Connection
    file: Inode
    log: Inode | None
    generation: int


class Database:
    """The catalog's file. Each thread reads through its own connection; all share one to write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # For messages: a name that is not Unicode can be printed too.
        self.name = os.fsencode(self.path).decode("utf-8", "backslashreplace")
        # As text, which the system takes sooner; both are looked at for every answer.
        self._path, self._log = os.fspath(self.path), os.fspath(log_of(self.path))
        self._thread = threading.local()
        self._write_lock = threading.Lock()
        self._open_lock = threading.Lock()
        self._generation = 0  # how often another file has come to the path
        self._writer: _Opened | None = None
        self._stalled = False  # since another process holds the write lock
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        # Called once where another process holds the write lock for over a second. Whoever sets
        # it has the patience of a person at a terminal; a web request has not.
        self.on_wait: Callable[[], None] | None = None

    def reader(self) -> sqlite3.Connection:
        """This thread's connection to read with; each statement sees the catalog as it is then."""
        reader = self._thread.reader = self._current(getattr(self._thread, "reader", None), "ON")
        return reader.connection

    def hurry(self, seconds: float) -> None:
        """Have any read of this thread that goes on for longer from now raise TooSlow."""
        self._thread.deadline = time.monotonic() + seconds

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection on which every statement sees the same state of the catalog."""
        connection = self.reader()
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")

    @property
    def generation(self) -> int:
        """Which of the files that have been at the path this thread reads; see _leave()."""
        generation: int = self._thread.reader.generation
        return generation

    def state(self) -> object | None:
        """What stays equal for as long as nothing is committed, by whichever process.

        None just after a commit, while another could leave the same trace: a log that SQLite
        begins anew keeps its size, and time stands still for some milliseconds in a file system.
        """
        self.reader()
        try:
            status = os.stat(self._log)
        except OSError:
            return None
        moment = status.st_mtime_ns
        if time.time_ns() - moment < SETTLED_NS or moment % 1_000_000_000 == 0:
            return None
        return self.generation, status.st_ino, moment, status.st_size

    def write(self, statements: Iterable[Statement]) -> list[int]:
        """Run the statements in one transaction, all or none; answers the rows each changed."""
        return self._transact(statements, "COMMIT")

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
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    # Whoever comes next need not wait as long to learn the same.
                    self._wait_for_others(STALLED_BUSY_TIMEOUT_MS)
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

    def close(self) -> None:
        """Close every connection, whichever thread opened it."""
        with self._write_lock:
            for connection in list(self._connections):
                connection.close()
            self._writer = None
            self._thread = threading.local()

    def _file(self) -> Inode | None:
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be looked at: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise DatabaseError(f"{self.name} is not a file.")
        return (status.st_dev, status.st_ino) if status.st_size else None

    def _current(self, opened: _Opened | None, query_only: str) -> _Opened:
        """The connection, opened anew where another file has come to the path."""
        file = self._file()
        if file is None:
            raise DatabaseError(f"{self.name} does not exist. Create it with: flask init")
        if opened and (opened.file, opened.generation) == (file, self._generation):
            return opened
        with self._open_lock:
            if opened:
                if opened.generation == self._generation:
                    self._leave(opened)
                opened.connection.close()
            connection = self._open()
            connection.execute(f"PRAGMA query_only = {query_only}")
            if hasattr(self._thread, "deadline"):
                connection.set_progress_handler(self._is_late, STEPS_BETWEEN_LOOKS)
                connection.execute(f"PRAGMA cache_size = -{HURRIED_CACHE_KIB}")
            self._connections.add(connection)
            return _Opened(connection, file, _inode(self._log), self._generation)

    def _is_late(self) -> bool:
        late: bool = time.monotonic() > self._thread.deadline
        return late

    def _leave(self, opened: _Opened) -> None:
        """Take leave of a file that is no longer at the path, with all that was written to it.

        Its log must not stay: SQLite would take it for the log of the file that is there now.
        """
        busy, *_ = opened.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:  # another thread reads the old file still; its log is needed until it has ended
            raise DatabaseError(f"{self.name} is being replaced.")
        if opened.log == _inode(self._log):
            remove_log(self.path)
        self._generation += 1

    def _open(self) -> Connection:
        try:
            self._look()
            connection = connect(self.path, "mode=rw")
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")  # a backup comes without
            if self.check_header(connection) < SCHEMA_VERSION:
                upgrade(connection, self.path)
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.name} cannot be opened: {error}.") from error
        return connection

    def _look(self) -> None:
        """Refuse what is not ours before it is opened, which could change it or its log.

        create() makes sure that our mark is in the file itself.
        """
        try:
            with closing(connect(self.path, "mode=ro&immutable=1")) as looking:
                self.check_header(looking)
        except sqlite3.DatabaseError as error:
            # While its log is being moved into it, a file alone is in disorder.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise

    def check_header(self, connection: sqlite3.Connection) -> int:
        """The schema version of what is open; DatabaseError where this release cannot use it."""
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        version = schema_version(connection)
        if application_id != APPLICATION_ID:
            raise DatabaseError(f"{self.name} is a SQLite file, but not one of a widget catalog.")
        if not 1 <= version <= SCHEMA_VERSION:
            raise DatabaseError(
                f"{self.name} has schema version {version}, "
                f"and this release reads versions 1 to {SCHEMA_VERSION}."
            )
        return version


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
