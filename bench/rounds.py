"""Yields as many rounds as fit into a part's time, but at least one."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

STARTED = time.perf_counter()


def elapsed() -> float:
    """Return the seconds since the start of the run."""
    return time.perf_counter() - STARTED


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Rounds:
    """Yields round numbers from 1; stops if another round like the last one would end too late."""

    part: str
    maximum: int
    seconds: float  # from the start of the run

    def __iter__(self) -> Iterator[int]:
        for number in range(1, self.maximum + 1):
            log(f"{self.part}, round {number}.")
            started = elapsed()
            yield number
            if 2 * elapsed() - started > self.seconds:
                return
