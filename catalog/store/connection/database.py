"""The catalog's database: one SQLite file that many threads read and one at a time writes."""

import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ...atomic_files import locked_new_file, replace_file, scratch_directory
from ...semver_ranges import MAX_SAFE_INTEGER
from ...text import path_text
from ..schema.migrations import set_new_revision
from ..schema.schema import SCHEMA_VERSION
from .content import check_schema, create_catalog, migrate, replace_content
from .database_file import (
    FileId,
    file_exists,
    file_id,
    missing_permission,
    remove_wal,
    shm_path,
    wal_path,
)
from .deadlines import Deadline
from .sqlite import (
    BUSY_TIMEOUT_MS,
    Connection,
    DatabaseError,
    DatabaseGoneError,
    WouldBlock,
    begin_write,
    connect,
    is_busy,
    is_damage,
    is_disk_full,
    is_file_error,
    set_busy_timeout,
    snapshot,
)
from .transaction import Actor, Transaction, Values
from .write_counts import WriteCounts

# With SQLite's default of 2 MB, reading pages takes a sixth of the time of a new search.
IO_THREAD_CACHE_KIB = 32_000
# Steps of SQLite between two checks of the deadline: about 50 microseconds and 5 milliseconds. Each
# check needs the GIL, so frequent checks in the pools would slow down the I/O thread.
IO_THREAD_STEPS = 1_000
POOL_STEPS = 100_000
# While another process holds the write lock, queued writes wait one after another: keep it short.
STALLED_BUSY_TIMEOUT_MS = 5

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

logger = logging.getLogger(__name__)


class ThreadConnection(threading.local):
    """The connection with which the current thread reads."""

    connection: Connection | None = None


