"""Creates, opens, migrates, replaces and closes the database file."""

import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from ...system.atomic_files import find_unused, locked_new_file, replace_file, scratch_directory
from ...system.paths import path_text
from ..schema.schema import SCHEMA_VERSION
from .deadlines import Deadline
from .file_paths import (
    FileId,
    entry_id,
    is_deleted,
    is_in_wal_mode,
    missing_permission,
    remove_wal,
    shm_path,
    wal_path,
)
from .lifecycle import check_schema, copy_to_file, create_catalog, migrate
from .sqlite import BUSY_TIMEOUT_MS, Connection, DatabaseError, DatabaseGoneError, connect
from .transaction import Transaction

logger = logging.getLogger(__name__)


class DatabaseFile:
    """The database file and its writer connection, which is closed after all readers."""

    # How long a connection waits for another process to release its lock.
    busy_timeout_ms = BUSY_TIMEOUT_MS
    # What to do if an earlier release wrote the file.
    migration_advice = "Run widget-catalog migrate, or start the service."

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # The path for messages, printable even if it is not valid Unicode.
        self.name = path_text(self.path)
        # The deadline of the current thread.
        self.deadline = Deadline()
        # Held by the thread that is writing to the file or opening it.
        self._write_lock = threading.Lock()
        self._writer: Connection | None = None
        # The identities of the file, the links to it, its WAL and the WAL index when the file was
        # opened. Links matter because SQLite names the WAL after the file that they point to.
        self._opened: dict[Path, FileId | None] = {}
        # The path of the opened file, after following all links.
        self._opened_file = self.path

    @property
    def real_path(self) -> Path:
        """The file's path after following links; SQLite appends -wal to this path."""
        return Path(os.path.realpath(self.path))

    @property
    def scratch_parent(self) -> Path:
        """The directory for temporary files as large as the catalog."""
        return self.real_path.parent

    def exists(self) -> bool:
        """Return whether a non-empty file exists; raise DatabaseError if it cannot be used."""
        try:
            status = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be accessed: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise DatabaseError(f"{self.name} is not a file.")
        return status.st_size > 0

    def is_same_file(self, path: Path) -> bool:
        """Return whether the path refers to the catalog's file."""
        return path.exists() and self.path.exists() and path.samefile(self.path)

    def check_in_place(self) -> None:
        """Raise DatabaseGoneError if the open file is no longer at its path."""
        for path, opened in self._opened.items():
            if entry_id(path) != opened:
                raise DatabaseGoneError(
                    f"{path_text(path)} was removed or replaced while it was open."
                )

    def create(self, fill: Callable[[Transaction], None] | None = None) -> None:
        """Create the catalog with the content that the function adds; on failure, leave no file."""
        if self.exists():
            raise DatabaseError(f"{self.name} already exists.")
        path = self.real_path
        try:
            with scratch_directory(path.parent) as directory:
                new = directory / path.name
                create_catalog(new, fill)
                with locked_new_file(path):
                    remove_wal(path)
                    replace_file(new, path)
        except FileExistsError as error:
            raise DatabaseError(f"{self.name} already exists.") from error
        except OSError as error:
            raise DatabaseError(f"{self.name} cannot be created: {error.strerror}.") from error

    def open_for_serving(self) -> None:
        """Open the file, and migrate it if an earlier release wrote it.

        Raise DatabaseError if this fails, or if this user cannot write to the file.
        """
        if self.exists() and (permission := missing_permission(self.real_path)):
            raise DatabaseError(f"{self.name} cannot be written: {permission}.")
        self.migrate()

    def migrate(self) -> None:
        """Migrate the file to this release's schema, and keep a copy of the old file."""
        with self.deadline.holding(self._write_lock):
            self._open_writer(may_migrate=True)

    def _open_writer(self, *, may_migrate: bool = False) -> Connection:
        """Return the writer connection, opened on first use; call this with the write lock held."""
        if self._writer:
            return self._writer
        if not self.exists():
            raise DatabaseError(f"{self.name} does not exist. Create it with: widget-catalog init")
        file = self.real_path
        opened = {path: entry_id(path) for path in (self.path, file)}
        try:
            writer = connect(file, "mode=rw", self.busy_timeout_ms)
            try:
                self._prepare(writer, may_migrate)
            except BaseException:
                writer.close()
                raise
        except sqlite3.Error as error:
            raise self._cannot_open(error) from error
        for each in (wal_path(file), shm_path(file)):
            opened[each] = entry_id(each)
        self._opened, self._opened_file, self._writer = opened, file, writer
        return writer

    def _prepare(self, writer: Connection, may_migrate: bool) -> None:
        version = self._check_version(writer, may_migrate=may_migrate)
        # Backups are not in WAL mode.
        writer.execute("PRAGMA journal_mode = WAL")
        if version < SCHEMA_VERSION:
            migrate(writer, self.real_path)
        # This statement opens the WAL.
        writer.data_version()

    def _check_version(self, connection: Connection, *, may_migrate: bool) -> int:
        version = check_schema(connection, self.name)
        if version < SCHEMA_VERSION and not may_migrate:
            raise DatabaseError(
                f"{self.name} has schema version {version}, but this release needs "
                f"{SCHEMA_VERSION}. {self.migration_advice}"
            )
        return version

    def _read_only_parameters(self) -> str | None:
        """Return the URI parameters for a read-only file; None if the file may be written to.

        A backup is not in WAL mode, and reading must not change its bytes. To read a file in WAL
        mode, SQLite creates a WAL, unless the URI declares the file immutable.
        """
        path = self.real_path
        try:
            if not self.exists():
                return None
            if not is_in_wal_mode(path) and not wal_path(path).exists():
                return "mode=ro"
        except OSError:
            return None
        if missing_permission(path) is None:
            return None
        return "mode=ro" if wal_path(path).exists() else "mode=ro&immutable=1"

    def _cannot_open(self, error: sqlite3.Error) -> DatabaseError:
        reason = missing_permission(self.real_path) or error
        return DatabaseError(f"{self.name} cannot be opened: {reason}.")

    def _close_writer(self) -> None:
        """Close the file; call this with the write lock held, after all readers are closed."""
        if self._writer:
            try:
                self.check_in_place()
            except DatabaseGoneError:
                self._save_wal(self._writer)
                self._rescue(self._writer)
            self._writer.close()
        self._writer, self._opened = None, {}

    def _save_wal(self, writer: Connection) -> None:
        """Checkpoint the WAL: on close, SQLite does so only if the file is still in place."""
        try:
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            logger.error("The last writes to %s could not be saved: %s.", self.name, error)
        file, wal = self._opened_file, wal_path(self._opened_file)
        is_replaced = entry_id(file) not in (self._opened[file], None)
        if is_replaced and entry_id(wal) == self._opened[wal]:
            # SQLite would apply this WAL to the new file at the path.
            remove_wal(file)

    def _rescue(self, writer: Connection) -> None:
        """Save a deleted file beside its old path: only this process can still read the file."""
        file = self._opened_file
        if not is_deleted(self._opened[file]):
            return
        target = find_unused(file.with_name(f"{file.name}.rescued"))
        try:
            # A damaged copy is better than none.
            copy_to_file(writer, target, may_be_damaged=True)
        except (OSError, sqlite3.Error) as error:
            logger.error("%s was deleted and could not be recovered: %s.", self.name, error)
        else:
            logger.error(
                "%s was deleted while it was open. Its content was saved as %s; restore it with"
                " widget-catalog restore.",
                self.name,
                path_text(target),
            )
