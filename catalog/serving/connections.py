"""One client's connection, from accept to close.

Waitress reads and writes all connections on the I/O thread. This module keeps a client from holding
that thread, a worker or memory. A connection goes through these phases:

1. Receiving. The client has CATALOG_REQUEST_TIMEOUT to send a complete request. If it does not, it
   gets 408, or no response if it sent nothing. A large body, see uploads.py, must arrive at a rate
   instead.
2. Handling. dispatch.py chooses a thread. There is no deadline here: dispatch.py has its own. What
   the client sends meanwhile stays in `unparsed`, so that one request is handled at a time.
3. Sending. The client must take the response at MIN_RATE; its deadline moves with the bytes that it
   acknowledges. The next request is parsed when the response has been sent.
4. Idle. The client has CATALOG_IDLE_TIMEOUT to begin the next request; then phase 1 follows.
5. Half-closed. After an error, or when the service stops, the client may still be sending. If the
   server closed the socket then, the kernel would reset the connection and discard the response. So
   only the sending side is shut down, and input is discarded until the client closes.

The server checks deadlines every second (`deadline`, `time_out`). When there is no room for a new
connection, it closes the one that makes the least progress (`rank`, `drop`).
"""

import contextlib
import fcntl
import math
import socket
import struct
import termios
import time

from waitress.buffers import ReadOnlyFileBasedBuffer
from waitress.channel import HTTPChannel

from catalog.serving.connection_limits import Rank
from catalog.serving.http_parser import Parser, RequestTimeout
from catalog.serving.tasks import ApplicationTask, JsonErrorTask

HALF_CLOSED_TIMEOUT = 2  # seconds
# How fast a client must take a response.
MIN_RATE = 16 * 1024  # bytes a second
# What a client's kernel takes of a response whether or not the client reads it.
FIRST_WINDOW = 64 * 1024  # bytes
# From this size on, a body is sent from where it is cached, not from waitress's copy.
MIN_SHARED_BODY = 8 * 1024  # bytes
# What the kernel may hold of a response when the connection is closed without a reset.
MAX_LEFT_TO_KERNEL = 8 * 1024  # bytes
DISCARD_BYTES = 8 * 1024
# How much of a large body is read in one turn. Waitress reads 8 kB.
UPLOAD_BYTES = 64 * 1024
# How much of a file is read into memory at a time.
SEND_BYTES = 256 * 1024
# How much is sent to one client before it is the turn of the others.
FLUSH_BYTES = 1024 * 1024


