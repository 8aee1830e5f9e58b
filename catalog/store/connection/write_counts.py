"""Counts a process's writes, and records how long they take and why they fail."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .sqlite import DatabaseError, is_busy, is_disk_full

# A write fails for this reason if another process holds the lock until the timeout.
LOCKED = "locked"
DISK_FULL = "disk_full"
# A write fails for this reason if the file cannot be written and no other reason applies.
OTHER = "other"


class WriteCounts:
    """Statistics about the writes on all threads."""

    def __init__(self) -> None:
        self.writes = 0
        # The duration of all writes, including the time spent waiting for locks.
        self.seconds = 0.0
        self.failures = dict.fromkeys((LOCKED, DISK_FULL, OTHER), 0)
        self._lock = threading.Lock()

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count the write in the block."""
        started = time.perf_counter()
        reason = None
        try:
            yield
        except (DatabaseError, sqlite3.Error) as error:
            reason = LOCKED if is_busy(error) else DISK_FULL if is_disk_full(error) else OTHER
            raise
        finally:
            with self._lock:
                self.writes += 1
                self.seconds += time.perf_counter() - started
                if reason:
                    self.failures[reason] += 1
