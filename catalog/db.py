"""One SQLite file: its connections, its schema version, and the one way to write to it."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from catalog.atomic_files import replacing
from catalog.semver_ranges import satisfies

APPLICATION_ID = 0x57636174
SCHEMA_VERSION = 1
SCHEMA = Path(__file__).parent.parent / "schema.sql"
BUSY_TIMEOUT_MS = 5_000

Statement = tuple[str, Mapping[str, object]]


class DatabaseError(Exception):
    """The file cannot be used; the message says why in one sentence."""


class _Opened(NamedTuple):
    connection: sqlite3.Connection
    file: tuple[int, int]  # which file it was when it was opened: device and inode


class Database:
    """The catalog's file. Each thread reads through its own connection; all share one to write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # For messages: a name that is not Unicode can be printed too.
        self.name = os.fsencode(self.path).decode("utf-8", "backslashreplace")
        self._thread = threading.local()
        self._write_lock = threading.Lock()
        self._writer: _Opened | None = None
        self._all_opened: list[_Opened] = []

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection on which every statement sees the same state of the catalog."""
        reader = self._thread.reader = self._current(getattr(self._thread, "reader", None))
        reader.connection.execute("PRAGMA query_only = ON")
        reader.connection.execute("BEGIN")
        try:
            yield reader.connection
        finally:
            reader.connection.execute("ROLLBACK")

    def write(self, statements: Iterable[Statement]) -> list[int]:
        """Run the statements in one transaction, all or none; answers the rows each changed."""
        with self._write_lock:
            self._writer = self._current(self._writer)
            return _run(self._writer.connection, statements)

    def exists(self) -> bool:
        """Whether the file holds anything; a file of no bytes is a catalog not yet made."""
        return self._file() is not None

    def check(self) -> None:
        """Raise DatabaseError unless the file is a catalog that this release can serve."""
        with self.read():
            pass

    def create(self, statements: Iterable[Statement] = ()) -> None:
        """Make the catalog with what the statements put in it, or leave no catalog at all."""
        if self.exists():
            raise DatabaseError(f"{self.name} exists already.")
        try:
            with replacing(self.path) as new, closing(_connect(new, "mode=rw")) as connection:
                _run(connection, [*_schema_statements(), *statements])
                connection.execute("PRAGMA journal_mode = WAL")
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be created: {error.strerror}.") from error

    def close(self) -> None:
        """Close every connection, whichever thread opened it."""
        with self._write_lock:
            for opened in self._all_opened:
                opened.connection.close()
            self._all_opened.clear()
            self._writer = None
            self._thread = threading.local()

    def _file(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be looked at: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise DatabaseError(f"{self.name} is not a file.")
        return (status.st_dev, status.st_ino) if status.st_size else None

    def _current(self, opened: _Opened | None) -> _Opened:
        """The connection, opened anew where another file has come to the path."""
        file = self._file()
        if file is None:
            raise DatabaseError(f"{self.name} does not exist. Create it with: flask init")
        if opened and opened.file == file:
            return opened
        if opened:
            self._all_opened.remove(opened)
            opened.connection.close()
        opened = _Opened(self._open(), file)
        self._all_opened.append(opened)
        return opened

    def _open(self) -> sqlite3.Connection:
        try:
            # Looked at first as a file that never changes, which leaves every byte of it and its
            # log where they are. create() makes sure that our mark is in the file itself.
            with closing(_connect(self.path, "mode=ro&immutable=1")) as looking:
                self._check_header(looking)
            connection = _connect(self.path, "mode=rw")
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                connection.execute("PRAGMA journal_mode = WAL")  # a copy may have come without
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.name} cannot be opened: {error}.") from error
        return connection

    def _check_header(self, connection: sqlite3.Connection) -> None:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (schema_version,) = connection.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise DatabaseError(f"{self.name} is a SQLite file, but not one of a widget catalog.")
        if schema_version != SCHEMA_VERSION:
            raise DatabaseError(
                f"{self.name} has schema version {schema_version}, "
                f"and this release reads version {SCHEMA_VERSION}."
            )


def _connect(path: Path, parameters: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file://{quote(os.fsencode(path.absolute()))}?{parameters}",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,  # close() is called from the thread that stops the server
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.create_function("satisfies", 2, satisfies, deterministic=True)
    return connection


def _run(connection: sqlite3.Connection, statements: Iterable[Statement]) -> list[int]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        counts = [connection.execute(sql, values).rowcount for sql, values in statements]
        connection.execute("COMMIT")
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
