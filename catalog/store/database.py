"""One SQLite file: its schema version, what reads may see of it, and the one way to write to it."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import TypeGuard

from catalog.atomic_files import replacing
from catalog.store.open_file import OpenFile
from catalog.store.sqlite import (
    BUSY_TIMEOUT_MS,
    Connection,
    DatabaseError,
    Statement,
    WouldBlock,
    connect,
    is_busy,
    is_disk_full,
    is_file_error,
    missing_permission,
    remove_wal,
    run,
    schema_statements,
    snapshot,
)

STALLED_BUSY_TIMEOUT_MS = 5  # each that waits in the queue has to wait for those before it too
PATIENT_BUSY_TIMEOUT_MS = 60_000


class Database(OpenFile):
    """The catalog's file. Each thread reads through its own connection; all share one to write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        # Whether another process holds the write lock.
        self._stalled = False
        # The last write, if it failed by a fault of the file.
        self._failed: list[Statement] = []
        # Called once where another process holds the write lock for over a second. A command that
        # sets it waits as long as a person at a terminal would; a web request does not.
        self.on_wait: Callable[[], None] | None = None

    def set_deadline(self, seconds: float, *, is_final: bool = False) -> None:
        """Make reads of this thread raise DeadlineExceeded once so many seconds have passed.

        At a final deadline the request ends with 503; at another it begins again in the pool.
        """
        self.deadline.set(seconds, is_final)

    def mark_io_thread(self) -> None:
        """Have this thread never wait: what would block raises WouldBlock, a DeadlineExceeded."""
        self.deadline.on_io_thread = True
        self.release()
        # Its connection was opened to wait.
        self._thread.connection = None

    def long_read(self, timeout: float) -> AbstractContextManager[bool]:
        """Within, a read may take long; False where a write waits for such reads to end."""
        return self._long_reads.reading(timeout)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection on which every statement sees the same state of the catalog."""
        connection = self.reader()
        with snapshot(connection):
            yield connection

    def write(self, statements: Iterable[Statement]) -> list[int]:
        """Run the statements in one transaction, all or none; answers the rows each changed."""
        try:
            counts = self._transact(statements, "COMMIT")
        except sqlite3.OperationalError as error:
            if not (is_disk_full(error) and isinstance(statements, list)):
                raise
            # On a full disk there still is the room that the WAL has, once it begins anew.
            self.reader().execute("PRAGMA wal_checkpoint")
            counts = self._transact(statements, "COMMIT")
        # Where no row was changed, nothing was written to the disk.
        if any(counts):
            self._failed = []
        return counts

    def dry_run(self, statements: Iterable[Statement]) -> list[int]:
        """What write() would answer, without keeping anything."""
        return self._transact(statements, "ROLLBACK")

    def _transact(self, statements: Iterable[Statement], end: str) -> list[int]:
        with self.deadline.holding(self._write_lock):
            connection = self._current_writer()
            try:
                if end == "COMMIT" and not self.on_wait and _is_one(statements):
                    # It is a transaction of its own; each further statement costs a GIL switch.
                    counts = [connection.execute(*statements[0]).rowcount]
                else:
                    _begin(connection, self.on_wait)
                    counts = run(connection, statements, end)
            except sqlite3.DatabaseError as error:
                if is_busy(error):
                    # The next write need not wait as long to learn the same.
                    self._wait_for_others(STALLED_BUSY_TIMEOUT_MS)
                elif is_file_error(error) and _is_one(statements):
                    self._failed = statements
                raise
            if self._stalled:
                self._wait_for_others(BUSY_TIMEOUT_MS)
            return counts

    def _wait_for_others(self, milliseconds: int) -> None:
        self._stalled = milliseconds < BUSY_TIMEOUT_MS
        if self._writer:
            self._writer.execute(f"PRAGMA busy_timeout = {milliseconds}")

    def exists(self) -> bool:
        """Whether the file holds anything; a file of no bytes is a catalog not yet made."""
        return self._status() is not None

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
        has_wal = self._keeper is None or self._keeper.wal_size() is not None
        if has_wal and not self._failed:
            return
        if self.deadline.on_io_thread:
            raise WouldBlock
        # A write that opens all connections anew must not wait for this thread's.
        self.release()
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
                remove_wal(self.path)
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be created: {error.strerror}.") from error

    def take_over(self, other: sqlite3.Connection) -> None:
        """Hold from now on what another database holds, in one step that every reader sees."""
        with self._write_lock:
            writer = self._current_writer()
            # backup() would wait without a word for another process that writes.
            _begin(writer, self.on_wait)
            writer.execute("ROLLBACK")
            other.backup(writer)
            # Then the file alone is whole, as its length is compared with. It is taken over even if
            # that fails.
            with suppress(sqlite3.Error):
                writer.execute("PRAGMA wal_checkpoint(FULL)")


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
