"""Decides which thread handles a request; docs/internals/architecture.md explains the reasons.

A budget limits the CPU time of a thread. A request that exceeds its budget raises DeadlineExceeded
and starts again on the next thread: first the I/O thread tries it, then the quick thread, then the
long one. Only the I/O thread uses connections: the other threads hand their responses over to it,
so no thread waits for a client.
"""

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..domain.request_kinds import Kind
from ..store.connection.database import Database
from ..store.connection.sqlite import DeadlineExceeded
from .fair_queue import FairQueue
from .http_parser import HttpError
from .uploads import find_token
from .wsgi import HttpResponse, Task, error_response

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

logger = logging.getLogger(__name__)

READ_BUDGET = 0.005  # seconds of CPU time
QUICK_BUDGET = 0.02  # seconds of CPU time
LONG_DEADLINE = 5.0  # seconds
CHANGE_DEADLINE = 30.0  # seconds
# If a request has more parameters than this, the I/O thread responds only from the cache: Flask
# needs a millisecond to parse a thousand parameters.
MAX_PARAMETERS = 250
# How many reads and pages one client may have waiting for the quick and the long thread. Requests
# that the I/O thread handles do not count, nor do files: a dashboard loads all its bundles at once.
MAX_QUEUED_READS = 32

TOOK_TOO_LONG = HttpError("503 Service Unavailable", "The request took too long.")
TOO_MANY_QUEUED = HttpError(
    "503 Service Unavailable", "Too many requests from this client are waiting."
)


class Pool:
    """Threads that handle queued requests; clients take turns in the queue."""

    def __init__(self, threads: int, handle: Callable[[Task], None]) -> None:
        # The number of threads, and how many of them are handling a request.
        self.threads, self.busy = threads, 0
        self._handle = handle
        self.queue: FairQueue[Task] = FairQueue()
        self._changed = threading.Condition()
        for _ in range(threads):
            # A daemon thread does not keep the process alive.
            threading.Thread(target=self._run, daemon=True).start()

    def add(self, task: Task) -> None:
        """Queue the request for one of the threads."""
        task.queued_at = time.monotonic()
        with self._changed:
            self.queue.append(task)
            self._changed.notify()

    def count_reads(self, client: str) -> int:
        """Return how many requests from one client are waiting, not counting requests for files."""
        with self._changed:
            line = self.queue.line(client)
            return sum(task.request.kind is not Kind.FILE for task in line)

    def clear(self) -> None:
        """Discard the waiting requests."""
        with self._changed:
            self.queue = FairQueue()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self.queue.length:
                    self._changed.wait()
                task = self.queue.popleft()
                self.busy += 1
            self._handle(task)
            with self._changed:
                self.busy -= 1


