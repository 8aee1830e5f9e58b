"""The write-ahead log (WAL) beside the database file: its paths, and the limit of its size."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Bytes above which a write truncates the WAL, and to which SQLite cuts it when it restarts it.
# Without long reads it stays at 16 MB; see wal_autocheckpoint in sqlite.py.
WAL_LIMIT = 32 * 1024 * 1024


def wal_path(path: Path) -> Path:
    """Return the path of the WAL of the database at the path."""
    return path.with_name(f"{path.name}-wal")


def shm_path(path: Path) -> Path:
    """Return the path of the WAL index, the memory that all connections share."""
    return path.with_name(f"{path.name}-shm")


def remove_wal(path: Path) -> None:
    """Remove the WAL of a file that is gone, before another file takes its place."""
    wal_path(path).unlink(missing_ok=True)
    shm_path(path).unlink(missing_ok=True)


def truncate_wal(connection: sqlite3.Connection, busy_timeout_ms: int) -> bool:
    """Checkpoint and truncate the WAL; return False if reads prevent that until the timeout."""
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_busy


class LongReadGate:
    """Runs long reads concurrently, and delays new ones while the WAL is truncated.

    SQLite can restart the WAL only while no connection reads from it. Long reads that overlap leave
    no such moment, and the WAL would grow. docs/reliability.md promises that it does not.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reads = 0
        self._is_closed = False

    @contextmanager
    def enter(self, timeout: float) -> Iterator[bool]:
        """Run a long read in the block; yield False if the gate stays closed until the timeout."""
        with self._changed:
            is_open = self._changed.wait_for(lambda: not self._is_closed, timeout)
            self._reads += is_open
        try:
            yield is_open
        finally:
            with self._changed:
                self._reads -= is_open
                self._changed.notify_all()

    @contextmanager
    def closed(self, timeout: float) -> Iterator[None]:
        """Let no long read start in the block; first wait for running ones, up to the timeout."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._reads, timeout)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
