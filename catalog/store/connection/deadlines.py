"""The deadline of each thread: how long it may work on a request, and wait for a lock."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from catalog.store.connection.sqlite import DeadlineExceeded, WouldBlock


class Deadline(threading.local):
    """The deadline of the current thread. Without a call of set() there is none."""

    _time = math.inf
    # Whether the request fails at the deadline. Otherwise another thread starts it again.
    is_final = False
    # The I/O thread serves every connection, so it never waits for a lock.
    on_io_thread = False
    # Whether the I/O thread has no time left in this turn for what is not cached.
    only_cached = False

    def set(self, seconds: float, is_final: bool) -> None:
        """Set the deadline, in seconds from now."""
        self._time, self.is_final = time.monotonic() + seconds, is_final

    def extend(self, seconds: float) -> None:
        """Move a final deadline to this many seconds from now, unless it is later already."""
        if self.is_final:
            self._time = max(self._time, time.monotonic() + seconds)

    def is_past(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() > self._time

    def check(self) -> None:
        """Raise DeadlineExceeded if the deadline has passed."""
        if self.is_past():
            raise DeadlineExceeded

    def acquire(self, lock: threading.Lock) -> None:
        """Acquire the lock, or raise DeadlineExceeded; on the I/O thread, without waiting."""
        if lock.acquire(blocking=False):
            return
        if self.on_io_thread:
            raise WouldBlock
        seconds = -1 if self._time == math.inf else max(self._time - time.monotonic(), 0)
        if not lock.acquire(timeout=seconds):
            raise DeadlineExceeded

    @contextmanager
    def holding(self, lock: threading.Lock) -> Iterator[None]:
        """Hold the lock in the block; acquire it as acquire() does."""
        self.acquire(lock)
        try:
            yield
        finally:
            lock.release()
