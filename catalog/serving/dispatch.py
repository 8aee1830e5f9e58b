"""Which thread handles a request.

Handing a fast read to a worker costs more GIL switches than the read itself. So fast reads run on
the I/O thread, and there a request holds up all others. These limits keep that short:

- A read on the I/O thread that exceeds LOOP_DEADLINE is aborted, and begins again in a pool.
- Once a turn of the event loop has spent TURN_BUDGET on requests, the others of that turn go to a
  pool: many at once add up to no more.
- A request that was aborted goes to the slow pool directly for KNOWN_SLOW, unless it is found to
  be cached there.
- Costly and aborted reads may take LOOP_SHARE of the I/O thread's time. Beyond it, a request that
  is not known to be fast goes to a pool, since a client that varies its query would otherwise have
  the I/O thread try each one.

Installs have one thread to themselves, since only one can write at a time. Of the other threads,
half are the slow pool, for what exceeded a deadline, and for queries of unknown cost. The others
are for pages, files and the rest of a turn, and what exceeds POOL_DEADLINE there begins again in
the slow pool. So neither a page nor a fast read waits for slow ones, however many these are. In the
slow pool, a request that waited longer than MAX_WAIT or exceeds SLOW_DEADLINE is refused with 503.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from waitress.parser import HTTPRequestParser
from waitress.task import ThreadedTaskDispatcher

from catalog.serving.costs import Allowance, Cost, RecentCosts
from catalog.store.database import Database
from catalog.store.sqlite import DeadlineExceeded, WouldBlock

if TYPE_CHECKING:
    from catalog.serving.connections import Channel

LOOP_DEADLINE = 0.025  # seconds
TURN_BUDGET = 0.1  # seconds
POOL_DEADLINE = 2.0  # seconds
SLOW_DEADLINE = 5.0  # seconds
MAX_WAIT = 5.0  # seconds
# A read of the API that takes longer is a costly one.
COSTLY = 0.01  # seconds
# Of the time that passes, and in seconds the most that is saved up for a burst.
LOOP_SHARE, LOOP_SAVINGS = 0.1, 0.25
KNOWN_REQUESTS, KNOWN_SLOW = 5_000, 10.0  # requests, seconds

# Handled on the I/O thread whatever else it has to do: they cost little, and tell that it is alive.
ALWAYS_FAST = {"/api/health", "/api/version", "/api/settings", "/api/widgets/cli-version"}


def is_quick(path: str) -> bool:
    """Whether the response is JSON that SQLite writes: no page to render, no file to read."""
    return path.startswith("/api/") and not path.endswith("/bundle.js")


def target_of(request: HTTPRequestParser) -> str:
    """What is requested, as it was sent; nothing where the request could not be parsed."""
    return "" if request.error else request.request_uri


class PoolTask:
    """A request that waits for a thread of a pool."""

    def __init__(self, channel: "Channel", handle: Callable[["Channel", float], None]) -> None:
        self._channel, self._handle = channel, handle
        self._queued = time.monotonic()

    def service(self) -> None:
        self._handle(self._channel, time.monotonic() - self._queued)

    def cancel(self) -> None:
        self._channel.cancel()


class Dispatcher:
    """Takes the place of waitress's own: knows the I/O thread, the writer thread and two pools."""

    def __init__(self, database: Database, threads: int) -> None:
        self._database = database
        self._io_thread = threading.get_ident()
        database.mark_io_thread()
        self._writer, self._pool, self._slow = (ThreadedTaskDispatcher() for _ in range(3))
        self._writer.set_thread_count(1)
        self._pool.set_thread_count(threads - threads // 2)
        self._slow.set_thread_count(max(threads // 2, 1))
        self._spent_in_turn = 0.0
        self._costs = RecentCosts(KNOWN_REQUESTS, KNOWN_SLOW)
        self._allowance = Allowance(LOOP_SHARE, LOOP_SAVINGS)

    def in_loop(self) -> bool:
        """Whether this thread is the one that all connections depend on."""
        return threading.get_ident() == self._io_thread

    def begin_turn(self) -> None:
        """Give the next turn of the event loop its budget."""
        self._spent_in_turn = 0.0

    def add_task(self, channel: "Channel") -> None:
        """Have the channel's first request handled."""
        first = channel.requests[0]
        # Of several requests that a client sends at once, the first is handled on the I/O thread.
        can_be_here = self.in_loop() and not channel.in_turn
        if not first.error and first.command == "POST":
            self._writer.add_task(channel)
        elif can_be_here and (first.error or self._fits_turn(first)):
            channel.is_next = True
        else:
            self._add_to_pool(channel)

    def _fits_turn(self, first: HTTPRequestParser) -> bool:
        """Whether the I/O thread may handle the request in this turn."""
        if not is_quick(first.path):
            return False
        if first.path in ALWAYS_FAST:
            return True
        cost = self._costs.get(target_of(first))
        if cost is Cost.SLOW or self._spent_in_turn > TURN_BUDGET:
            return False
        return cost is Cost.FAST or not self._allowance.is_spent()

    def _add_to_pool(self, channel: "Channel") -> None:
        first = channel.requests[0]
        cost = self._costs.get(target_of(first))
        is_unknown = cost is None and not first.error and first.query and is_quick(first.path)
        if cost is Cost.SLOW or is_unknown:
            self._slow.add_task(PoolTask(channel, self._handle_slow))
        else:
            self._pool.add_task(PoolTask(channel, self._handle_in_pool))

    def answer(self, channel: "Channel") -> None:
        """Handle the channel's first request here, or in a pool if it exceeds the deadline."""
        channel.is_next, channel.in_turn = False, True
        first = channel.requests[0]
        target = target_of(first)
        cost = self._costs.get(target)
        begun = time.monotonic()
        self._database.set_deadline(LOOP_DEADLINE)
        aborted: DeadlineExceeded | None = None
        try:
            channel.service()
        except DeadlineExceeded as error:
            aborted = error
        finally:
            channel.in_turn = False
        seconds = time.monotonic() - begun
        self._spent_in_turn += seconds
        cost = self._costs.get(target)
        if seconds > COSTLY:
            self._allowance.spend(seconds)
        if not aborted:
            if cost is None and seconds < COSTLY:
                self._costs.set(target, Cost.FAST)
            elif cost is Cost.FAST and seconds > COSTLY:
                self._costs.set(target, None)
        elif isinstance(aborted, WouldBlock) or cost is Cost.FAST or first.path in ALWAYS_FAST:
            # It would have to wait for a lock, or it is the I/O thread that waited for the CPU.
            self._pool.add_task(PoolTask(channel, self._handle_in_pool))
        else:
            self._costs.set(target, Cost.SLOW)
            self._slow.add_task(PoolTask(channel, self._handle_slow))

    def _handle_in_pool(self, channel: "Channel", waited: float) -> None:
        first = channel.requests[0]
        begun = time.thread_time()
        self._database.set_deadline(POOL_DEADLINE)
        try:
            channel.service()
        except DeadlineExceeded:
            self._costs.set(target_of(first), Cost.SLOW)
            self._slow.add_task(PoolTask(channel, self._handle_slow))
        else:
            self._learn(first, time.thread_time() - begun)

    def _handle_slow(self, channel: "Channel", waited: float) -> None:
        first = channel.requests[0]
        begun = time.thread_time()
        with self._database.long_read(MAX_WAIT) as is_open:
            is_late = waited > MAX_WAIT or not is_open
            self._database.set_deadline(0 if is_late else SLOW_DEADLINE, is_final=True)
            channel.service()
        if self._database.deadline.is_past() and not is_late:
            self._costs.set(target_of(first), Cost.SLOW)
        elif not is_late:
            self._learn(first, time.thread_time() - begun)

    def _learn(self, request: HTTPRequestParser, seconds: float) -> None:
        """Know the cost of a request that was handled in a pool, in CPU time: it waits for the GIL.

        What was slow may be cached by the next time, and then is known to be fast.
        """
        is_page = request.error or not is_quick(request.path)
        fast, slow = (POOL_DEADLINE, POOL_DEADLINE) if is_page else (COSTLY, LOOP_DEADLINE)
        cost = Cost.FAST if seconds < fast else Cost.SLOW if seconds > slow else None
        self._costs.set(target_of(request), cost)

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5) -> bool:
        """Stop all threads; whether none was left with something to do."""
        pools = (self._writer, self._pool, self._slow)
        stopped = [each.shutdown(cancel_pending, timeout) for each in pools]
        return all(stopped)
