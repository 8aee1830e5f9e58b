"""One client's connection, from accept to close. Only the I/O thread uses it.

A connection goes through these phases:

1. Receiving. The client has CATALOG_REQUEST_TIMEOUT to send a complete request. If it does not, it
   gets 408, or no response if it sent nothing. A large body, see uploads.py, must arrive at a rate
   instead.
2. Handling. dispatch.py chooses a thread, and has deadlines of its own.
3. Sending. The client must take the response at MIN_RATE; its deadline moves with the bytes that it
   acknowledges. The next request is parsed when the response has been sent.
4. Idle. The client has CATALOG_IDLE_TIMEOUT to begin the next request; then phase 1 follows.
5. Half-closed. After an error, or when the service stops, the client may still be sending. If the
   server closed the socket then, the kernel would reset the connection and discard the response. So
   only the sending side is shut down, and input is discarded until the client closes.

One request of a connection is parsed in each turn of the event loop, and at most READ_BYTES of it.
"""

import contextlib
import math
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.buffers import ReadOnlyFileBasedBuffer

from ..store.connection.sqlite import DeadlineExceeded
from .context import Context
from .http_parser import TIMED_OUT, Parser
from .proxies import client_network
from .sending import MAX_LEFT_TO_KERNEL, Piece, Sender
from .tasks import Response, Task, build_head
from .uploads import Upload

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

HALF_CLOSED_TIMEOUT = 2  # seconds
# Up to this size, head and body are joined and sent with one system call. Joining copies the body.
MAX_JOINED = 48 * 1024  # bytes
# How much is read and parsed in one turn, and how much of a large body that is not parsed.
READ_BYTES = 4 * 1024
UPLOAD_BYTES = 64 * 1024
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# For SO_LINGER: close() sends a reset and frees what the kernel holds of the response.
RESET = struct.pack("ii", 1, 0)