class Database:
    """The catalog's database file. All methods may be called by any thread.

    The file is opened once, by the connection that writes, which is closed last. A thread opens its
    connection when it first reads, and keeps it: opening one costs 0.24 ms, a query from 6
    microseconds. The I/O thread never waits: where it would have to, WouldBlock is raised, and the
    request starts again in another thread.
    """

    # Whether other processes write the file, on several machines; see cluster.py.
    is_cluster = False
    # Widgets that an import writes before it refreshes their derived rows.
    part_size = 1000
    # Threads that can write at the same time.
    writer_threads = 1

    def __init__(
        self, path: str | os.PathLike[str], *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
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
        # Whether a request has read a damaged part of the file. Others may still succeed.
        self.is_damaged = False
        self._busy_timeout_ms = busy_timeout_ms
        # Held by the thread that writes, or opens the file.
        self._write_lock = threading.Lock()
        self._writer: Connection | None = None
        # The file, its WAL and the index of that, as they were opened.
        self._opened: dict[Path, FileId | None] = {}
        self._thread = ThreadConnection()
        self._readers: weakref.WeakSet[Connection] = weakref.WeakSet()
        # See Connection.counts.
        self._counts: dict[object, tuple[int, Any]] = {}
        # Whether the last write found the file locked by another process.
        self._is_stalled = False
        # Whether the state of the file made the last install fail.
        self._has_failed = False

    @property
    def real_path(self) -> Path:
        """The path of the file itself, which SQLite appends -wal to, if the path is a link."""
        return Path(os.path.realpath(self.path))

    @property
    def scratch_parent(self) -> Path:
        """The directory for temporary files as large as the catalog."""
        return self.real_path.parent

    def reader(self) -> Connection:
        """Return this thread's connection for reading; each statement sees the latest commit."""
        self.deadline.check()
        return self._thread.connection or self._open_reader()

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
        if self._thread.connection:
            self._thread.connection.end_reads()

    def mark_io_thread(self) -> None:
        """Make this thread the I/O thread: instead of waiting, its reads raise WouldBlock."""
        self.deadline.on_io_thread = True
        # It was opened with a busy timeout.
        if self._thread.connection:
            self._thread.connection.close()
            self._thread.connection = None

    def _open_reader(self) -> Connection:
        if not self._writer:
            # To open the file can mean to wait for a lock.
            if self.deadline.on_io_thread:
                raise WouldBlock
            with self.deadline.holding(self._write_lock):
                self._open_writer()
        # Otherwise SQLite would open another file, or create a new WAL.
        self.check_in_place()
        try:
            connection = self._connect("mode=rw")
            # This opens the WAL.
            connection.data_version()
        except sqlite3.Error as error:
            raise self._cannot_open(error) from error
        # Another process may have replaced the file in between.
        self.check_in_place()
        self._thread.connection = connection
        return connection

    def _connect(self, parameters: str) -> Connection:
        """Open a connection that only reads, until the deadline of its thread."""
        on_io_thread = self.deadline.on_io_thread
        timeout = 0 if on_io_thread else self._busy_timeout_ms
        try:
            connection = connect(self.path, parameters, timeout)
        except sqlite3.OperationalError as error:
            if on_io_thread and is_busy(error):
                raise WouldBlock from error
            raise
        connection.on_io_thread = on_io_thread
        connection.counts = self._counts
        connection.execute("PRAGMA query_only = ON")
        if on_io_thread:
            connection.execute(f"PRAGMA cache_size = -{IO_THREAD_CACHE_KIB}")
        steps = IO_THREAD_STEPS if on_io_thread else POOL_STEPS
        connection.set_progress_handler(self.deadline.is_past, steps)
        connection.is_past_deadline = self.deadline.is_past
        self._readers.add(connection)
        return connection

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
            with self._writing() as connection:
                # It commits by itself. BEGIN and COMMIT would cost two GIL switches each.
                return connection.execute(COUNT_INSTALL, values).rowcount > 0

        try:
            is_found = self._retry_if_full(count)
        except sqlite3.DatabaseError as error:
            if is_file_error(error) and not is_busy(error):
                self._has_failed = True
            raise
        if is_found:
            # Otherwise it did not use the disk.
            self._has_failed = False
        return is_found

    @contextmanager
    def _transaction(self, actor: Actor | None, dry_run: bool) -> Iterator[Transaction]:
        with self._writing() as connection:
            begin_write(connection, self.on_wait)
            yield Transaction(connection, actor)
            connection.execute("ROLLBACK" if dry_run else "COMMIT")

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Have the connection that writes, for this thread alone; roll back after an error."""
        with self.write_counts.count(), self.deadline.holding(self._write_lock):
            writer = self._open_writer()
            self.check_in_place()
            try:
                yield writer
            except BaseException as error:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError) and is_busy(error):
                    self._is_stalled = True
                    set_busy_timeout(writer, STALLED_BUSY_TIMEOUT_MS)
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

    def check_in_place(self) -> None:
        """Raise DatabaseGoneError if an opened file is no longer at its path."""
        for path, opened in self._opened.items():
            if file_id(path) != opened:
                suffix = path.name.removeprefix(self.real_path.name) if path != self.path else ""
                raise DatabaseGoneError(
                    f"{self.name}{suffix} was removed or replaced while it was open."
                )

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

    def create(self, fill: Callable[[Transaction], None] | None = None) -> None:
        """Create the catalog with the content that the function adds, or no file at all."""
        if self.exists():
            raise DatabaseError(f"{self.name} exists already.")
        path = self.real_path
        try:
            with scratch_directory(path.parent) as directory:
                new = directory / path.name
                create_catalog(new, fill)
                with locked_new_file(path):
                    remove_wal(path)
                    replace_file(new, path)
        except FileExistsError as error:
            raise DatabaseError(f"{self.name} exists already.") from error
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be created: {error.strerror}.") from error

    def replace_content(
        self, source: Path, actor: Actor, action: str, *, keeps_history: bool
    ) -> None:
        """Replace the catalog by that of another file in one transaction: see content.py."""
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

    def open_for_serving(self) -> None:
        """Open the file, and migrate one of an earlier release; raise DatabaseError if it cannot.

        That this user may not write to the file is such an error.
        """
        if self.exists() and (permission := missing_permission(self.real_path)):
            raise DatabaseError(f"{self.name} cannot be written: {permission}.")
        self.migrate()

    def migrate(self) -> None:
        """Migrate the file to the schema of this release, and leave a copy of it beside it."""
        with self.deadline.holding(self._write_lock):
            self._open_writer(may_migrate=True)

    def _open_writer(self, *, may_migrate: bool = False) -> Connection:
        """Return the connection that writes, and open the file; call with the write lock held."""
        if self._writer:
            return self._writer
        if not self.exists():
            raise DatabaseError(f"{self.name} does not exist. Create it with: widget-catalog init")
        path = self.real_path
        opened = {self.path: file_id(self.path)}
        try:
            writer = connect(path, "mode=rw", self._busy_timeout_ms)
            try:
                self._prepare(writer, may_migrate)
            except BaseException:
                writer.close()
                raise
        except sqlite3.Error as error:
            raise self._cannot_open(error) from error
        for each in (wal_path(path), shm_path(path)):
            opened[each] = file_id(each)
        self._opened, self._writer = opened, writer
        return writer

    def _prepare(self, writer: Connection, may_migrate: bool) -> None:
        version = check_schema(writer, self.name)
        if version < SCHEMA_VERSION and not may_migrate:
            raise DatabaseError(
                f"{self.name} has schema version {version}, and this release needs "
                f"{SCHEMA_VERSION}. Run widget-catalog migrate, or start the service."
            )
        # A backup is not in WAL mode.
        if writer.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            writer.execute("PRAGMA journal_mode = WAL")
        if version < SCHEMA_VERSION:
            migrate(writer, self.real_path)
        # This opens the WAL.
        writer.data_version()

    def _cannot_open(self, error: sqlite3.Error) -> DatabaseError:
        reason = missing_permission(self.real_path) or error
        return DatabaseError(f"{self.name} cannot be opened: {reason}.")

    def close(self) -> None:
        """Close the connections of all threads; the next use opens new ones."""
        with self._write_lock:
            for connection in self._readers:
                connection.close()
            if self._writer:
                try:
                    self.check_in_place()
                except DatabaseGoneError:
                    self._save_wal(self._writer)
                self._writer.close()
            self._writer, self._opened = None, {}
            self._thread = ThreadConnection()

    def _save_wal(self, writer: Connection) -> None:
        """Write the WAL into the file that was opened: SQLite does so only if it is in place."""
        try:
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            logger.error("The last writes to %s cannot be saved: %s.", self.name, error)
        wal = wal_path(self.real_path)
        is_replaced = file_id(self.path) not in (self._opened[self.path], None)
        if is_replaced and file_id(wal) == self._opened[wal]:
            # SQLite would apply it to the file that is at the path now.
            remove_wal(self.real_path)
