"""Which thread handles a request.

Handing a fast read to a worker costs more GIL switches than the read itself. So fast reads run on
the I/O thread, and a request there holds up all others. These limits keep that short:

- A read on the I/O thread that exceeds LOOP_DEADLINE is aborted, and begins again in the slow pool.
- Once a turn of the event loop has spent TURN_BUDGET on requests, the rest of that turn go to a
  pool, so that many requests at once add up to no more.
- A request that was aborted goes to the slow pool directly, until it has been handled there.
- Costly and aborted reads may take LOOP_SHARE of the I/O thread's time. Beyond it, requests with a
  query that are not known to be fast go to a pool: a client that varies its query would otherwise
  have the I/O thread try each one.

Installs have one thread to themselves, since only one can write at a time. Half of the other
threads are the slow pool. The other half, for pages, files and the rest of a turn, is kept free of
slow reads in the same way, by PAGE_DEADLINE and PAGE_SHARE. So neither a page nor a fast read waits
for slow ones, however many there are. In the slow pool, a request that waited longer than MAX_WAIT
or exceeds SLOW_DEADLINE is refused with 503.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from waitress.parser import HTTPRequestParser
from waitress.task import ThreadedTaskDispatcher

from catalog.costs import Allowance, Cost, RecentCosts
from catalog.db import Database
from catalog.sqlite_file import DeadlineExceeded, WouldBlock

if TYPE_CHECKING:
    from catalog.connections import Channel

LOOP_DEADLINE = 0.025  # seconds
TURN_BUDGET = 0.1  # seconds
PAGE_DEADLINE = 0.5  # seconds
SLOW_DEADLINE = 5.0  # seconds
MAX_WAIT = 2.0  # seconds
# A read on the I/O thread that takes longer is a costly one.
COSTLY = 0.01  # seconds
LOOP_SHARE, LOOP_SAVINGS = 0.1, 0.25
PAGE_SHARE, PAGE_SAVINGS = 0.25, 2.0
KNOWN_REQUESTS = 5_000

# Handled on the I/O thread whatever else it has to do: they cost little, and tell that it is alive.
ALWAYS_FAST = {"/api/health", "/api/version", "/api/settings", "/api/widgets/cli-version"}


def is_quick(path: str) -> bool:
    """Whether the response is JSON that SQLite writes: no page to render, no file to read."""
    return path.startswith("/api/") and not path.endswith("/bundle.js")


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
        self._writer, self._pages, self._slow = (ThreadedTaskDispatcher() for _ in range(3))
        self._writer.set_thread_count(1)
        self._slow.set_thread_count(max(threads // 2, 1))
        self._pages.set_thread_count(max(threads - threads // 2, 1))
        self._spent_in_turn = 0.0
        self._costs = RecentCosts(KNOWN_REQUESTS)
        self._loop_allowance = Allowance(LOOP_SHARE, LOOP_SAVINGS)
        self._page_allowance = Allowance(PAGE_SHARE, PAGE_SAVINGS)

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
        if not is_quick(first.path) or first.path in ALWAYS_FAST:
            return is_quick(first.path)
        cost = self._costs.get(first.request_uri)
        is_unknown = cost is None and first.query
        return not (
            cost is Cost.SLOW
            or self._spent_in_turn > TURN_BUDGET
            or (is_unknown and self._loop_allowance.is_spent())
        )

    def _add_to_pool(self, channel: "Channel") -> None:
        first = channel.requests[0]
        cost = None if first.error else self._costs.get(first.request_uri)
        is_unknown = cost is None and not first.error and first.query
        if cost is Cost.SLOW or (is_unknown and self._page_allowance.is_spent()):
            self._slow.add_task(PoolTask(channel, self._handle_slow))
        else:
            self._pages.add_task(PoolTask(channel, self._handle_page))

    def answer(self, channel: "Channel") -> None:
        """Handle the channel's first request here, or in a pool if it exceeds the deadline."""
        channel.is_next, channel.in_turn = False, True
        target = "" if channel.requests[0].error else channel.requests[0].request_uri
        begun = time.monotonic()
        self._database.set_deadline(LOOP_DEADLINE)
        cost: Cost | None = Cost.FAST
        try:
            channel.service()
        except WouldBlock:
            self._pages.add_task(PoolTask(channel, self._handle_page))
        except DeadlineExceeded:
            cost = Cost.SLOW
            self._slow.add_task(PoolTask(channel, self._handle_slow))
        finally:
            channel.in_turn = False
        seconds = time.monotonic() - begun
        self._spent_in_turn += seconds
        if seconds > COSTLY:
            self._loop_allowance.spend(seconds)
            cost = cost if cost is Cost.SLOW else None
        if target and self._costs.get(target) is not cost:
            self._costs.set(target, cost)

    def _handle_page(self, channel: "Channel", waited: float) -> None:
        first = channel.requests[0]
        self._database.set_deadline(PAGE_DEADLINE)
        try:
            channel.service()
        except DeadlineExceeded:
            self._page_allowance.spend(PAGE_DEADLINE)
            self._costs.set(first.request_uri, Cost.SLOW)
            self._slow.add_task(PoolTask(channel, self._handle_slow))
        else:
            if not (first.error or is_quick(first.path)):
                self._costs.set(first.request_uri, Cost.FAST)

    def _handle_slow(self, channel: "Channel", waited: float) -> None:
        first = channel.requests[0]
        with self._database.long_read(MAX_WAIT) as is_open:
            is_late = waited > MAX_WAIT or not is_open
            self._database.set_deadline(0 if is_late else SLOW_DEADLINE, is_final=True)
            channel.service()
            # What was rendered may be cached now, and then is fast.
            if not self._database.deadline.is_past():
                self._costs.set(first.request_uri, None)

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5) -> bool:
        """Stop all threads; whether none was left with something to do."""
        pools = (self._writer, self._pages, self._slow)
        stopped = [each.shutdown(cancel_pending, timeout) for each in pools]
        return all(stopped)
