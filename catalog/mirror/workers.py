"""A thread pool that fetches ahead while the caller writes results in order, batch by batch."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

# Results in one transaction: enough that fsync costs little, few enough to lose in a crash.
BATCH_SIZE = 64

Item = TypeVar("Item")
Result = TypeVar("Result")
# Called with the number of items that are done, and the number of all.
OnProgress = Callable[[int, int], None]


@contextmanager
def thread_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool; work that has not started when the block ends is cancelled."""
    threads = ThreadPoolExecutor(workers)
    wait = True
    try:
        yield threads
    except KeyboardInterrupt:
        # An interrupted command must end now, not when the pending responses arrive.
        wait = False
        raise
    finally:
        threads.shutdown(wait, cancel_futures=True)


def prefetch(
    threads: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield work(item) for each item, in order, while the pool works on the next BATCH_SIZE."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(threads.submit(work, item))
        if len(pending) == BATCH_SIZE:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def report_progress(
    items: Iterable[Item], on_progress: OnProgress, done: int, total: int
) -> Iterator[Item]:
    """Yield the items, and call on_progress for each; some were done before."""
    for number, item in enumerate(items, done + 1):
        on_progress(number, total)
        yield item


def batched(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of up to BATCH_SIZE items; an exception comes after the items before it."""
    iterator = iter(items)
    while True:
        batch: list[Item] = []
        try:
            batch.extend(islice(iterator, BATCH_SIZE))
        except Exception:
            yield batch
            raise
        if not batch:
            return
        yield batch
