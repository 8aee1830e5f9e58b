"""Which thread handles a request.

| thread | work | why it is bounded |
|---|---|---|
| I/O thread | parses, sends; cached responses, ALWAYS_FAST, API reads | READ_BUDGET, TURN_BUDGET |
| quick thread | what did not fit there; pages, static files, bundles | QUICK_BUDGET, then long |
| long thread | what takes longer; large compression | LONG_DEADLINE, then 503 |
| writer thread | POST /api/v1/widgets/{scope}/{name}…; in a cluster several | one statement |
| publisher thread | requests with a valid token that change something | CHANGE_DEADLINE, then 503 |

Two threads that read SQLite at the same time cost two to three times the CPU of one, since the
sqlite3 module gives the GIL away at every step. So fast reads stay on the I/O thread, and there is
only one quick and one long thread. The budgets are in CPU time of the thread: a request that
exceeds one raises DeadlineExceeded and starts again on the next thread.

The queues of the quick and the long thread are fair by client, so a flood delays itself. A cached
response is sent by the I/O thread even if its budget is spent. Only that thread touches a
connection: the others hand their responses over to it, so no thread waits for a client.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from waitress.task import ThreadedTaskDispatcher

from .. import V1_PREFIX
from ..store.connection.database import Database
from ..store.connection.sqlite import DeadlineExceeded
from .fair_queue import FairQueue
from .http_parser import Parser, Refusal
from .tasks import Response, Task, refuse

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

READ_BUDGET = 0.005  # seconds of CPU time
TURN_BUDGET = 0.01  # seconds of CPU time
QUICK_BUDGET = 0.02  # seconds of CPU time
LONG_DEADLINE = 5.0  # seconds
CHANGE_DEADLINE = 30.0  # seconds
# Flask needs a millisecond to parse a thousand.
MAX_PARAMETERS = 250

TOOK_TOO_LONG = Refusal("503 Service Unavailable", "The request took too long.")
ALWAYS_FAST = {"/api/health", "/api/version", "/api/settings", "/api/widgets/cli-version"}
READ_METHODS = {"GET", "HEAD", "OPTIONS"}


def is_api_read(request: Parser) -> bool:
    """Return whether the response is JSON that SQLite renders: not a page, not a file."""
    path = request.path
    return (
        request.command in READ_METHODS
        and path.startswith("/api/")
        and not path.endswith("/bundle.js")
    )


def is_install(request: Parser) -> bool:
    """Return whether it is POST /api/v1/widgets/{scope}/{name}, or the same with a version."""
    path = request.path
    return (
        request.command == "POST"
        and path.startswith(V1_PREFIX)
        and 1 <= path.count("/", len(V1_PREFIX)) <= 2
    )


class PoolLoad(NamedTuple):
    """The requests that wait for a pool, its threads, and those of them that handle a request."""

    queued: int
    threads: int
    busy: int


class Dispatcher:
    """The threads of the service. The thread that creates it becomes the I/O thread."""

    def __init__(
        self,
        application: "WSGIApplication",
        database: Database,
        wake: Callable[[], None],
        quick_threads: int = 1,
    ) -> None:
        """Take what wakes the I/O thread when a response waits for it."""
        self._application, self._database, self._wake = application, database, wake
        database.mark_io_thread()
        self._quick, self._long, self._writer, self._publisher = pools = [
            ThreadedTaskDispatcher() for _ in range(4)
        ]
        self._quick.queue, self._long.queue = FairQueue(), FairQueue()
        self._publisher.queue = FairQueue()
        counts = (quick_threads, 1, database.writer_threads, 1)
        for pool, count in zip(pools, counts, strict=True):
            pool.set_thread_count(count)
        self._responses: deque[tuple[Task, Response | None]] = deque()
        self._spent_in_turn = 0.0

    def begin_turn(self) -> None:
        """Give the next turn of the event loop its budget."""
        self._spent_in_turn = 0.0

    def dispatch(self, task: Task) -> None:
        """Handle the request on this thread, the I/O thread, or hand it over to another one."""
        request = task.request
        if request.error:
            task.channel.respond(task, refuse(request, request.error))
        elif task.has_token:
            self._queue(self._publisher, task, self._change)
        elif is_install(request):
            self._queue(self._writer, task, self._finish)
        elif is_api_read(request):
            self._try_now(task)
        else:
            self._queue(self._quick, task, self._handle_quickly)

    def discard_change(self, task: Task) -> bool:
        """Remove a change from its queue; return False if it is not there."""
        with self._publisher.lock:
            queue: FairQueue[Task] = self._publisher.queue
            return queue.discard(task)

    def deliver(self) -> None:
        """Send the responses of other threads; call it on the I/O thread."""
        while self._responses:
            task, response = self._responses.popleft()
            try:
                task.channel.respond(task, response)
            except Exception:
                # It logs the error and closes the connection.
                task.channel.handle_error()

    def _queue(
        self, pool: ThreadedTaskDispatcher, task: Task, handle: Callable[[Task], None]
    ) -> None:
        task.handle, task.queued_at = handle, time.monotonic()
        pool.add_task(task)

    def _try_now(self, task: Task) -> None:
        request = task.request
        only_cached = request.path not in ALWAYS_FAST and (
            self._spent_in_turn > TURN_BUDGET or request.query.count("&") > MAX_PARAMETERS
        )
        started = time.thread_time()
        self._database.deadline.set_budget(READ_BUDGET, only_cached=only_cached)
        try:
            response = task.respond(self._application)
        except DeadlineExceeded:
            self._spent_in_turn += time.thread_time() - started
            self._queue(self._quick, task, self._handle_quickly)
        else:
            self._spent_in_turn += time.thread_time() - started
            task.channel.respond(task, response)

    def _handle_quickly(self, task: Task) -> None:
        self._database.deadline.set_budget(QUICK_BUDGET)
        try:
            self._finish(task)
        except DeadlineExceeded:
            self._queue(self._long, task, self._handle_long)

    def _handle_long(self, task: Task) -> None:
        is_late = time.monotonic() - task.queued_at > LONG_DEADLINE
        self._finish_within(task, 0 if is_late else LONG_DEADLINE)

    def _change(self, task: Task) -> None:
        self._finish_within(task, CHANGE_DEADLINE)

    def _finish_within(self, task: Task, seconds: float) -> None:
        self._database.set_deadline(seconds, is_final=True)
        try:
            self._finish(task)
        except DeadlineExceeded:
            # The application responds by itself if a view exceeds it.
            self._hand_over(task, refuse(task.request, TOOK_TOO_LONG))

    def _finish(self, task: Task) -> None:
        self._hand_over(task, task.respond(self._application))

    def _hand_over(self, task: Task, response: Response | None) -> None:
        """Have the I/O thread send the response."""
        self._responses.append((task, response))
        self._wake()

    def loads(self) -> dict[str, PoolLoad]:
        """Return the load of each pool, by its name."""
        pools = {
            "quick": self._quick,
            "long": self._long,
            "writer": self._writer,
            "publisher": self._publisher,
        }
        return {
            name: PoolLoad(len(pool.queue), len(pool.threads), pool.active_count)
            for name, pool in pools.items()
        }

    def shutdown(self) -> None:
        """Stop all threads that are idle; the others end with the process."""
        for pool in (self._quick, self._long, self._writer, self._publisher):
            pool.shutdown(timeout=0.5)
