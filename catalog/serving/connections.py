"""One client's connection, from accept to close. Only the I/O thread uses it.

A connection is always in one phase, and each phase has one deadline:

1. RECEIVING. A new connection waits for its first request, or the rest of a request is missing. The
   client has CATALOG_REQUEST_TIMEOUT, or for a large body the time that uploads.py gives it. Then
   it gets 408, or no response if it has sent nothing.
2. HANDLING. dispatch.py chooses a thread and has deadlines of its own.
3. SENDING. The client must accept a byte of the response within CATALOG_REQUEST_TIMEOUT. Input
   waits until the response has been sent.
4. IDLE. The client has CATALOG_IDLE_TIMEOUT to begin the next request.
5. DISCARDING. After an error, or when the service stops, the client may still be sending. If the
   server closed the socket then, the kernel would reset the connection and discard the response. So
   only the sending side is shut down, and input is discarded until the client closes, is quiet for
   QUIET_TIMEOUT, or has sent for DISCARD_TIMEOUT.
6. CLOSED. The event loop closes the socket at the end of its turn.

In one turn of the event loop, a connection reads once and parses at most one request.
"""

import contextlib
import math
import select
import socket
import struct
import time
from typing import TYPE_CHECKING

from waitress.buffers import ReadOnlyFileBasedBuffer

from ..domain.client_addresses import client_network
from .context import Context
from .http_parser import TIMED_OUT, HttpRequest
from .sending import Piece, Sender
from .wsgi import HttpResponse, Task, build_head

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

DISCARD_TIMEOUT = 30  # seconds
QUIET_TIMEOUT = 5  # seconds
# A body of at most this size is joined with the head, so that a single system call sends both.
MAX_JOINED = 48 * 1024  # bytes
# The maximum number of bytes to read in one turn: READ_BYTES for requests, which must be parsed,
# and UPLOAD_BYTES for bodies with a known length.
READ_BYTES = 4 * 1024
UPLOAD_BYTES = 64 * 1024
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# The SO_LINGER value that makes close() reset the connection and free the kernel's buffers.
RESET = struct.pack("ii", 1, 0)


class Phase:
    """What a connection is doing; see the module docstring.

    The phases are plain numbers: looking up an Enum member takes five times as long.
    """

    RECEIVING, HANDLING, SENDING, IDLE, DISCARDING, CLOSED = range(6)


