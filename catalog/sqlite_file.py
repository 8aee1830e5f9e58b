"""How every connection to a catalog's file is opened, and what makes the file a catalog."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from catalog.atomic_files import replacing
from catalog.semver_ranges import satisfies

APPLICATION_ID = 0x57636174
SCHEMA_VERSION = 2
SCHEMA = Path(__file__).parent.parent / "schema.sql"
BUSY_TIMEOUT_MS = 5_000

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


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether another process holds the write lock."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


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
        remove_log(Path(os.path.realpath(target)))


def check_integrity(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError where the file is damaged."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {' '.join(found.split())}")


def log_of(path: Path) -> Path:
    """The write-ahead log of the file at the path."""
    return path.with_name(f"{path.name}-wal")


def remove_log(path: Path) -> None:
    """Remove the log of a file that is no longer there, before another takes its place."""
    log_of(path).unlink(missing_ok=True)
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
