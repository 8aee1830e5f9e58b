"""The cost of recent requests, from which dispatch.py chooses a thread."""

import threading
import time
from enum import Enum


class Cost(Enum):
    """What a request cost the last time that it was handled."""

    FAST = "fast"
    SLOW = "slow"


class RecentCosts:
    """The costs of recent requests, by request line. SLOW expires, FAST does not."""

    def __init__(self, max_entries: int, slow_expiry: float) -> None:
        self._max_entries, self._slow_expiry = max_entries, slow_expiry
        # By the hash of a request line, which may be long. In two dicts, so that a client with many
        # slow requests does not evict the fast ones. The values are times of expiry.
        self._fast: dict[int, float] = {}
        self._slow: dict[int, float] = {}
        self._lock = threading.Lock()

    def get(self, line: bytes) -> Cost | None:
        """Return the cost of the request, None if it is unknown."""
        key = hash(line)
        if key in self._fast:
            return Cost.FAST
        return Cost.SLOW if self._slow.get(key, 0.0) > time.monotonic() else None

    def set(self, line: bytes, cost: Cost | None) -> None:
        """Remember the cost, and evict the oldest entry if there are too many."""
        key = hash(line)
        with self._lock:
            self._fast.pop(key, None)
            self._slow.pop(key, None)
            if cost:
                costs = self._fast if cost is Cost.FAST else self._slow
                costs[key] = time.monotonic() + self._slow_expiry
                if len(costs) > self._max_entries:
                    del costs[next(iter(costs))]


class TokenBucket:
    """Seconds that may be spent: a share of the time that passes, saved up to a maximum.

    Only one thread may use it.
    """

    def __init__(self, share: float, maximum: float) -> None:
        self._share, self._maximum = share, maximum
        self._seconds, self._filled_at = maximum, time.monotonic()

    def spend(self, seconds: float) -> None:
        """Take the seconds out of the bucket; its level may become negative."""
        self._fill()
        self._seconds -= seconds

    def is_empty(self) -> bool:
        """Return whether nothing may be spent now."""
        self._fill()
        return self._seconds <= 0

    def _fill(self) -> None:
        now = time.monotonic()
        self._seconds = min(self._seconds + (now - self._filled_at) * self._share, self._maximum)
        self._filled_at = now
