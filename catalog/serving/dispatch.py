"""Which thread handles a request.

Handing a fast read to a worker costs more GIL switches than the read itself: on the I/O thread it
takes 2.2 times less CPU than in waitress's thread pool. So there are five places:

- I/O thread: reads of the API that are fast, or not known to be slow.
- Writer thread: every POST of a client without a token. Only one install can write at a time; in a
  cluster, where an install waits for other machines, several can.
- Publishing thread: changes by the holders of tokens, and the writing of what they upload, in the
  order in which it arrives. A bundle takes long to store, and no install waits for it.
- Pool, half of CATALOG_THREADS: pages, bundles, and reads that the I/O thread has no time for.
- Slow pool, the other half: reads that are known to be slow, and new queries that the I/O thread
  has no time to try. A page or a fast read never queues behind these.

The I/O thread serves every connection, so a slow read there would delay all clients. These rules
prevent it; docs/reliability.md promises each of them ("A slow read does not delay others"):

- LOOP_DEADLINE: a read that takes longer on the I/O thread is aborted and runs again in a pool.
- TURN_BUDGET: once the reads of one turn of the event loop took that long, the rest of them go to
  a pool.
- SLOW_EXPIRY: a read that exceeded LOOP_DEADLINE, in any thread, goes to the slow pool for this
  time, or until it is fast there because its response is cached.
- LOOP_SHARE: reads of more than MAX_FAST may use this share of the I/O thread's time. Once it is
  used up, only reads that were fast the last time run there. Without this rule a client that sends
  a different slow query each time would have every one of them tried for LOOP_DEADLINE.
- POOL_DEADLINE: what takes longer in the pool is aborted and runs again in the slow pool.
- MAX_WAIT and SLOW_DEADLINE: in the slow pool, a request that waited or runs for longer gets 503.

Errors of HTTP syntax and the paths in ALWAYS_FAST cost almost nothing and always run on the I/O
thread, regardless of its budgets, so that health checks get a response.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from waitress.task import ThreadedTaskDispatcher

from catalog.serving.costs import Cost, RecentCosts, TokenBucket
from catalog.serving.http_parser import Parser
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DeadlineExceeded, WouldBlock

if TYPE_CHECKING:
    from catalog.serving.connections import Channel

LOOP_DEADLINE = 0.025  # seconds
TURN_BUDGET = 0.1  # seconds
POOL_DEADLINE = 2.0  # seconds
SLOW_DEADLINE = 5.0  # seconds
MAX_WAIT = 5.0  # seconds
# A read is fast if it takes less.
MAX_FAST = 0.01  # seconds
LOOP_SHARE = 0.1
# The most of LOOP_SHARE that can be saved up for a burst.
LOOP_BURST = 0.25  # seconds
SLOW_EXPIRY = 10.0  # seconds
MAX_COSTS = 5_000

ALWAYS_FAST = {"/api/health", "/api/version", "/api/settings", "/api/widgets/cli-version"}


def is_trivial(request: Parser) -> bool:
    """Return whether the response costs almost nothing."""
    return request.error is not None or request.path in ALWAYS_FAST


def is_api_read(path: str) -> bool:
    """Return whether the response is JSON that SQLite renders: not a page, not a file."""
    return path.startswith("/api/") and not path.endswith("/bundle.js")


@dataclass
class PoolTask:
    """A request in the queue of a pool."""

    channel: "Channel"
    handle: Callable[["PoolTask"], None]
    queued_at: float = field(default_factory=time.monotonic)

    def service(self) -> None:
        """Handle the request; the pool calls this on one of its threads."""
        self.handle(self)

    def cancel(self) -> None:
        """Close the connection; the pool calls this when it shuts down."""
        self.channel.cancel()


@dataclass
class BackgroundTask:
    """A function in the queue of a pool that belongs to no request."""

    service: Callable[[], None]

    def cancel(self) -> None:
        """Do nothing; the pool calls this when it shuts down."""


class PoolLoad(NamedTuple):
    """The requests that wait for a pool, its threads, and those of them that handle a request."""

    queued: int
    threads: int
    busy: int


class Dispatcher:
    """Replacement of waitress's dispatcher. The thread that creates it becomes the I/O thread."""

    def __init__(self, database: Database, threads: int) -> None:
        self._database = database
        self._io_thread = threading.get_ident()
        database.mark_io_thread()
        self._writer, self._publisher = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self._pool, self._slow_pool = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self._writer.set_thread_count(database.writer_threads)
        self._publisher.set_thread_count(1)
        self._pool.set_thread_count(threads - threads // 2)
        self._slow_pool.set_thread_count(max(threads // 2, 1))
        self._spent_in_turn = 0.0
        self._costs = RecentCosts(MAX_COSTS, SLOW_EXPIRY)
        self._loop_budget = TokenBucket(LOOP_SHARE, LOOP_BURST)

    def on_io_thread(self) -> bool:
        """Return whether the calling thread is the I/O thread."""
        return threading.get_ident() == self._io_thread

    def begin_turn(self) -> None:
        """Give the next turn of the event loop its budget."""
        self._spent_in_turn = 0.0

    def add_task(self, channel: "Channel") -> None:
        """Choose the thread for the channel's first request and hand it over.

        For the I/O thread, only a flag is set: the caller holds a lock of the channel and calls
        handle_on_io_thread() when it has released it.
        """
        request = channel.requests[0]
        if request.command != "GET" and not request.error and request.is_change:
            self._publisher.add_task(channel)
        elif request.command == "POST" and not request.error:
            self._writer.add_task(channel)
        elif self.on_io_thread() and not channel.is_on_io_thread and self._has_time(request):
            channel.is_for_io_thread = True
        else:
            # Also the next of several pipelined requests, while the I/O thread handles the first.
            self._add_to_pool(channel)

    def _has_time(self, request: Parser) -> bool:
        """Return whether the I/O thread may handle the request in this turn."""
        if is_trivial(request):
            return True
        if not is_api_read(request.path) or self._spent_in_turn > TURN_BUDGET:
            return False
        cost = self._costs.get(request.first_line)
        return cost is Cost.FAST or (cost is None and not self._loop_budget.is_empty())

    def _add_to_pool(self, channel: "Channel") -> None:
        request = channel.requests[0]
        cost = self._cost(request)
        is_new_query = cost is None and request.query and is_api_read(request.path)
        if cost is Cost.SLOW or is_new_query:
            self._slow_pool.add_task(PoolTask(channel, self._handle_in_slow_pool))
        else:
            self._pool.add_task(PoolTask(channel, self._handle_in_pool))

    def _cost(self, request: Parser) -> Cost | None:
        return Cost.FAST if is_trivial(request) else self._costs.get(request.first_line)

    def handle_on_io_thread(self, channel: "Channel") -> None:
        """Handle the channel's first request, or hand it to a pool if it exceeds LOOP_DEADLINE."""
        channel.is_for_io_thread, channel.is_on_io_thread = False, True
        request = channel.requests[0]
        started = time.monotonic()
        self._database.set_deadline(LOOP_DEADLINE)
        aborted: DeadlineExceeded | None = None
        try:
            channel.service()
        except DeadlineExceeded as error:
            aborted = error
        finally:
            channel.is_on_io_thread = False
        seconds = time.monotonic() - started
        self._spent_in_turn += seconds
        if seconds > MAX_FAST:
            self._loop_budget.spend(seconds)
        cost = self._cost(request)
        if not aborted:
            new_cost = Cost.FAST if seconds < MAX_FAST else None
            if cost is not new_cost:
                self._costs.set(request.first_line, new_cost)
        elif isinstance(aborted, WouldBlock) or cost is Cost.FAST:
            # It needs a lock that another thread or process holds; or it is a fast read, and the
            # I/O thread waited for the CPU.
            self._pool.add_task(PoolTask(channel, self._handle_in_pool))
        else:
            self._costs.set(request.first_line, Cost.SLOW)
            self._slow_pool.add_task(PoolTask(channel, self._handle_in_slow_pool))

    def _handle_in_pool(self, task: PoolTask) -> None:
        request = task.channel.requests[0]
        started = time.thread_time()
        self._database.set_deadline(POOL_DEADLINE)
        try:
            task.channel.service()
        except DeadlineExceeded:
            self._costs.set(request.first_line, Cost.SLOW)
            self._slow_pool.add_task(PoolTask(task.channel, self._handle_in_slow_pool))
        else:
            self._set_cost(request, time.thread_time() - started)

    def _handle_in_slow_pool(self, task: PoolTask) -> None:
        request = task.channel.requests[0]
        waited = time.monotonic() - task.queued_at
        started = time.thread_time()
        is_late = waited > MAX_WAIT
        self._database.set_deadline(0 if is_late else SLOW_DEADLINE, is_final=True)
        task.channel.service()
        if not self._database.deadline.is_past():
            self._set_cost(request, time.thread_time() - started)

    def _set_cost(self, request: Parser, cpu_seconds: float) -> None:
        """Remember the cost of a read in a pool: CPU time, as the thread also waits for the GIL."""
        if is_api_read(request.path) and not is_trivial(request):
            fast, slow = cpu_seconds < MAX_FAST, cpu_seconds > LOOP_DEADLINE
            cost = Cost.FAST if fast else Cost.SLOW if slow else None
            self._costs.set(request.first_line, cost)

    def run_in_worker(self, job: Callable[[], None]) -> None:
        """Run the function in the slow pool, where no page or fast read waits for it."""
        self._slow_pool.add_task(BackgroundTask(job))

    def run_in_publisher(self, job: Callable[[], None]) -> None:
        """Run the function on the publishing thread."""
        self._publisher.add_task(BackgroundTask(job))

    def loads(self) -> dict[str, PoolLoad]:
        """Return the load of each pool, by its name."""
        pools = {
            "writer": self._writer,
            "publisher": self._publisher,
            "pool": self._pool,
            "slow": self._slow_pool,
        }
        return {
            name: PoolLoad(len(pool.queue), len(pool.threads), pool.active_count)
            for name, pool in pools.items()
        }

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5) -> bool:
        """Stop all threads; return whether all of them stopped in time."""
        pools = (self._writer, self._publisher, self._pool, self._slow_pool)
        stopped = [pool.shutdown(cancel_pending, timeout) for pool in pools]
        return all(stopped)
