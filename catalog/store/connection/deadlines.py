"""Deadlines, which limit how long a thread may work on a request or wait for a lock.

A budget limits the thread's CPU time, because on a busy machine, wall time says nothing about what
a request costs. When the budget is spent, another thread restarts the request, so a thread with a
budget never waits for a lock. A final deadline is in wall time: when it passes, the request fails.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .sqlite import DeadlineExceeded, WouldBlock


class Deadline(threading.local):
    """The current thread's deadline; set() or set_budget() sets it."""

    _time = math.inf
    # The budget is spent when the thread's CPU time reaches this value.
    _cpu_time = math.inf
    # True if the request fails at the deadline. Otherwise another thread restarts it.
    is_final = False
    # True if this thread may respond only from the cache.
    only_cached = False
    # The I/O thread serves every connection, so it never waits for a lock.
    on_io_thread = False
    # The time when the current install arrived; infinite in a thread that handles no installs.
    arrived_at = math.inf

    def set(self, seconds: float, *, is_final: bool = False) -> None:
        """Set a deadline in this many seconds; when a final one passes, the request fails (503)."""
        self._time, self.is_final = time.monotonic() + seconds, is_final
        self._cpu_time, self.only_cached = math.inf, False

    def set_budget(self, cpu_seconds: float, *, only_cached: bool = False) -> None:
        """Limit the CPU time of this thread; at the limit, another thread restarts the request."""
        self._time, self.is_final = math.inf, False
        self._cpu_time, self.only_cached = time.thread_time() + cpu_seconds, only_cached

    def extend(self, seconds: float) -> None:
        """Move a final deadline to this many seconds from now, unless it is already later."""
        if self.is_final:
            self._time = max(self._time, time.monotonic() + seconds)

    @property
    def may_wait(self) -> bool:
        """Whether this thread may wait for a lock; a thread with a budget must not wait."""
        return not self.on_io_thread and self._cpu_time == math.inf

    def is_past(self) -> bool:
        """Return whether the deadline has passed."""
        if self._cpu_time < math.inf:
            return time.thread_time() > self._cpu_time
        return time.monotonic() > self._time

    def check(self) -> None:
        """Raise DeadlineExceeded if the deadline has passed."""
        if self.is_past():
            raise DeadlineExceeded

    @contextmanager
    def holding(self, lock: threading.Lock) -> Iterator[None]:
        """Hold the lock during the block; raise DeadlineExceeded if it is not free in time."""
        if not lock.acquire(blocking=False):
            if not self.may_wait:
                raise WouldBlock
            seconds = -1 if self._time == math.inf else max(self._time - time.monotonic(), 0)
            if not lock.acquire(timeout=seconds):
                raise DeadlineExceeded
        try:
            yield
        finally:
            lock.release()
