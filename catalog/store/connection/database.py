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
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from ...atomic_files import atomic_replace
from ...semver_ranges import MAX_SAFE_INTEGER
from ...text import path_text
from ..schema.migrations import replace_content, set_new_revision
from ..schema.schema import schema_statements
from .database_file import file_exists, missing_permission
from .deadlines import Deadline
from .faults import Faults
from .pool import ConnectionPool
from .sqlite import (
    BUSY_TIMEOUT_MS,
    Connection,
    DatabaseError,
    DatabaseGoneError,
    WouldBlock,
    begin_write,
    connect,
    is_busy,
    is_disk_full,
    is_file_error,
    snapshot,
)
from .transaction import Actor, Transaction, Values
from .wal import WAL_LIMIT, remove_wal
from .write_counts import WriteCounts

# Triggers of schema.sql count the install of the day and of the version.
COUNT_INSTALL = f"""
UPDATE widget SET download_count = min(coalesce(download_count, 0) + 1, {MAX_SAFE_INTEGER}),
    counted = counted + 1, installed_day = :day, installed_version = :version
WHERE scope = :scope AND name = :name AND (:version = '' OR listed AND EXISTS (
    SELECT 1 FROM version WHERE widget_id = widget.id AND version = :version))
"""

T = TypeVar("T")
P = TypeVar("P")

# It changes nothing, but is written.
WRITE_ONE_PAGE = "UPDATE revision SET id = id"


