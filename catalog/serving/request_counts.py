"""Counts of requests by endpoint, method, status and duration; metrics.py exposes them.

Together with the name of the endpoint, which application.py stores, that costs a request 3 µs.
"""

import threading
from bisect import bisect_left

# In the environ of a request: the name of the endpoint that Flask chose. A request has none if no
# route matches, or if the server refuses it.
ENDPOINT = "catalog.endpoint"
# Upper bounds of the histogram.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # seconds
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})
OTHER_METHOD = "other"

# Endpoint, method and status. Clients choose none of them freely, so their number is bounded.
Kind = tuple[str | None, str, int]


class Durations:
    """The durations of requests of one kind: their number in each bucket, and their sum."""

    def __init__(self) -> None:
        # The last bucket has no upper bound.
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0


class RequestCounts:
    """Counts of the requests of all threads."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, Durations] = {}
        self._lock = threading.Lock()

    def add(self, endpoint: str | None, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        kind = endpoint, method if method in METHODS else OTHER_METHOD, status
        with self._lock:
            durations = self._kinds.get(kind)
            if durations is None:
                durations = self._kinds[kind] = Durations()
            durations.buckets[bisect_left(BOUNDS, seconds)] += 1
            durations.seconds += seconds

    def items(self) -> list[tuple[Kind, list[int], float]]:
        """Return each kind with its buckets and the sum of its durations."""
        with self._lock:
            return [(kind, [*each.buckets], each.seconds) for kind, each in self._kinds.items()]