class Dispatcher:
    """The service's threads. The thread that creates the dispatcher is the I/O thread."""

    def __init__(
        self, application: "WSGIApplication", database: Database, *, testing: bool = False
    ) -> None:
        """Start the threads.

        In testing mode, requests may be delayed on purpose, so each request gets its own thread.
        """
        self._application, self._database, self._testing = application, database, testing
        database.mark_io_thread()
        # Writing a byte to this socket pair wakes the I/O thread if it is waiting for events.
        self.wake_socket, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        self.wake_descriptor = self._waking.fileno()
        self.pools = {
            "quick": Pool(1, partial(self._guard, self._read_quickly)),
            "long": Pool(1, partial(self._guard, self._read_long)),
            "writer": Pool(database.writer_threads, partial(self._guard, self._install)),
            "publisher": Pool(1, partial(self._guard, self._change)),
            # This pool has its own thread because checking an id token may wait for its issuer.
            "session": Pool(1, partial(self._guard, self._change)),
        }
        self._responses: deque[tuple[Task, HttpResponse | None]] = deque()

    def _guard(self, handle: Callable[[Task], None], task: Task) -> None:
        """Handle the request; after an unexpected error, close its connection."""
        try:
            handle(task)
        except BaseException:
            logger.exception("A request failed.")
            self._hand_over(task, None)

    def dispatch(self, task: Task) -> None:
        """Handle the request on this thread (the I/O thread) or hand it over to another thread."""
        request, kind = task.request, task.request.kind
        if request.error:
            task.respond(task, error_response(request, request.error))
        elif kind is Kind.CACHEABLE or kind is Kind.API_READ:
            self._try_now(task)
        elif kind is Kind.INSTALL:
            self._add("writer", task)
        elif kind is Kind.SESSION:
            self._add("session", task)
        elif kind is Kind.CHANGE and self._may_have_token(task):
            self._add("publisher", task)
        else:
            self._queue_read(task)

    def _may_have_token(self, task: Task) -> bool:
        # A request whose body was rejected changes nothing, so a thread for reads handles it.
        if task.request.rejected_body:
            return False
        try:
            return find_token(self._database, task.request) is not None
        except DeadlineExceeded:
            # The application checks the token later, on the publisher thread.
            return True

    def deliver(self) -> None:
        """Send the responses from other threads; only the I/O thread may call this."""
        while self._responses:
            task, response = self._responses.popleft()
            try:
                task.respond(task, response)
            except Exception:
                logger.exception("A response failed.")
                task.respond(task, None)

    def _try_now(self, task: Task) -> None:
        # Respond only from the cache if no other thread could take over the request.
        has_many_parameters = task.request.query.count("&") > MAX_PARAMETERS
        only_cached = has_many_parameters or self._has_full_queue(task)
        self._database.deadline.set_budget(READ_BUDGET, only_cached=only_cached)
        try:
            response = task.run(self._application)
        except DeadlineExceeded:
            self._queue_read(task)
        else:
            task.respond(task, response)

    def _has_full_queue(self, task: Task) -> bool:
        """Return whether the client already has the maximum number of waiting reads."""
        quick, long = self.pools["quick"], self.pools["long"]
        # Every request runs this check, so it takes no lock while the queues are short.
        if quick.queue.length + long.queue.length < MAX_QUEUED_READS:
            return False
        waiting = quick.count_reads(task.client) + long.count_reads(task.client)
        return waiting >= MAX_QUEUED_READS

    def _queue_read(self, task: Task) -> None:
        """Let another thread handle a read, a page or a file."""
        kind = task.request.kind
        if kind is not Kind.FILE and self._has_full_queue(task):
            task.respond(task, error_response(task.request, TOO_MANY_QUEUED))
        else:
            # A form can contain a long list, which takes longer to handle than a page.
            self._add("long" if kind is Kind.FORM else "quick", task)

    def _add(self, pool: str, task: Task) -> None:
        if self._testing:
            arguments = self._change, task
            threading.Thread(target=self._guard, args=arguments, daemon=True).start()
        else:
            self.pools[pool].add(task)

    def _read_quickly(self, task: Task) -> None:
        if self._is_abandoned(task):
            return
        self._database.deadline.set_budget(QUICK_BUDGET)
        try:
            self._finish(task)
        except DeadlineExceeded:
            self._add("long", task)

    def _read_long(self, task: Task) -> None:
        if self._is_abandoned(task):
            return
        is_late = time.monotonic() - task.queued_at > LONG_DEADLINE
        self._finish_within(task, 0 if is_late else LONG_DEADLINE)

    def _is_abandoned(self, task: Task) -> bool:
        """Return whether a GET or HEAD client has disconnected; if so, close the connection."""
        is_abandoned = task.request.method in ("GET", "HEAD") and task.is_abandoned()
        if is_abandoned:
            self._hand_over(task, None)
        return is_abandoned

    def _change(self, task: Task) -> None:
        self._finish_within(task, CHANGE_DEADLINE)

    def _finish_within(self, task: Task, seconds: float) -> None:
        self._database.deadline.set(seconds, is_final=True)
        try:
            self._finish(task)
        except DeadlineExceeded:
            # Views handle their own deadline; this catches a deadline in the code around the view.
            self._hand_over(task, error_response(task.request, TOOK_TOO_LONG))

    def _install(self, task: Task) -> None:
        self._database.deadline.arrived_at = task.queued_at
        self._finish(task)

    def _finish(self, task: Task) -> None:
        self._hand_over(task, task.run(self._application))

    def _hand_over(self, task: Task, response: HttpResponse | None) -> None:
        """Hand the response over to the I/O thread, which sends it."""
        self._responses.append((task, response))
        # If the socket's buffer is full, the I/O thread wakes up anyway.
        with suppress(BlockingIOError):
            self._waking.send(b"\0")
