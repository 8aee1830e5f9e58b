"""The number of rounds: as many as fit into the time of a part, but at least one."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

STARTED = time.perf_counter()


def elapsed() -> float:
    """Seconds since the start of the run."""
    return time.perf_counter() - STARTED


@dataclass(frozen=True)
class Rounds:
    """Round numbers from 1, while another round as long as the last one ends in time."""

    maximum: int
    # From the start of the run.
    seconds: float

    def __iter__(self) -> Iterator[int]:
        for number in range(1, self.maximum + 1):
            started = elapsed()
            yield number
            if 2 * elapsed() - started > self.seconds:
                return