class SharedBody(ReadOnlyFileBasedBuffer):
    """A large body to send. All connections that send it share the same bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._rest = memoryview(data)

    def __len__(self) -> int:
        return len(self._rest)

    def get(self, numbytes: int = -1, skip: bool = False) -> memoryview:
        return self._rest[:numbytes]

    def skip(self, numbytes: int, allow_prune: bool = False) -> None:
        self._rest = self._rest[numbytes:]

    def close(self) -> None:
        self.data = b""
        self._rest = memoryview(self.data)


class Channel(HTTPChannel):
    """A connection with a deadline for each phase."""

    parser_class = Parser
    task_class = ApplicationTask
    error_task_class = JsonErrorTask

    request: Parser | None
    close_when_flushed: bool
    # Input that has not been parsed: pipelined requests.
    unparsed = b""
    # The I/O thread has to handle the first request once requests_lock is released.
    is_for_io_thread = False
    # The I/O thread is handling the first request.
    is_on_io_thread = False
    # Whether a request was handled on this connection.
    has_responded = False
    # Set by an error response: the client may still be sending its request.
    may_still_send = False
    is_half_closed = False
    # Bytes given to the kernel.
    sent = 0
    # Bytes of these that the client had acknowledged at the last check.
    acknowledged = 0
    # Acknowledged bytes up to this number are no progress at the first check of a response.
    _first_window_end = 0
    # The value of `sent` at which it is the turn of other connections.
    _flush_end = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        # The start of the current phase, for its timeout.
        self.phase_started = time.monotonic()
        self.write_deadline = self.phase_started
        super().__init__(*args, **kwargs)
        self.sendbuf_len = SEND_BYTES
        self.server.limits.add(self)

    def del_channel(self, map: object = None) -> None:
        super().del_channel(map)
        self.server.limits.remove(self)

    @property
    def is_idle(self) -> bool:
        """Whether no request is handled and no response is left to send."""
        return not (self.requests or self.total_outbufs_len or self.close_when_flushed)

    @property
    def is_sending(self) -> bool:
        """Whether the client has more of a response to take than may be left to the kernel."""
        return self.total_outbufs_len > 0 or self.sent - self.acknowledged > MAX_LEFT_TO_KERNEL

    def deadline(self, now: float) -> float:
        """Return when the client will have exceeded the timeout of the current phase."""
        self._update_write_deadline(now)
        if self.is_sending:
            return self.write_deadline
        if self.requests:
            return math.inf
        if self.is_half_closed:
            return self.phase_started + HALF_CLOSED_TIMEOUT
        if self.request is None and self.has_responded:
            return self.phase_started + self.server.idle_timeout
        if self.request is not None and self.request.upload is not None:
            return self.request.upload.deadline(now)
        return self.phase_started + self.server.request_timeout

    def rank(self, now: float) -> Rank | None:
        """Return the order of closing: idle connections first, then those nearest to a deadline."""
        if self.requests or self in self.server.limits.new_connections:
            return None
        deadline = self.deadline(now)
        is_waiting = self.is_half_closed or (self.has_responded and self.request is None)
        is_active = self.is_sending or not is_waiting
        return is_active, deadline, self.acknowledged

    def _update_write_deadline(self, now: float) -> None:
        """Extend the deadline by a second for each MIN_RATE bytes that the client acknowledged.

        Bytes given to the kernel do not count: it accepts a part of any response. Time cannot be
        saved up: the deadline is never later than a full timeout from now.
        """
        if self.sent == self.acknowledged:
            return
        acknowledged = self.sent - self._unacknowledged()
        progress = max(0, acknowledged - max(self.acknowledged, self._first_window_end))
        latest = now + self.server.request_timeout
        self.write_deadline = min(latest, self.write_deadline + progress / MIN_RATE)
        self.acknowledged, self._first_window_end = acknowledged, 0

    def bodies(self) -> list[bytes]:
        """Return the bodies in memory that are not sent completely; files are not in memory."""
        return [buffer.data for buffer in list(self.outbufs) if isinstance(buffer, SharedBody)]

    def time_out(self) -> None:
        """End the connection, whose deadline has passed; with 408 if a request was begun."""
        with self.requests_lock:
            request = self.request
            if request is not None and self.is_idle and not self.is_half_closed:
                self.request = None
                request.error = RequestTimeout("")
                self.requests.append(request)
                self.server.add_task(self)
        if self.is_for_io_thread:
            self.server.task_dispatcher.handle_on_io_thread(self)
            return
        self.drop()

    def drop(self) -> None:
        """Close the connection in any phase."""
        if self.total_outbufs_len or self._unacknowledged() > MAX_LEFT_TO_KERNEL:
            # Have close() send a reset and free what the kernel holds of the response.
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handle_close()

    def handle_close(self) -> None:
        # By default the kernel would retransmit the rest of a response for minutes. Only Linux has
        # this option.
        with contextlib.suppress(AttributeError, OSError):
            timeout = self.server.request_timeout * 1000
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
        if self.request is not None and self.request.upload is not None:
            self.request.upload.close()
        super().handle_close()

    def readable(self) -> bool:
        """Do not read more of a large body than the publishing thread can write."""
        upload = self.request and self.request.upload
        if upload is not None and upload.is_full:
            return False
        is_readable: bool = super().readable()
        return is_readable

    def _unacknowledged(self) -> int:
        """Return the number of bytes that the kernel holds until the client acknowledges them."""
        try:
            (count,) = struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))
        except (OSError, TypeError, ValueError):
            # Not every system has this call, and another thread may have closed the socket.
            return 0
        return count

    def handle_read(self) -> None:
        if self.is_half_closed:
            # At the end of the input, recv() closes the connection.
            self.recv(DISCARD_BYTES)
            return
        if self.request is None:
            self.phase_started = time.monotonic()
        elif self.request.upload is not None:
            if data := self.recv(UPLOAD_BYTES):
                self.received(data)
            return
        super().handle_read()

    def received(self, data: bytes) -> None:
        """Parse one pipelined request at a time, the next when the last response has been sent.

        So a client that sends many requests and never reads cannot pin memory, a worker or the I/O
        thread.
        """
        with self.requests_lock:
            self.unparsed += data
            while self.unparsed and self.is_idle and not self.will_close:
                self.request = request = self.request or self.parser_class(self.adj)
                self.unparsed = self.unparsed[request.received(self.unparsed) :]
                if request.needs_admission:
                    self.server.uploads.admit(request, self.server.pull_trigger)
                    self.may_still_send = self.may_still_send or request.is_cut_short
                if request.expect_continue and request.headers_finished:
                    self.send_continue()
                if request.completed:
                    self.request = None
                    if not request.empty:
                        self.requests.append(request)
                        self.server.add_task(self)
        if self.is_for_io_thread:
            self.server.task_dispatcher.handle_on_io_thread(self)

    def handle_write(self) -> None:
        self._flush_exception(self._flush_some_if_lockable if self.requests else self._flush_some)
        if not self.connected:
            # Writing to it has shown that the client closed it.
            return
        if self.close_when_flushed and not self.total_outbufs_len:
            # The thread that handled the request may call received() now: it must not find the
            # connection idle while there is input to discard.
            with self.requests_lock:
                self._close_or_half_close()
                self.close_when_flushed = False
        if self.will_close:
            self.handle_close()
        elif self.unparsed and not self.total_outbufs_len:
            self.received(b"")

    def _close_or_half_close(self) -> None:
        """Close, or half-close if the client may still be sending; see the top of the module."""
        if not (self.may_still_send or self.server.stopping):
            self.will_close = True
            return
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.will_close = True
            return
        self.phase_started = time.monotonic()
        self.is_half_closed = True
        # The rest of a refused body is not a request.
        self.unparsed = b""

    def write_soon(self, data: bytes) -> int:
        self.write_deadline = time.monotonic() + self.server.request_timeout
        # At most half of what the timeout allows, so that a client that reads at MIN_RATE is never
        # late.
        uncounted = min(FIRST_WINDOW, self.server.request_timeout * MIN_RATE // 2)
        self._first_window_end = self.sent + uncounted
        is_shared = isinstance(data, bytes) and len(data) >= MIN_SHARED_BODY
        size: int = super().write_soon(SharedBody(data) if is_shared else data)
        if is_shared and self.total_outbufs_len:
            self.server.limits.unsent_since_check += size
        return size

    def _flush_some(self, do_close: bool = True) -> bool:
        self._flush_end = self.sent + FLUSH_BYTES
        flushed: bool = super()._flush_some(do_close)
        return flushed

    def send(self, data: bytes, do_close: bool = True) -> int:
        # Waitress would continue for as long as the client takes what is sent.
        if self.sent >= self._flush_end:
            return 0
        count: int = super().send(data, do_close)
        self.sent += count
        return count

    def service(self) -> None:
        super().service()
        self.has_responded = True
        self.phase_started = time.monotonic()
        if self.server.limits.request_done(self):
            self.server.pull_trigger()
        if self.unparsed:
            self.received(b"")
