"""The number of rounds: a minimum, and more while there is time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

STARTED = time.perf_counter()


@dataclass(frozen=True)
class Rounds:
    """Round numbers from 1: at least the minimum, more until the run has taken so many seconds."""

    minimum: int
    maximum: int
    seconds: float

    def __iter__(self) -> Iterator[int]:
        for number in range(1, self.maximum + 1):
            if number > self.minimum and time.perf_counter() - STARTED > self.seconds:
                return
            yield number
