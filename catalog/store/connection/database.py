"""The catalog's database: one SQLite file that many threads read and one at a time writes.

- `pool`: a connection for each thread that reads, and one that writes.
- `database_file`: the opened file with its WAL, and whether both are still in place.
- `deadlines`: how long the current thread may read or wait.
- `faults`: errors of requests that last until a restart.
- `sqlite`, `wal`, `schema`: connections, WAL files and schema versions of SQLite in general.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TypeGuard

from catalog.atomic_files import atomic_replace
from catalog.store.connection.database_file import missing_permission
from catalog.store.connection.deadlines import Deadline
from catalog.store.connection.faults import Faults
from catalog.store.connection.pool import ConnectionPool
from catalog.store.connection.sqlite import (
    BUSY_TIMEOUT_MS,
    Connection,
    DatabaseError,
    DatabaseGoneError,
    Statement,
    WouldBlock,
    connect,
    execute_all,
    is_busy,
    is_disk_full,
    is_file_error,
    snapshot,
)
from catalog.store.connection.wal import WAL_LIMIT, remove_wal
from catalog.store.connection.write_counts import WriteCounts
from catalog.store.schema.schema import SET_SUPPORTS, schema_statements
from catalog.text import path_text

# While another process holds the write lock, queued writes wait one after another: keep it short.
STALLED_BUSY_TIMEOUT_MS = 5
# A command waits a second before it calls on_wait, and then this long.
COMMAND_BUSY_TIMEOUT_MS = 60_000
# The page cache of a command. With SQLite's default of 2 MB, a large import writes and reads the
# same pages of its indexes again and again, and takes longer for each widget as the file grows.
COMMAND_CACHE_KIB = 128_000

# It changes nothing, but is written.
WRITE_ONE_PAGE: Statement = ("UPDATE revision SET id = id", {})


class Database:
    """The catalog's database file. All methods may be called by any thread.

    Reading:    reader(), read()
    Deadlines:  set_deadline(), deadline, mark_io_thread()
    Writing:    write(), dry_run(), on_wait, write_counts
    Checks:     exists(), check(), check_start(), check_in_place(), check_writes(), is_writable(),
                faults
    The file:   path, real_path, name, scratch_parent, create(), migrate(), replace_content(),
                close()

    A write is a list of statements that do not depend on each other's results, so it could also be
    sent to another process. Nothing outside this class needs the connection that writes.
    """

    pool_class: type[ConnectionPool] = ConnectionPool
    # Whether other processes write the file, on several machines; see cluster.py.
    is_cluster = False
    # Threads that can write at the same time.
    writer_threads = 1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        wal_limit: int = WAL_LIMIT,
        program: str = "flask",
    ) -> None:
        self.path = Path(path)
        # The path for messages, printable even if it is not Unicode.
        self.name = path_text(self.path)
        # The deadline of the current thread.
        self.deadline = Deadline()
        # Called once when a write has waited a second for another process. A command sets it, and
        # then waits for up to a minute; a request does not.
        self.on_wait: Callable[[], None] | None = None
        self.write_counts = WriteCounts()
        self.faults = Faults(program)
        self._busy_timeout_ms = busy_timeout_ms
        self._connections = self.pool_class(
            self.path, self.deadline, busy_timeout_ms, wal_limit, program
        )
        # Whether the last write found the file locked by another process.
        self._is_stalled = False
        # The last install, if the state of the file made it fail; check_writes() retries it.
        self._failed_write: list[Statement] = []

    def reader(self) -> Connection:
        """Return this thread's connection for reading; each statement sees the latest commit."""
        return self._connections.reader()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection on which every statement sees the same snapshot of the catalog."""
        connection = self.reader()
        with snapshot(connection):
            yield connection

    def set_deadline(self, seconds: float, *, is_final: bool = False) -> None:
        """Make reads of this thread raise DeadlineExceeded after this many seconds.

        At a final deadline the request fails with 503; otherwise it starts again in a pool.
        """
        self.deadline.set(seconds, is_final)

    def mark_io_thread(self) -> None:
        """Make this thread the I/O thread: instead of waiting, its reads raise WouldBlock."""
        self._connections.mark_io_thread()

    def write(self, statements: Iterable[Statement]) -> list[int]:
        """Run the statements in one transaction, all or none; return the rows each changed."""
        with self.write_counts.count():
            return self._commit(statements)

    def _commit(self, statements: Iterable[Statement]) -> list[int]:
        try:
            counts = self._transact(statements, "COMMIT")
        except sqlite3.OperationalError as error:
            if not (is_disk_full(error) and isinstance(statements, list)):
                raise
            # A list can be run again. After a checkpoint it can reuse the space of the WAL.
            self.reader().execute("PRAGMA wal_checkpoint")
            counts = self._transact(statements, "COMMIT")
        # A write that changed no row did not use the disk. SAVEPOINT has the count -1.
        if any(count > 0 for count in counts):
            self._failed_write = []
        return counts

    def dry_run(self, statements: Iterable[Statement]) -> list[int]:
        """Return what write() would return, and change nothing."""
        return self._transact(statements, "ROLLBACK")

    def _transact(self, statements: Iterable[Statement], end: str) -> list[int]:
        with self._connections.writer() as connection:
            try:
                if end == "COMMIT" and not self.on_wait and is_single(statements):
                    # It commits by itself. BEGIN and COMMIT would cost two GIL switches each.
                    counts = [connection.execute(*statements[0]).rowcount]
                else:
                    begin_write(connection, self.on_wait)
                    *counts, _ = execute_all(connection, chain(statements, [SET_SUPPORTS]), end)
            except sqlite3.DatabaseError as error:
                if is_busy(error):
                    self._is_stalled = True
                    set_busy_timeout(connection, STALLED_BUSY_TIMEOUT_MS)
                elif is_file_error(error) and is_single(statements):
                    self._failed_write = statements
                raise
            if self._is_stalled:
                self._is_stalled = False
                set_busy_timeout(connection, self._busy_timeout_ms)
            return counts

    def exists(self) -> bool:
        """Return whether there is a file that is not empty."""
        return self.status() is not None

    def status(self) -> os.stat_result | None:
        """Return the status of the file; None if there is none, or if it is empty."""
        return self._connections.status()

    def check(self) -> None:
        """Raise DatabaseError unless the file is a catalog that this release can serve."""
        self.reader()

    def check_start(self) -> None:
        """Raise DatabaseError unless the file is a catalog that this user may write to."""
        if self.exists() and (permission := missing_permission(self.real_path)):
            raise DatabaseError(f"{self.name} cannot be written: {permission}.")
        self.migrate()

    def check_in_place(self) -> None:
        """Raise DatabaseGoneError if the file or its WAL was removed, replaced or truncated."""
        self._connections.check_in_place()

    def is_writable(self) -> bool:
        """Return whether the file is in place and did not make the last install fail."""
        try:
            self.check_in_place()
        except DatabaseGoneError:
            return False
        return not self._failed_write

    def check_writes(self) -> None:
        """Raise if the last install failed because of the file, and would fail again.

        The same statement is written again and rolled back: on a full disk, there may be space for
        a smaller one. If its widget is gone, one page is written.
        """
        self.check_in_place()
        if not self._failed_write:
            return
        if self.deadline.on_io_thread:
            raise WouldBlock
        retry = [*self._failed_write, WRITE_ONE_PAGE]
        self.write([("SAVEPOINT retry", {}), *retry, ("ROLLBACK TO retry", {})])

    def create(self, statements: Iterable[Statement] = ()) -> None:
        """Create the catalog with the content that the statements add, or no file at all."""
        if self.exists():
            raise DatabaseError(f"{self.name} exists already.")
        try:
            with atomic_replace(self.path) as new, closing(connect(new, "mode=rw")) as connection:
                connection.execute("BEGIN")
                added = [*schema_statements(), *statements, SET_SUPPORTS]
                execute_all(connection, added, "COMMIT")
                connection.execute("PRAGMA journal_mode = WAL")
                remove_wal(self.real_path)
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be created: {error.strerror}.") from error

    @property
    def scratch_parent(self) -> Path:
        """The directory for temporary files as large as the catalog."""
        return self.real_path.parent

    @property
    def real_path(self) -> Path:
        """The path of the file itself, which SQLite appends -wal to, if the path is a link."""
        return Path(os.path.realpath(self.path))

    def migrate(self) -> None:
        """Migrate the file to the schema of this release, and leave a copy of it beside it."""
        self._connections.open(migrate=True)

    def replace_content(self, source: sqlite3.Connection) -> None:
        """Replace the whole content by that of another database, in one transaction."""
        with self._connections.writer() as connection:
            # Without this, backup() would wait for another process without calling on_wait.
            begin_write(connection, self.on_wait)
            connection.execute("ROLLBACK")
            source.backup(connection)
            # The file may have become shorter, and a shorter file is checked without its WAL. The
            # content is replaced even if the checkpoint fails.
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(FULL)")

    def close(self) -> None:
        """Close the connections of all threads; the next use opens new ones."""
        self._connections.close()


def is_single(statements: Iterable[Statement]) -> TypeGuard[list[Statement]]:
    """Return whether there is one statement, which is the case for an install."""
    return isinstance(statements, list) and len(statements) == 1


def begin_write(connection: sqlite3.Connection, on_wait: Callable[[], None] | None) -> None:
    """Begin a transaction that writes; with on_wait, call it if that takes over a second."""
    if on_wait:
        connection.execute(f"PRAGMA cache_size = -{COMMAND_CACHE_KIB}")
        # Every statement saves the pages that it changes, in a temporary file unless in memory.
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
    """Set how long the connection waits for a lock of another process."""
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