class Channel(wasyncore.dispatcher):
    """A connection with a deadline for each phase."""

    addr: tuple[str, int]
    connected: bool
    # The request that is received, and the one that is handled: then it is never closed for others.
    request: Parser | None = None
    task: Task | None = None
    upload: Upload | None = None
    # Whether a request was handled on this connection.
    has_responded = False
    # What to do when everything has been sent.
    closes = may_still_send = False
    is_half_closed = False
    # The response that is sent: its request, itself, and the bytes sent before its body.
    _sending: tuple[Parser, Response, int] | None = None
    # The turn of the event loop in which it was read last.
    last_turn = 0

    def __init__(
        self,
        context: Context,
        sockets: dict[int, Any],
        environ: "WSGIEnvironment",
        connection: socket.socket,
        address: tuple[str, int],
    ) -> None:
        self._context = context
        host, port = address
        remote = {"REMOTE_ADDR": host, "REMOTE_HOST": host, "REMOTE_PORT": str(port)}
        self._environ = environ | remote
        # The start of the current phase, for its timeout.
        self._phase_started = self._last_received = time.monotonic()
        self._unparsed = b""
        self.sender = Sender(connection, context.request_timeout)
        super().__init__(connection, map=sockets)
        self.addr, self.connected = address, True
        # For turns that are fair by client; behind a proxy, all connections are of one client.
        self.client = client_network(address[0])

    @property
    def is_idle(self) -> bool:
        """Whether there is no request, not even the beginning of one, and no response."""
        return not (self.task or self.request or self._unparsed or self.sender or self.closes)

    @property
    def has_input(self) -> bool:
        """Whether the next pipelined request can be parsed."""
        return bool(self._unparsed) and not (self.task or self.sender or self.closes)

    def deadline(self, now: float) -> float:
        """Return when the client will have exceeded the timeout of the current phase."""
        context = self._context
        deadline = self.sender.deadline(now)
        if self.sender.is_behind:
            return deadline
        if self.task:
            return math.inf
        if self.is_half_closed:
            return self._phase_started + HALF_CLOSED_TIMEOUT
        if self.request is None and self.has_responded:
            return self._phase_started + context.idle_timeout
        if self.upload is not None:
            return self.upload.deadline(context.request_timeout, self._last_received)
        return self._phase_started + context.request_timeout

    def rank(self, now: float) -> tuple[bool, float, int]:
        """Return the order of closing: idle connections first, then those nearest to a deadline.

        Of two with the same deadline, the one is first whose client acknowledged fewer bytes.
        """
        deadline = self.deadline(now)
        is_waiting = self.is_half_closed or (self.has_responded and self.request is None)
        is_active = self.sender.is_behind or not is_waiting
        return is_active, deadline, self.sender.acknowledged

    def readable(self) -> bool:
        is_occupied = self.task or self._unparsed or self.sender or self.closes
        return self.is_half_closed or not is_occupied

    def writable(self) -> bool:
        # The kernel has room again when the client has taken most of the response.
        return bool(self.sender) or (self.closes and not self.is_half_closed)

    def handle_read(self) -> None:
        if self._unparsed:
            self._parse()
            return
        is_upload = self.upload is not None and self.upload.request.content_length
        try:
            data = self.socket.recv(UPLOAD_BYTES if is_upload else READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.handle_close()
            return
        if not data:
            self.handle_close()
        elif not self.is_half_closed:
            self._last_received = time.monotonic()
            if self.request is None:
                self._phase_started = self._last_received
            self._unparsed = data
            self._parse()

    def _parse(self) -> None:
        """Parse what has arrived up to the end of a request, and have it handled."""
        context = self._context
        self.request = request = self.request or Parser(context.max_body)
        self._unparsed = self._unparsed[request.received(self._unparsed) :]
        if request.needs_admission:
            self.upload = context.uploads.admit(self.drop, request)
        if request.completed:
            self._dispatch(request)
        elif request.expect_continue and request.headers_finished:
            request.expect_continue = False
            self._send(CONTINUE)

    def _dispatch(self, request: Parser) -> None:
        context = self._context
        self.request = None
        forwarded_for = request.headers.get("HTTP_X_FORWARDED_FOR", "")
        client = context.proxies.client(self.addr[0], forwarded_for)
        self.task = task = Task(self.respond, self._environ, request, client)
        if request.is_change and not request.error and not request.refused_body:
            try:
                task.has_token = context.uploads.find_token(request) is not None
            except DeadlineExceeded:
                # The application finds out, on the thread for changes.
                task.has_token = True
        context.dispatcher.dispatch(task)

    def respond(self, task: Task, response: Response | None) -> None:
        """Send the response to the request that is handled; None closes the connection."""
        request = task.request
        request.close()
        if self.upload is not None:
            self._context.uploads.end(self.upload)
            self.upload = None
        self.task = None
        if response is None or not self.connected:
            if response:
                response.close()
                self._context.log(request, response, self.addr[0], 0)
            self.drop()
            return
        self.has_responded = True
        self._phase_started = time.monotonic()
        # The next pipelined request gets a response of a stopping service too.
        is_last = self._context.is_stopping and not self._unparsed
        head, self.closes = build_head(request, response, is_last=is_last)
        self.may_still_send = response.is_refusal
        self._sending = request, response, self.sender.sent + len(head)
        if request.command == "HEAD" or response.status[:3] in ("204", "304"):
            self._send(head)
        elif isinstance(response.body, ReadOnlyFileBasedBuffer):
            self._send(head, response.body)
        elif response.length <= MAX_JOINED:
            self._send(b"".join([head, *response.body]))
        else:
            self._context.has_new_bodies = True
            self._send(head, *response.body)

    def _send(self, *pieces: Piece) -> None:
        try:
            self.sender.begin(*pieces)
        except OSError:
            self.handle_close()
            return
        if not self.sender:
            self._end_response()
        if self.closes and self.sender.unacknowledged() <= MAX_LEFT_TO_KERNEL:
            self._close_if_sent()

    def _end_response(self) -> None:
        """Log the response as far as it was sent, and close its file."""
        if self._sending is not None:
            request, response, body_start = self._sending
            self._sending = None
            response.close()
            size = max(0, self.sender.sent - body_start)
            self._context.log(request, response, self.addr[0], size)

    def handle_write(self) -> None:
        try:
            self.sender.flush()
        except OSError:
            self.handle_close()
            return
        if not self.sender:
            self._end_response()
        if self.closes:
            self._close_if_sent()

    def _close_if_sent(self) -> None:
        """Close, or half-close if the client may still be sending; see the top of the module."""
        if self.sender or self.is_half_closed:
            return
        if not (self.may_still_send or self._context.is_stopping):
            self.handle_close()
            return
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.handle_close()
            return
        self._phase_started = time.monotonic()
        self.is_half_closed = True
        # The rest of a refused body is not a request.
        self._unparsed = b""

    def time_out(self) -> None:
        """End the connection, whose deadline has passed; with 408 if a request was begun."""
        request = self.request
        if request is None or self.sender or self.is_half_closed:
            self.drop()
            return
        request.refuse(TIMED_OUT)
        self._dispatch(request)

    def drop(self) -> None:
        """Close the connection in any phase."""
        sender = self.sender
        if self.connected and (sender or sender.unacknowledged() > MAX_LEFT_TO_KERNEL):
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.handle_close()

    def handle_close(self) -> None:
        if not self.connected:
            return
        self.connected = False
        self._end_response()
        # By default the kernel would retransmit the rest of a response for minutes. Only Linux has
        # this option.
        with contextlib.suppress(AttributeError, OSError):
            timeout = self._context.request_timeout * 1000
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
        self.sender.clear()
        if self.request is not None:
            self.request.close()
        if self.upload is not None and not self.task:
            self._context.uploads.end(self.upload)
        self.close()
