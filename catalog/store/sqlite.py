"""How every connection to a catalog's file is opened, and what makes the file a catalog."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from catalog.atomic_files import replacing

APPLICATION_ID = 0x57636174
SCHEMA_VERSION = 3
SCHEMA = Path(__file__).parent.parent.parent / "schema.sql"
BUSY_TIMEOUT_MS = 5_000
# Bytes to which SQLite cuts the -wal file when it begins anew, and from which on a write makes it
# begin anew. Without long reads it stays at 16 MB; see wal_autocheckpoint below.
WAL_LIMIT = 32 * 1024 * 1024

# What SQLite says of a file that it can make nothing of, or that ends before its end.
DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_SHORT_READ}

# What an operator or time can mend, by SQLite's primary result codes.
FAULTS_OF_THE_FILE = {
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

Statement = tuple[str, Mapping[str, object]]
DataVersion = tuple[int, int]


class DatabaseError(Exception):
    """The file cannot be used; the message says why in one sentence."""


class DeadlineExceeded(BaseException):
    """The thread's deadline has passed; no handler of ordinary exceptions may catch this."""


class WouldBlock(DeadlineExceeded):
    """The I/O thread would have to wait for a lock, or for a file to be opened."""


P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Cursor)


def _in_time(read: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """The method of a cursor, raising DeadlineExceeded where SQLite was interrupted."""

    def bounded(cursor: C, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return read(cursor, *arguments, **keywords)
        except sqlite3.OperationalError as error:
            _raise_deadline_exceeded(cursor.connection, error)
            raise

    return bounded


def _raise_deadline_exceeded(connection: sqlite3.Connection, error: sqlite3.Error) -> None:
    """Raise DeadlineExceeded if that is what the error means."""
    if _code(error) == sqlite3.SQLITE_INTERRUPT:
        raise DeadlineExceeded from error
    if is_busy(error) and getattr(connection, "on_io_thread", False):
        raise WouldBlock from error


class Cursor(sqlite3.Cursor):
    """Rows, for as long as there is time: not only the first can take long to come."""

    execute = _in_time(sqlite3.Cursor.execute)
    fetchone = _in_time(sqlite3.Cursor.fetchone)
    fetchall = _in_time(sqlite3.Cursor.fetchall)

    def __next__(self) -> Any:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row


class Connection(sqlite3.Connection):
    """A connection that can be referred to weakly, and is closed when its thread ends."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        # Held while the connection is in use: any thread may close an idle one.
        self.lease = Lock()

    # Which of the files that have been at the path.
    generation = 0
    # Unique among the connections of a Database.
    number = 0
    on_io_thread = False
    is_past_deadline: Callable[[], bool] = staticmethod(lambda: False)

    def check_deadline(self) -> None:
        """Raise DeadlineExceeded once the thread's deadline has passed; for work in Python."""
        if self.is_past_deadline():
            raise DeadlineExceeded

    def data_version(self) -> DataVersion:
        """What stays equal as long as no other connection commits, of whichever process.

        It is never equal to that of another connection. To be read outside a transaction.
        """
        # Not by a Cursor, which takes a quarter longer.
        try:
            return self.number, super().execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.OperationalError as error:
            _raise_deadline_exceeded(self, error)
            raise

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        return super().cursor(Cursor).execute(sql, values)

    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # of one that was never opened
            self.close()


def connect(path: Path, parameters: str, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Connection:
    """A connection to the file at the path, with the parameters of SQLite's URI."""
    connection = sqlite3.connect(
        f"file://{quote(os.fsencode(path.absolute()))}?{parameters}",
        uri=True,
        timeout=busy_timeout_ms / 1000,
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
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
    return connection


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Within, every statement sees the same state of the catalog."""
    try:
        connection.execute("BEGIN")
        yield
    finally:
        # A thread in a hurry can be told so by BEGIN, after it has begun, and by a ROLLBACK that is
        # kept prepared; this one is prepared anew, and too short for that.
        connection.rollback()


def truncate_wal(connection: sqlite3.Connection, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> bool:
    """Move the WAL into the file and cut it to nothing; False where readers did not let it."""
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    try:
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return not busy


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the write lock."""
    return _code(error) & 0xFF == sqlite3.SQLITE_BUSY


def is_damage(error: BaseException | None) -> bool:
    """Whether the file is beyond reading."""
    return _code(error) in DAMAGE


def is_disk_full(error: sqlite3.Error) -> bool:
    """Whether the disc is full, or a limit or quota lets nothing more be written."""
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


def is_file_error(error: sqlite3.Error) -> bool:
    """Whether the file or its place is to blame, not the statement."""
    return _code(error) & 0xFF in FAULTS_OF_THE_FILE


def _code(error: BaseException | None) -> int:
    # Python's own complaints, as of a closed connection, have none.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)


def run(connection: sqlite3.Connection, statements: Iterable[Statement], end: str) -> list[int]:
    """Run the statements of a transaction and its end, all or none; the rows each changed."""
    try:
        counts = [connection.execute(sql, values).rowcount for sql, values in statements]
        connection.execute(end)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return counts


def schema_version(connection: sqlite3.Connection) -> int:
    """Which schema the file has that is open."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def look(path: Path, name: str) -> None:
    """Refuse what is not ours before it is opened, which could change it or its log.

    Database.create() makes sure that our mark is in the file itself.
    """
    try:
        _check_alone(path, name)
    except sqlite3.DatabaseError as error:
        # While its log is being moved into it, a file alone is in disorder.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise


def check_length(path: Path, name: str) -> None:
    """Refuse a file that was cut off while it was open: memory and its log would hide that.

    One that is shorter since a smaller catalog was restored says so itself.
    """
    try:
        _check_alone(path, name)
    except sqlite3.DatabaseError as error:
        raise DatabaseError(f"{name} has been cut off: {error}.") from error


def _check_alone(path: Path, name: str) -> None:
    with closing(connect(path, "mode=ro&immutable=1")) as looking:
        check_header(looking, name)


def check_header(connection: sqlite3.Connection, name: str) -> int:
    """The schema version of what is open; DatabaseError where this release cannot use it."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    version = schema_version(connection)
    if application_id != APPLICATION_ID:
        raise DatabaseError(f"{name} is a SQLite file, but not one of a widget catalog.")
    if not 1 <= version <= SCHEMA_VERSION:
        raise DatabaseError(
            f"{name} has schema version {version}, "
            f"and this release reads versions 1 to {SCHEMA_VERSION}."
        )
    return version


def missing_permission(path: Path) -> str | None:
    """What this user may not do and must, to write to the file; SQLite does not name it."""
    for each in (path, wal_path(path), shm_path(path)):
        if each.exists() and not os.access(each, os.R_OK | os.W_OK):
            return f"this user may not read and write {each.name}"
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        return "this user may not write to its directory, where its log belongs"
    return None


def schema_statements() -> Iterator[Statement]:
    """What makes an empty file a catalog."""
    statement = ""
    for line in SCHEMA.read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement, {}
            statement = ""


def copy(connection: sqlite3.Connection, target: Path) -> None:
    """Write what the connection sees to the target, checked, and whole or not at all."""
    with replacing(target) as new, closing(connect(new, "mode=rw")) as made:
        connection.backup(made)
        # One file, without a log beside it, that can be read where nothing may be written.
        made.execute("PRAGMA journal_mode = DELETE")
        check_integrity(made)
        # SQLite would take the log of what is replaced for the copy's own.
        remove_wal(Path(os.path.realpath(target)))


def check_integrity(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError where the file is damaged."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {' '.join(found.split())}")


def wal_path(path: Path) -> Path:
    """The write-ahead log of the file at the path."""
    return path.with_name(f"{path.name}-wal")


def shm_path(path: Path) -> Path:
    """Where the connections to the file at the path agree on what is in its log."""
    return path.with_name(f"{path.name}-shm")


def remove_wal(path: Path) -> None:
    """Remove the log of a file that is no longer there, before another takes its place."""
    wal_path(path).unlink(missing_ok=True)
    shm_path(path).unlink(missing_ok=True)