class Connection:
    """A connection, its phase and the phase's deadline."""

    phase: int
    deadline: float
    # The event loop sets these: the events that it waits for, and whether the connection is queued.
    registered_events = 0
    is_queued = False
    # The request that is being received.
    _request: HttpRequest | None = None
    # The response that is being sent: its request, the response itself, and the number of bytes
    # sent before its body.
    _response: tuple[HttpRequest, HttpResponse, int] | None = None
    # _closes is true if the connection is closed after the response, and _discards_input if input
    # is discarded first.
    _closes = _discards_input = False
    _discard_end = 0.0

    def __init__(
        self,
        context: Context,
        environ: "WSGIEnvironment",
        connected: socket.socket,
        address: tuple[str, int],
    ) -> None:
        self._context, self.socket, self.address = context, connected, address
        host, port = address
        remote = {"REMOTE_ADDR": host, "REMOTE_HOST": host, "REMOTE_PORT": str(port)}
        self._environ = environ | remote
        # The client, for fair queueing. All connections of a proxy belong to one client.
        self.client = client_network(host)
        self.sender = Sender(connected)
        # Input that has not been parsed yet, because it follows the request that is being handled.
        self._unparsed = b""
        connected.setblocking(False)
        self._enter(Phase.RECEIVING, context.request_timeout)

    def _enter(self, phase: int, seconds: float = math.inf) -> None:
        self.phase, self.deadline = phase, time.monotonic() + seconds
        self._context.touched[self] = None

    @property
    def is_idle(self) -> bool:
        """Whether no part of a request has arrived and no response is due."""
        if self.phase == Phase.RECEIVING:
            return self._request is None
        return self.phase == Phase.CLOSED or (self.phase == Phase.IDLE and not self._unparsed)

    @property
    def has_input(self) -> bool:
        """Whether a pipelined request is waiting to be parsed."""
        return bool(self._unparsed) and self.phase == Phase.IDLE

    def is_abandoned(self) -> bool:
        """Return whether the client can no longer receive a response; any thread may call this.

        A client that has only shut down its sending side still gets its response. Over TCP, a
        client that closes normally looks the same, so this detects only resets. On Unix sockets it
        detects every close.
        """
        if self.phase == Phase.CLOSED:
            return True
        poll = select.poll()
        # poll() without events reports only errors and a connection that is closed in both
        # directions.
        poll.register(self.socket, 0)
        return bool(poll.poll(0))

    def receive(self) -> None:
        """Read new input from the client, or parse input that was read before."""
        if self._unparsed:
            self._parse()
            return
        is_parsed = self._request is None or not self._request.content_length
        is_small = is_parsed and self.phase != Phase.DISCARDING
        try:
            data = self.socket.recv(READ_BYTES if is_small else UPLOAD_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
        elif self.phase == Phase.DISCARDING:
            self.deadline = min(self._discard_end, time.monotonic() + QUIET_TIMEOUT)
        else:
            self._unparsed = data
            self._parse()

    def _parse(self) -> None:
        """Parse the input up to the end of a request, and dispatch the request."""
        context = self._context
        request = self._request
        if request is None:
            request = self._request = HttpRequest(context.max_body)
        while self._unparsed and not request.is_complete:
            self._unparsed = self._unparsed[request.receive(self._unparsed) :]
            if request.needs_admission:
                seconds = context.uploads.admit(request, self._find_client(request))
                self._enter(Phase.RECEIVING, seconds)
        if request.is_complete:
            self._dispatch(request)
            return
        if self.phase == Phase.IDLE:
            self._enter(Phase.RECEIVING, context.request_timeout)
        if request.expects_continue and request.has_head:
            request.expects_continue = False
            self._send_continue()

    def _send_continue(self) -> None:
        try:
            is_sent = self.socket.send(CONTINUE) == len(CONTINUE)
        except OSError:
            is_sent = False
        if not is_sent:
            # The kernel's buffer is full: the client has not even read the previous response.
            self.close()

    def _find_client(self, request: HttpRequest) -> str:
        """Return the client that sent the request, directly or through a trusted proxy."""
        forwarded_for = request.headers.get("HTTP_X_FORWARDED_FOR", "")
        return self._context.proxies.find_client(self.address[0], forwarded_for)

    def _dispatch(self, request: HttpRequest) -> None:
        self._request = None
        self._enter(Phase.HANDLING)
        client = self._find_client(request)
        task = Task(self.respond, self.is_abandoned, self._environ, request, client)
        self._context.dispatcher.dispatch(task)

    def respond(self, task: Task, response: HttpResponse | None) -> None:
        """Send the response to the request that is being handled; None closes the connection."""
        context, request = self._context, task.request
        if request.has_body:
            request.close()
            context.uploads.end(request)
        if response is None:
            self.drop()
            return
        # When the service stops, pipelined requests still get their responses.
        is_last = context.is_stopping and not self._unparsed
        head, self._closes = build_head(request, response, is_last=is_last)
        self._discards_input = request.is_cut_off
        self._response = request, response, self.sender.sent + len(head)
        pieces: tuple[Piece, ...]
        if request.method == "HEAD" or response.status[:3] in ("204", "304"):
            pieces = (head,)
        elif isinstance(response.body, ReadOnlyFileBasedBuffer):
            pieces = head, response.body
        elif response.length <= MAX_JOINED:
            pieces = (b"".join([head, *response.body]),)
        else:
            pieces = head, *response.body
        self.send(*pieces)

    def send(self, *pieces: Piece) -> None:
        """Add these pieces to the response, and send as much of it as possible."""
        sent = self.sender.sent
        try:
            self.sender.send(*pieces)
        except OSError:
            self.close()
            return
        if not self.sender:
            self._end_response()
        elif self.sender.sent > sent or self.phase == Phase.HANDLING:
            self._enter(Phase.SENDING, self._context.request_timeout)

    def _end_response(self) -> None:
        """Start the next phase after a response has been sent completely."""
        self._log_response()
        if not self._closes:
            self._enter(Phase.IDLE, self._context.idle_timeout)
        elif self._discards_input or self._context.is_stopping:
            self._discard_input()
        else:
            self.close()

    def _log_response(self) -> None:
        """Log the response with the number of bytes sent, and close its file."""
        if self._response is not None:
            request, response, body_start = self._response
            self._response = None
            response.close()
            size = max(0, self.sender.sent - body_start)
            self._context.log(request, response, self.address[0], size)

    def _discard_input(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        # The rest of a rejected body must not be parsed as a request.
        self._unparsed = b""
        self._discard_end = time.monotonic() + DISCARD_TIMEOUT
        self._enter(Phase.DISCARDING, QUIET_TIMEOUT)

    def time_out(self) -> None:
        """End the phase, because its deadline has passed; an incomplete request gets 408."""
        if self.phase == Phase.RECEIVING and self._request is not None:
            self._request.fail(TIMED_OUT)
            self._dispatch(self._request)
        else:
            self.drop()

    def drop(self) -> None:
        """Close the connection in any phase; a response that is being sent is truncated."""
        if self.phase == Phase.SENDING:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close()

    def close(self) -> None:
        """Log an unfinished response, free the request, and close the connection."""
        if self.phase == Phase.CLOSED:
            return
        self._log_response()
        # By default, the kernel would retransmit the rest of a response for minutes. Only Linux has
        # TCP_USER_TIMEOUT.
        with contextlib.suppress(AttributeError, OSError):
            timeout = self._context.request_timeout * 1000
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
        if self._request is not None:
            self._request.close()
            self._context.uploads.end(self._request)
        self._enter(Phase.CLOSED)
