"""The catalog's database: one SQLite file that many threads read and one at a time writes."""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ..schema.migrations import set_new_revision
from .lifecycle import replace_content
from .readers import Readers
from .sqlite import (
    BUSY_TIMEOUT_MS,
    Connection,
    DatabaseGoneError,
    WouldBlock,
    begin_write,
    fetch_all,
    is_busy,
    is_damage,
    is_disk_full,
    is_file_error,
    set_busy_timeout,
)
from .transaction import Actor, Transaction, Values
from .write_counts import WriteCounts

# While another process holds the write lock, queued writes wait one after another. So each waits
# for the rest of the busy timeout since it arrived, and at least this long.
STALLED_BUSY_TIMEOUT_MS = 5

T = TypeVar("T")

# A no-op write that tells whether the file is writable.
WRITE_ONE_PAGE = "UPDATE revision SET id = id"

logger = logging.getLogger(__name__)


class Database(Readers):
    """The catalog's database: many threads read it and one at a time writes.

    All methods may be called by any thread.
    """

    # Whether other processes write the file, on several machines; see cluster.py.
    is_cluster = False
    # Threads that can write at the same time.
    writer_threads = 1

    def __init__(
        self, path: str | os.PathLike[str], *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> None:
        super().__init__(path, busy_timeout_ms=busy_timeout_ms)
        # Called once when a write has waited a second for another process. A command sets it, and
        # then waits for up to a minute; a request does not.
        self.on_wait: Callable[[], None] | None = None
        self.write_counts = WriteCounts()
        # Whether a request has read a damaged part of the file. Others may still succeed.
        self.is_damaged = False
        # Whether the last write found the file locked by another process.
        self._is_stalled = False
        # Whether the state of the file made the last call of execute() fail, which counts installs.
        self._has_failed = False

    def transact(
        self,
        function: Callable[[Transaction], T],
        actor: Actor | None = None,
        *,
        dry_run: bool = False,
    ) -> T:
        """Run the function in one transaction, all of it or nothing, and return its result.

        The function reads, decides, writes and records. It may run again, so it has no other
        effects. A dry run ends with a rollback.
        """

        def run() -> T:
            with self._writing() as connection:
                begin_write(connection, self.on_wait)
                transaction = Transaction(connection, actor)
                result = function(transaction)
                transaction.finish()
                connection.execute("ROLLBACK" if dry_run else "COMMIT")
            return result

        return self._retry_if_full(run)

    def execute(self, sql: str, values: Values) -> int:
        """Run one statement that writes and commits; return the number of rows that it changed."""

        def run() -> int:
            with self._writing() as connection:
                # A single statement commits by itself. BEGIN and COMMIT would cost two GIL switches
                # each.
                return connection.execute(sql, values).rowcount

        try:
            count = self._retry_if_full(run)
        except sqlite3.DatabaseError as error:
            if is_file_error(error) and not is_busy(error):
                self._has_failed = True
            raise
        if count:
            # A statement that changes no row does not use the disk.
            self._has_failed = False
        return count

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Yield the writer connection with its lock held; roll back after an error."""
        with self.write_counts.count(), self.deadline.holding(self._write_lock):
            writer = self._open_writer()
            self.check_in_place()
            if self._is_stalled:
                waited = round((time.monotonic() - self.deadline.arrived_at) * 1000)
                left = max(self._busy_timeout_ms - waited, STALLED_BUSY_TIMEOUT_MS)
                set_busy_timeout(writer, left)
            try:
                yield writer
            except BaseException as error:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError) and is_busy(error):
                    self._is_stalled = True
                raise
            if self._is_stalled:
                self._is_stalled = False
                set_busy_timeout(writer, self._busy_timeout_ms)

    def _retry_if_full(self, write: Callable[[], T]) -> T:
        """Write; if the disk is full, once more after a checkpoint, which frees the WAL."""
        try:
            return write()
        except sqlite3.OperationalError as error:
            if not is_disk_full(error):
                raise
            fetch_all(self.reader(), "PRAGMA wal_checkpoint")
            return write()

    def check(self) -> None:
        """Raise DatabaseError unless the file is a catalog that this release can serve."""
        self.reader()

    def is_writable(self) -> bool:
        """Return whether the file is in place and did not make the last install fail."""
        try:
            self.check_in_place()
        except DatabaseGoneError:
            return False
        return not self._has_failed

    def check_writes(self) -> None:
        """Raise if the file made the last install fail, and cannot be written now either."""
        self.check_in_place()
        if not self._has_failed:
            return
        if not self.deadline.may_wait:
            raise WouldBlock
        with self._writing() as connection:
            connection.execute(WRITE_ONE_PAGE)
        self._has_failed = False

    def log_error(self, effect: str, error: Exception) -> None:
        """Log that an error of a request had this effect; that the file is damaged, only once."""
        # The cause is that of a DatabaseError, if the file cannot be opened.
        if not (is_damage(error) or is_damage(error.__cause__)):
            logger.error("%s: %s", effect, error)
        elif not self.is_damaged:
            self.is_damaged = True
            logger.error(
                "The database is damaged: %s. Look at it with widget-catalog check, and replace it"
                " by a backup with widget-catalog restore.",
                error,
            )

    def replace_content(
        self, source: Path, actor: Actor, action: str, *, keeps_history: bool
    ) -> None:
        """Replace the catalog by that of another file in one transaction: see lifecycle.py."""
        with self._writing() as writer:
            replace_content(
                writer,
                source,
                actor,
                action,
                keeps_history=keeps_history,
                on_wait=self.on_wait,
            )

    def replace_pages(self, source: sqlite3.Connection) -> None:
        """Replace everything in the file by a database of the same schema, for a test.

        This and what is written later would not survive a power failure.
        """
        with self._writing() as connection:
            connection.execute("PRAGMA synchronous = OFF")
            source.backup(connection)
            # A cached response is valid for its revision, which must not be used again.
            set_new_revision(connection)
