"""The catalog's database: an SQLite file with many readers and one writer at a time."""

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
    Connection,
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

# While another process holds the write lock, queued installs wait for it one after another. An
# install that waited in the queue for this long waits only for the rest of its busy timeout.
LATE_MS = 100
MIN_BUSY_TIMEOUT_MS = 5

T = TypeVar("T")

# A no-op write that tells whether the file is writable.
WRITE_ONE_PAGE = "UPDATE revision SET id = id"

logger = logging.getLogger(__name__)


class Database(Readers):
    """The catalog's database, with many concurrent readers and one writer at a time.

    Any thread may call any method.
    """

    # True if processes on several machines write to the file; see cluster.py.
    is_cluster = False
    # The number of threads that can write at the same time.
    writer_threads = 1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        # Called once if a write has been waiting for another process for a second. Only commands
        # set this callback; their writes then wait for up to another minute.
        self.on_wait: Callable[[], None] | None = None
        self.write_counts = WriteCounts()
        # True if a request has read a damaged part of the file. Other requests may still succeed.
        self.is_damaged = False
        # False if the last install failed because of the file, or because a cluster has no leader.
        self.is_writable = True

    def transact(
        self,
        function: Callable[[Transaction], T],
        actor: Actor | None = None,
        *,
        dry_run: bool = False,
    ) -> T:
        """Run the function in one transaction and return its result.

        The transaction commits completely or not at all. The function reads, decides, writes, and
        records its changes in the audit log. It may run more than once, so it must not have other
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
        """Run and commit one statement that writes; return the number of rows that it changed."""

        def run() -> int:
            with self._writing() as connection:
                # A single statement commits by itself. BEGIN and COMMIT would cost two GIL switches
                # each.
                return connection.execute(sql, values).rowcount

        try:
            count = self._retry_if_full(run)
        except sqlite3.DatabaseError as error:
            if is_file_error(error) and not is_busy(error):
                self.is_writable = False
            raise
        if count:
            # A statement that changes no row writes nothing, so it proves nothing about the disk.
            self.is_writable = True
        return count

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Yield the writer connection with its lock held; roll back after an error."""
        with self.write_counts.count(), self.deadline.holding(self._write_lock):
            writer = self._open_writer()
            self.check_in_place()
            queued_ms = (time.monotonic() - self.deadline.arrived_at) * 1000
            if queued_ms > LATE_MS:
                left = max(round(self.busy_timeout_ms - queued_ms), MIN_BUSY_TIMEOUT_MS)
                set_busy_timeout(writer, left)
            try:
                yield writer
            finally:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                if queued_ms > LATE_MS:
                    set_busy_timeout(writer, self.busy_timeout_ms)

    def _retry_if_full(self, write: Callable[[], T]) -> T:
        """Call write(); if the disk is full, retry once after a checkpoint, which frees the WAL."""
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

    def check_writes(self) -> None:
        """Raise an error if the file is gone, or if writing to it failed and still fails."""
        self.check_in_place()
        if self.is_writable:
            return
        if not self.deadline.may_wait:
            raise WouldBlock
        with self._writing() as connection:
            connection.execute(WRITE_ONE_PAGE)
        self.is_writable = True

    def log_error(self, effect: str, error: Exception) -> None:
        """Log a request's error and its effect; log damage to the file only once."""
        # If the file cannot be opened, the SQLite error is the cause of a DatabaseError.
        if not (is_damage(error) or is_damage(error.__cause__)):
            logger.error("%s: %s", effect, error)
        elif not self.is_damaged:
            self.is_damaged = True
            logger.error(
                "The database is damaged: %s. Run widget-catalog check for details, and replace"
                " the file with a backup: widget-catalog restore.",
                error,
            )

    def replace_content(
        self, source: Path, actor: Actor, action: str, *, keeps_history: bool
    ) -> None:
        """Replace the catalog with the content of another file in one transaction."""
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
        """Replace all content with a database of the same schema; for tests only.

        Neither this change nor any later write would survive a power failure.
        """
        with self._writing() as connection:
            connection.execute("PRAGMA synchronous = OFF")
            source.backup(connection)
            # Cached responses are valid for their revision, so no revision may be used twice.
            set_new_revision(connection)
