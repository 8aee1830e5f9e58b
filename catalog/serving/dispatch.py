"""Which thread handles a request; docs/internals/architecture.md has the table and the reasons.

The budgets are in CPU time of the thread. A request that exceeds one raises DeadlineExceeded and
starts again on the next thread: the I/O thread tries it, then the quick thread, then the long one.
A turn of the event loop ends when it has spent its time, see event_loop.py. Only the I/O thread
touches a connection: the others hand their responses over to it, so no thread waits for a client.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import V1_PREFIX
from ..store.connection.database import Database
from ..store.connection.sqlite import DeadlineExceeded
from .fair_queue import FairQueue
from .http_parser import Parser, Refusal
from .tasks import Response, Task, describe_server, refuse

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

logger = logging.getLogger(__name__)

READ_BUDGET = 0.005  # seconds of CPU time
QUICK_BUDGET = 0.02  # seconds of CPU time
LONG_DEADLINE = 5.0  # seconds
CHANGE_DEADLINE = 30.0  # seconds
# Flask needs a millisecond to parse a thousand.
MAX_PARAMETERS = 250

TOOK_TOO_LONG = Refusal("503 Service Unavailable", "The request took too long.")
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


class Pool:
    """Threads that handle requests from a queue that is fair by client."""

    def __init__(self, threads: int, handle: Callable[[Task], None]) -> None:
        # How many threads there are, and how many of them handle a request.
        self.threads, self.busy = threads, 0
        self._handle = handle
        self._queue: FairQueue[Task] = FairQueue()
        self._changed = threading.Condition()
        for _ in range(threads):
            # A thread that is busy ends with the process.
            threading.Thread(target=self._run, daemon=True).start()

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._queue)

    def add(self, task: Task) -> None:
        """Have one of the threads handle the request."""
        task.queued_at = time.monotonic()
        with self._changed:
            self._queue.append(task)
            self._changed.notify()

    def clear(self) -> None:
        """Forget the requests that wait."""
        with self._changed:
            self._queue = FairQueue()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                task = self._queue.popleft()
                self.busy += 1
            try:
                self._handle(task)
            except BaseException:
                logger.exception("A request failed.")
            with self._changed:
                self.busy -= 1


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
        self.pools = {
            "quick": Pool(quick_threads, self._handle_quickly),
            "long": Pool(1, self._handle_long),
            "writer": Pool(database.writer_threads, self._finish),
            "publisher": Pool(1, lambda task: self._finish_within(task, CHANGE_DEADLINE)),
        }
        self._responses: deque[tuple[Task, Response | None]] = deque()

    def dispatch(self, task: Task) -> None:
        """Handle the request on this thread, the I/O thread, or hand it over to another one."""
        request = task.request
        if request.error:
            task.respond(task, refuse(request, request.error))
        elif request.path == "*":
            task.respond(task, describe_server())
        elif task.has_token:
            self.pools["publisher"].add(task)
        elif is_install(request):
            self.pools["writer"].add(task)
        elif request.is_form:
            # A long list takes longer than a page may.
            self.pools["long"].add(task)
        elif is_api_read(request):
            self._try_now(task)
        else:
            self.pools["quick"].add(task)

    def deliver(self) -> None:
        """Send the responses of other threads; call it on the I/O thread."""
        while self._responses:
            task, response = self._responses.popleft()
            try:
                task.respond(task, response)
            except Exception:
                logger.exception("A response failed.")
                task.respond(task, None)

    def _try_now(self, task: Task) -> None:
        only_cached = task.request.query.count("&") > MAX_PARAMETERS
        self._database.deadline.set_budget(READ_BUDGET, only_cached=only_cached)
        try:
            response = task.run(self._application)
        except DeadlineExceeded:
            self.pools["quick"].add(task)
        else:
            task.respond(task, response)

    def _handle_quickly(self, task: Task) -> None:
        self._database.deadline.set_budget(QUICK_BUDGET)
        try:
            self._finish(task)
        except DeadlineExceeded:
            self.pools["long"].add(task)

    def _handle_long(self, task: Task) -> None:
        is_late = time.monotonic() - task.queued_at > LONG_DEADLINE
        self._finish_within(task, 0 if is_late else LONG_DEADLINE)

    def _finish_within(self, task: Task, seconds: float) -> None:
        self._database.deadline.set(seconds, is_final=True)
        try:
            self._finish(task)
        except DeadlineExceeded:
            # The application responds by itself if a view exceeds it.
            self._hand_over(task, refuse(task.request, TOOK_TOO_LONG))

    def _finish(self, task: Task) -> None:
        self._hand_over(task, task.run(self._application))

    def _hand_over(self, task: Task, response: Response | None) -> None:
        """Have the I/O thread send the response."""
        self._responses.append((task, response))
        self._wake()
