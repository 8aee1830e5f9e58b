"""How long a thread may work on a request, and how long it may wait for others."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from catalog.store.sqlite import DeadlineExceeded, WouldBlock


class Deadline(threading.local):
    """The deadline of the current thread; a thread that was given none has none."""

    at = math.inf
    # Whether the request ends with it; otherwise another thread begins the request again.
    is_final = False
    # The I/O thread serves every connection, so it never waits for another thread or process.
    on_io_thread = False

    def set(self, seconds: float, is_final: bool) -> None:
        """Let the deadline pass in so many seconds."""
        self.at, self.is_final = time.monotonic() + seconds, is_final

    def extend(self, seconds: float) -> None:
        """Let a final deadline pass in so many seconds, if it would earlier."""
        if self.is_final:
            self.at = max(self.at, time.monotonic() + seconds)

    def is_past(self) -> bool:
        """Whether it has passed."""
        return time.monotonic() > self.at

    def check(self) -> None:
        """Raise DeadlineExceeded once it has passed."""
        if time.monotonic() > self.at:
            raise DeadlineExceeded

    def acquire(self, lock: threading.Lock) -> None:
        """Acquire the lock before the deadline, else raise; the I/O thread does not wait for it."""
        if lock.acquire(blocking=False):
            return
        if self.on_io_thread:
            raise WouldBlock
        seconds = -1 if self.at == math.inf else max(self.at - time.monotonic(), 0)
        if not lock.acquire(timeout=seconds):
            raise DeadlineExceeded

    @contextmanager
    def holding(self, lock: threading.Lock) -> Iterator[None]:
        """Within, the lock is held, as acquire() gets it."""
        self.acquire(lock)
        try:
            yield
        finally:
            lock.release()


class ReadGate:
    """Lets long reads run side by side, and a checkpoint wait until none of them does.

    SQLite can restart the WAL only while no connection reads from it. Long reads that overlap leave
    no such moment, and the WAL would grow for as long as they come.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reads = 0
        self._is_closed = False

    @contextmanager
    def reading(self, timeout: float) -> Iterator[bool]:
        """A long read, begun once the gate is open; False if it did not open before the timeout."""
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
        """Hold back new long reads, and begin when the others have ended or the timeout passed."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._reads, timeout)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
