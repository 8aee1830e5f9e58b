"""How often everything is measured: often enough, and oftener while there is time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

BEGUN = time.perf_counter()


@dataclass(frozen=True)
class Rounds:
    """The numbers of the rounds: so many at least, and more up to a second of the whole run."""

    least: int
    most: int
    seconds: float

    def __iter__(self) -> Iterator[int]:
        for number in range(1, self.most + 1):
            if number > self.least and time.perf_counter() - BEGUN > self.seconds:
                return
            yield number