class Database:
    """The catalog's database file. All methods may be called by any thread.

    Reading:    reader(), read(), fetch(), end_reads()
    Deadlines:  set_deadline(), deadline, mark_io_thread()
    Writing:    transact(), transact_each(), count_install(), on_wait, write_counts
    Checks:     exists(), check(), check_start(), check_in_place(), check_writes(), is_writable(),
                faults
    The file:   path, real_path, name, scratch_parent, create(), migrate(), replace_content(),
                replace_pages(), close()

    Nothing outside this class needs the connection that writes.
    """

    pool_class: type[ConnectionPool] = ConnectionPool
    # Whether other processes write the file, on several machines; see cluster.py.
    is_cluster = False
    # Widgets that an import writes before it refreshes their derived rows.
    part_size = 1000
    # Threads that can write at the same time.
    writer_threads = 1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        wal_limit: int = WAL_LIMIT,
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
        self.faults = Faults()
        self._connections = self.pool_class(self.path, self.deadline, busy_timeout_ms, wal_limit)
        # The last install, if the state of the file made it fail; check_writes() retries it.
        self._failed_install: Values | None = None

    def reader(self) -> Connection:
        """Return this thread's connection for reading; each statement sees the latest commit."""
        return self._connections.reader()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection on which every statement sees the same snapshot of the catalog."""
        connection = self.reader()
        with snapshot(connection):
            yield connection

    def fetch(self, sql: str, values: Values) -> list[sqlite3.Row]:
        """Return the rows of a statement."""
        return self.reader().execute(sql, values).fetchall()

    def end_reads(self) -> None:
        """End what this thread still reads, so that its next statement sees the latest commit."""
        self._connections.end_reads()

    def set_deadline(self, seconds: float, *, is_final: bool = False) -> None:
        """Make reads of this thread raise DeadlineExceeded after this many seconds.

        At a final deadline the request fails with 503; otherwise it starts again in a pool.
        """
        self.deadline.set(seconds, is_final)

    def mark_io_thread(self) -> None:
        """Make this thread the I/O thread: instead of waiting, its reads raise WouldBlock."""
        self._connections.mark_io_thread()

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
            with self._transaction(actor, dry_run) as transaction:
                result = function(transaction)
                transaction.finish()
            return result

        return self._retry_if_full(run)

    def transact_each(
        self,
        parts: Iterable[P],
        function: Callable[[Transaction, P], T],
        last: Callable[[Transaction, list[T]], T],
        actor: Actor | None = None,
        *,
        dry_run: bool = False,
    ) -> list[T]:
        """Run the function for each part, then the last one for their results, in one transaction.

        Return all results. The parts may be too many for memory, and are read once.
        """
        results: list[T] = []
        with self._transaction(actor, dry_run) as transaction:
            for part in parts:
                results.append(function(transaction, part))
                transaction.finish()
            results.append(last(transaction, results))
            transaction.finish()
        return results

    def count_install(self, scope: str, name: str, day: int, version: str = "") -> bool:
        """Count one install on the day, as today() returns it; return False if it has no widget.

        With a version, also False if the widget does not have it or is unlisted: the response must
        not tell which versions an unlisted widget has.
        """
        values = {"scope": scope, "name": name, "day": day, "version": version}

        def count() -> bool:
            with self._writer() as connection:
                # It commits by itself. BEGIN and COMMIT would cost two GIL switches each.
                return connection.execute(COUNT_INSTALL, values).rowcount > 0

        try:
            is_found = self._retry_if_full(count)
        except sqlite3.DatabaseError as error:
            if is_file_error(error) and not is_busy(error):
                self._failed_install = values
            raise
        if is_found:
            # Otherwise it did not use the disk.
            self._failed_install = None
        return is_found

    @contextmanager
    def _transaction(self, actor: Actor | None, dry_run: bool) -> Iterator[Transaction]:
        with self._writer() as connection:
            begin_write(connection, self.on_wait)
            yield Transaction(connection, actor)
            connection.execute("ROLLBACK" if dry_run else "COMMIT")

    @contextmanager
    def _writer(self) -> Iterator[Connection]:
        """Have the connection that writes, for this thread alone; roll back after an error."""
        with self.write_counts.count(), self._connections.writer() as connection:
            yield connection

    def _retry_if_full(self, write: Callable[[], T]) -> T:
        """Write; if the disk is full, once more after a checkpoint, which frees the WAL."""
        try:
            return write()
        except sqlite3.OperationalError as error:
            if not is_disk_full(error):
                raise
            self.reader().execute("PRAGMA wal_checkpoint")
            return write()

    def exists(self) -> bool:
        """Return whether there is a file that is not empty."""
        return file_exists(self.path, self.name)

    def is_same_file(self, path: Path) -> bool:
        """Return whether there is a file at the path, and it is that of the catalog."""
        return path.exists() and self.path.exists() and path.samefile(self.path)

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
        return not self._failed_install

    def check_writes(self) -> None:
        """Raise if the last install failed because of the file, and would fail again.

        It is counted again and taken back: on a full disk, there may be space for a smaller write.
        If its widget is gone, one page is written.
        """
        self.check_in_place()
        if not self._failed_install:
            return
        if not self.deadline.may_wait:
            raise WouldBlock
        with self._writer() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("SAVEPOINT retry")
            connection.execute(COUNT_INSTALL, self._failed_install)
            connection.execute(WRITE_ONE_PAGE)
            connection.execute("ROLLBACK TO retry")
            # The pages that were changed and changed back are written.
            connection.execute("COMMIT")
        self._failed_install = None

    def create(self, fill: Callable[[Transaction], None] | None = None) -> None:
        """Create the catalog with the content that the function adds, or no file at all."""
        if self.exists():
            raise DatabaseError(f"{self.name} exists already.")
        try:
            with atomic_replace(self.path) as new, closing(connect(new, "mode=rw")) as connection:
                connection.execute("BEGIN")
                for statement, _ in schema_statements():
                    connection.execute(statement)
                if fill:
                    transaction = Transaction(connection)
                    fill(transaction)
                    transaction.finish()
                connection.execute("COMMIT")
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

    def replace_content(
        self, source: Path, actor: Actor, action: str, *, keeps_history: bool
    ) -> None:
        """Replace the catalog by that of another file in one transaction: see migrations.py."""
        with self._writer() as connection:
            replace_content(
                *(connection, source, actor, action),
                keeps_history=keeps_history,
                on_wait=self.on_wait,
            )

    def replace_pages(self, source: sqlite3.Connection) -> None:
        """Replace everything in the file by a database of the same schema, for a test.

        This and what is written later would not survive a power failure.
        """
        with self._writer() as connection:
            connection.execute("PRAGMA synchronous = OFF")
            source.backup(connection)
            # A cached response is valid for its revision, which must not be used again.
            set_new_revision(connection)

    def close(self) -> None:
        """Close the connections of all threads; the next use opens new ones."""
        self._connections.close()
