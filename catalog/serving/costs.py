"""What requests have cost: which ones are known to be fast or slow, and how much time is left."""

import threading
import time
from enum import Enum


class Cost(Enum):
    """What is known of a request from the last time that it was handled."""

    FAST = "fast"
    SLOW = "slow"


class RecentCosts:
    """The costs of the requests handled last, by the hash of a target, which may be long."""

    def __init__(self, most: int, slow_seconds: float) -> None:
        self._most, self._slow_seconds = most, slow_seconds
        # Apart, so that a client with many slow requests does not make the fast ones forgotten.
        self._fast: dict[int, float] = {}
        self._slow: dict[int, float] = {}
        self._lock = threading.Lock()

    def get(self, target: str) -> Cost | None:
        """What is known of the target; that it is slow is known for some seconds only."""
        key = hash(target)
        if key in self._fast:
            return Cost.FAST
        return Cost.SLOW if self._slow.get(key, 0.0) > time.monotonic() else None

    def set(self, target: str, cost: Cost | None) -> None:
        """Keep what is known now, and forget what was learnt longest ago if that is too much."""
        key = hash(target)
        with self._lock:
            self._fast.pop(key, None)
            self._slow.pop(key, None)
            if cost:
                costs = self._fast if cost is Cost.FAST else self._slow
                costs[key] = time.monotonic() + self._slow_seconds
                if len(costs) > self._most:
                    del costs[next(iter(costs))]


class Allowance:
    """Seconds that may be spent: a share of the time that passes, saved up to a most."""

    def __init__(self, share: float, most: float) -> None:
        self._share, self._most = share, most
        self._left, self._since = most, time.monotonic()
        self._lock = threading.Lock()

    def spend(self, seconds: float) -> None:
        """Take what was spent; it may be more than was left."""
        with self._lock:
            self._earn()
            self._left -= seconds

    def is_spent(self) -> bool:
        """Whether nothing is left now."""
        with self._lock:
            self._earn()
            return self._left <= 0

    def _earn(self) -> None:
        now = time.monotonic()
        self._left = min(self._left + (now - self._since) * self._share, self._most)
        self._since = now
