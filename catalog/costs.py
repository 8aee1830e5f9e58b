"""What requests have cost: which ones are known to be fast or slow, and how much time is left."""

import threading
import time
from collections import OrderedDict
from enum import Enum


class Cost(Enum):
    """What is known of a request from the last time that it was handled."""

    FAST = "fast"
    SLOW = "slow"


class RecentCosts:
    """The costs of the requests handled last, by the hash of a target, which may be long."""

    def __init__(self, most: int, slow_seconds: float) -> None:
        self._most, self._slow_seconds = most, slow_seconds
        self._costs: OrderedDict[int, tuple[Cost, float]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, target: str) -> Cost | None:
        """What is known of the target; that it is slow is known for some seconds only."""
        key = hash(target)
        cost, until = self._costs.get(key, (None, 0.0))
        if cost is Cost.SLOW and until < time.monotonic():
            return None
        if cost is Cost.FAST:
            with self._lock:
                if key in self._costs:
                    self._costs.move_to_end(key)
        return cost

    def set(self, target: str, cost: Cost | None) -> None:
        """Keep what is known now, and forget what was used longest ago if that is too much."""
        key = hash(target)
        with self._lock:
            self._costs.pop(key, None)
            if cost:
                self._costs[key] = cost, time.monotonic() + self._slow_seconds
            if len(self._costs) > self._most:
                self._costs.popitem(last=False)


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
