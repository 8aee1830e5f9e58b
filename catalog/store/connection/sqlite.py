"""Connections to SQLite: how they are opened, and what their errors mean."""

import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

BUSY_TIMEOUT_MS = 5_000
# A command waits a second, calls on_wait, and then waits this long.
COMMAND_BUSY_TIMEOUT_MS = 60_000
# A command's page cache. With SQLite's default of 2 MB, a large import reads and writes the
# same index pages again and again, and gets slower as the file grows.
COMMAND_CACHE_KIB = 64_000

# Primary result codes for a file with damaged content.
DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

# Primary result codes for errors caused by the file rather than by the statement.
FILE_ERROR_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}

# To bind None or a bool, sqlite3 searches for an adapter, which takes longer if none exists. In an
# import, a third of the values are None.
sqlite3.register_adapter(type(None), lambda value: value)
sqlite3.register_adapter(bool, int)

DAY = 86_400  # seconds

DataVersion = tuple[int, int, int]


def today() -> int:
    """Return the current UTC day as in the install_day table: the days since 1970-01-01."""
    return int(time.time() // DAY)


class DatabaseError(Exception):
    """The file cannot be used; the message says why in one sentence."""


class DatabaseGoneError(DatabaseError):
    """The opened file or its WAL is no longer at its path, so nothing more may be written."""


class ReplicaBehindError(DatabaseError):
    """The file is a copy, updated by another process, that lacks recent writes."""


class OutcomeUnknownError(DatabaseError):
    """The outcome of a write is unknown, so the write must not be sent again."""


class DeadlineExceeded(BaseException):
    """The thread's deadline has passed; a BaseException, so that no error handler catches it."""


class WouldBlock(DeadlineExceeded):
    """A thread that must not wait would have to wait for a lock, or for a file to be opened."""


class Connection(sqlite3.Connection):
    """A connection that knows its thread's deadline."""

    _numbers = itertools.count()

    on_io_thread = False
    # The rqlite node's file that this connection has open; see node_file.py.
    file: tuple[tuple[int, int], tuple[int, int] | None] | None = None
    # Raises DeadlineExceeded if the thread's deadline has passed; for long Python loops.
    check_deadline: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._number = next(self._numbers)
        # Counts that searches cache, each with its content revision; see search.py. All connections
        # to the same opened file share this dictionary.
        self.counts: dict[object, tuple[int, Any]] = {}

    def data_version(self) -> DataVersion:
        """Return a value that changes when another connection commits, in any process.

        The value also changes at midnight UTC, because responses about installs depend on the day.
        No two connections return equal values. Call this outside a transaction.
        """
        return self._number, fetch_one(self, "PRAGMA data_version")[0], today()

    def __del__(self) -> None:
        # Since Python 3.13, discarding an open connection causes a ResourceWarning. If a connection
        # failed to open, close() raises ProgrammingError.
        with suppress(sqlite3.ProgrammingError):
            self.close()


def fetch_all(connection: sqlite3.Connection, sql: str, values: Any = ()) -> list[Any]:
    """Run a statement and return its rows; raise DeadlineExceeded if the deadline interrupts it.

    On the I/O thread, raise WouldBlock if the file is locked. The statement is complete when this
    function returns, so it does not keep a snapshot of the file.
    """
    try:
        return connection.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if result_code(error) == sqlite3.SQLITE_INTERRUPT:
            raise DeadlineExceeded from error
        if is_busy(error) and getattr(connection, "on_io_thread", False):
            raise WouldBlock from error
        raise


def fetch_one(connection: sqlite3.Connection, sql: str, values: Any = ()) -> Any:
    """Run a statement and return its first row, or None; see fetch_all()."""
    rows = fetch_all(connection, sql, values)
    return rows[0] if rows else None


def database_uri(path: Path, parameters: str) -> str:
    """Return the URI of the database at the path, with SQLite's URI parameters."""
    return f"file://{quote(os.fsencode(path.absolute()))}?{parameters}"


def connect(path: Path, parameters: str, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Connection:
    """Open a connection to the file at the path, with SQLite's URI parameters."""
    connection = sqlite3.connect(
        database_uri(path, parameters),
        uri=True,
        timeout=busy_timeout_ms / 1000,
        factory=Connection,
        isolation_level=None,
        # The thread that stops the server closes every connection.
        check_same_thread=False,
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    # Installs update the same few pages again and again. A checkpoint at 4,000 pages (16 MB), four
    # times the default, writes each of them to the file less often.
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    # Long reads can make the WAL grow. SQLite truncates it to 32 MB at the first commit without a
    # concurrent read.
    connection.execute("PRAGMA journal_size_limit = 33554432")
    return connection


@contextmanager
def temporary_copy(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Yield a copy of the database in a temporary file."""
    with closing(sqlite3.connect("", uri=True, isolation_level=None)) as copy:
        copy.row_factory = sqlite3.Row
        connection.backup(copy)
        yield copy


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Make all statements in the block see the same snapshot of the catalog."""
    try:
        fetch_all(connection, "BEGIN")
        yield
    finally:
        # The deadline can interrupt BEGIN after the transaction has begun. It could also interrupt
        # a ROLLBACK statement, but not this method, which takes too few steps to reach the deadline
        # check.
        connection.rollback()


def begin_write(connection: sqlite3.Connection, on_wait: Callable[[], None] | None) -> None:
    """Begin a transaction that writes; call on_wait, if given, after waiting for a second."""
    if on_wait:
        connection.execute(f"PRAGMA cache_size = -{COMMAND_CACHE_KIB}")
        # Before changing pages, a statement saves them, by default in a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        set_busy_timeout(connection, 1000)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        on_wait()
        set_busy_timeout(connection, COMMAND_BUSY_TIMEOUT_MS)
    connection.execute("BEGIN IMMEDIATE")


def set_busy_timeout(connection: sqlite3.Connection, milliseconds: int) -> None:
    """Set how long the connection waits for another process to release its lock."""
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")


def check_integrity(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if the file is damaged."""
    (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {' '.join(result.split())}")


def is_busy(error: Exception) -> bool:
    """Return whether the error means that another connection holds the lock."""
    return result_code(error) & 0xFF == sqlite3.SQLITE_BUSY


def is_damage(error: BaseException | None) -> bool:
    """Return whether the error means that the file is damaged or truncated."""
    code = result_code(error)
    return code & 0xFF in DAMAGE_CODES or code == sqlite3.SQLITE_IOERR_SHORT_READ


def is_disk_full(error: Exception) -> bool:
    """Return whether a write failed because of a full disk, a file size limit or a quota."""
    return result_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


def is_file_error(error: sqlite3.Error) -> bool:
    """Return whether the file, rather than the statement, caused the error."""
    return result_code(error) & 0xFF in FILE_ERROR_CODES


def result_code(error: BaseException | None) -> int:
    """Return SQLite's result code for the error; SQLITE_ERROR if the error has none."""
    # Errors raised by Python's sqlite3 module itself, such as for invalid UTF-8, have no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
