"""One SQLite file: its connections, its schema version, and the one way to write to it."""

import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import quote

from catalog.atomic_files import replacing
from catalog.semver_ranges import satisfies

APPLICATION_ID = 0x57636174
SCHEMA_VERSION = 2
SCHEMA = Path(__file__).parent.parent / "schema.sql"
BUSY_TIMEOUT_MS = 5_000
STALLED_BUSY_TIMEOUT_MS = 50
SETTLED_NS = 20_000_000  # the clock of file systems ticks every 10 ms at the slowest
PATIENT_BUSY_TIMEOUT_MS = 60_000
STEPS_BETWEEN_LOOKS = 1000  # at the clock, of a thread in a hurry: some 50 microseconds

Statement = tuple[str, Mapping[str, object]]


class DatabaseError(Exception):
    """The file cannot be used; the message says why in one sentence."""


class TooSlow(BaseException):
    """A read of a thread that is in a hurry took too long; nothing on the way up may catch it."""


class Connection(sqlite3.Connection):
    """A connection that can be referred to weakly, and is closed when its thread ends."""

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        try:
            return super().execute(sql, values)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise TooSlow from error
            raise

    def __del__(self) -> None:
        self.close()


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
        self._log = self._beside("-wal")
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
            status = self._log.stat()
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
                    counts = _run(connection, statements, end)
            except sqlite3.OperationalError as error:
                if _is_busy(error):
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
                _run(connection, [*_schema_statements(), *statements], "COMMIT")
                connection.execute("PRAGMA journal_mode = WAL")
                self.remove_log()
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
            status = self.path.stat()
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
            self.remove_log()
        self._generation += 1

    def remove_log(self) -> None:
        """Remove the log of a file that is no longer there, before another takes its place."""
        for suffix in ("-wal", "-shm"):
            self._beside(suffix).unlink(missing_ok=True)

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _open(self) -> Connection:
        try:
            # Looked at first as a file that never changes, which leaves every byte of it and its
            # log where they are. create() makes sure that our mark is in the file itself.
            with closing(connect(self.path, "mode=ro&immutable=1")) as looking:
                self.check_header(looking)
            connection = connect(self.path, "mode=rw")
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")  # a backup comes without
            self.check_header(connection)
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.name} cannot be opened: {error}.") from error
        return connection

    def check_header(self, connection: sqlite3.Connection) -> None:
        """Raise DatabaseError unless what is open is a catalog that this release can read."""
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (schema_version,) = connection.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise DatabaseError(f"{self.name} is a SQLite file, but not one of a widget catalog.")
        if schema_version != SCHEMA_VERSION:
            raise DatabaseError(
                f"{self.name} has schema version {schema_version}, "
                f"and this release reads version {SCHEMA_VERSION}."
            )


def _inode(path: Path) -> Inode | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def connect(path: Path, parameters: str) -> Connection:
    """A connection to the file at the path, with the parameters of SQLite's URI."""
    connection = sqlite3.connect(
        f"file://{quote(os.fsencode(path.absolute()))}?{parameters}",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        factory=Connection,
        isolation_level=None,
        check_same_thread=False,  # close() is called from the thread that stops the server
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    # Popular counters are written again and again: moved to the file four times less often than
    # by default, most of those writes are spared it.
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.create_function("satisfies", 2, satisfies, deterministic=True)
    return connection


def _is_one(statements: Iterable[Statement]) -> TypeGuard[list[Statement]]:
    return isinstance(statements, list) and len(statements) == 1


def _begin(connection: sqlite3.Connection, on_wait: Callable[[], None] | None) -> None:
    if on_wait:
        connection.execute("PRAGMA busy_timeout = 1000")
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
        on_wait()
        connection.execute(f"PRAGMA busy_timeout = {PATIENT_BUSY_TIMEOUT_MS}")
    connection.execute("BEGIN IMMEDIATE")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _run(connection: sqlite3.Connection, statements: Iterable[Statement], end: str) -> list[int]:
    try:
        counts = [connection.execute(sql, values).rowcount for sql, values in statements]
        connection.execute(end)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return counts


def _schema_statements() -> Iterator[Statement]:
    statement = ""
    for line in SCHEMA.read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement, {}
            statement = ""
