"""Threads that work ahead of whoever takes their results, in order and a batch at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

BATCH = 64  # in a transaction: enough to spare the disc, few enough to lose where one is killed

Item = TypeVar("Item")
Result = TypeVar("Result")
OnProgress = Callable[[int, int], None]  # told how many are done, and of how many


@contextmanager
def pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads to work in; what they have not begun when the block is left is not begun at all."""
    threads = ThreadPoolExecutor(workers)
    wait = True
    try:
        yield threads
    except KeyboardInterrupt:
        wait = False  # who has had enough does not wait for answers
        raise
    finally:
        threads.shutdown(wait, cancel_futures=True)


def ahead(
    threads: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """The result for each item in turn, while the threads work on those that follow it."""
    begun: deque[Future[Result]] = deque()
    for item in items:
        begun.append(threads.submit(work, item))
        if len(begun) == BATCH:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def counted(items: Iterable[Item], on_progress: OnProgress, done: int, of: int) -> Iterator[Item]:
    """The items, with word of each to whoever follows the progress."""
    for number, item in enumerate(items, done + 1):
        on_progress(number, of)
        yield item


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items, some at a time; those that came before a failure come before it here too."""
    iterator = iter(items)
    while True:
        batch: list[Item] = []
        try:
            batch.extend(islice(iterator, BATCH))
        except Exception:
            yield batch
            raise
        if not batch:
            return
        yield batch
