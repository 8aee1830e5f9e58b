"""One client's connection: what it may send, how long it may take, how it ends.

Waitress reads and writes all connections in one thread. What is added here keeps a client from
holding it: a connection has a deadline for everything that it has to do, no thread waits for a
client, and what is not HTTP is refused in the shape of every error.
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
from catalog.serving.tasks import Refusal, Task

LINGER = 2  # seconds in which a refused client can stop sending, and so get to read why
SLOWEST = 16 * 1024  # bytes a second at which a response must be taken
FIRST_WINDOW = 64 * 1024  # bytes that a client's kernel takes, whether or not the client reads
LARGE = 8 * 1024  # bytes from which a response is sent from where it is, not from waitress's copy
SEND_BYTES = 256 * 1024  # bytes of a file that are read into memory at once
FLUSH_BYTES = 1024 * 1024  # bytes that are sent to one client before others have their turn


class Body(ReadOnlyFileBasedBuffer):
    """A large response on its way: all connections that send it share the same bytes."""

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
    """A connection that has a deadline for everything it has to do."""

    parser_class = Parser
    task_class = Task
    error_task_class = Refusal

    request: Parser | None
    close_when_flushed: bool
    linger = False  # whether the client may still be sending when we close
    lingering = False
    ahead = b""  # sent after the request that is being answered
    is_next = False  # to be answered, as soon as the thread that reads has let go of its lock
    in_turn = False  # being answered by the thread that reads
    answered = False
    sent = 0  # bytes given to the kernel
    taken = 0  # bytes of these that the client had acknowledged when that was last checked
    _first_window_end = 0  # bytes taken that are no progress yet, at the first check
    _flush_end = 0  # bytes given to the kernel at which others have their turn

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.since = time.monotonic()  # it was made, began a request, or was answered
        self.write_deadline = self.since
        super().__init__(*args, **kwargs)
        self.sendbuf_len = SEND_BYTES
        self.server.limits.add(self)

    def del_channel(self, map: object = None) -> None:
        super().del_channel(map)
        self.server.limits.remove(self)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost to the client if the connection ends now."""
        return not (self.requests or self.total_outbufs_len or self.close_when_flushed)

    @property
    def is_sending(self) -> bool:
        """Whether the client has more of a response to take than may be left to the kernel."""
        return self.total_outbufs_len > 0 or self.sent - self.taken > LARGE

    def deadline(self, now: float) -> float:
        """When the client will have had its time for what it is doing."""
        self._note_progress(now)
        if self.is_sending:
            return self.write_deadline
        if self.requests:
            return math.inf
        if self.lingering:
            return self.since + LINGER
        if self.request is None and self.answered:
            return self.since + self.server.idle_timeout
        return self.since + self.server.request_timeout

    def rank(self, now: float) -> Rank | None:
        """Idle connections are closed first, then those whose deadlines are nearest."""
        if self.requests or self in self.server.limits.newcomers:
            return None
        deadline = self.deadline(now)
        has_time = self.lingering or (self.answered and self.request is None)
        return (self.is_sending or not has_time, deadline, self.taken)

    def _note_progress(self, now: float) -> None:
        """Move the deadline by what the client has taken: a second for each SLOWEST bytes.

        Only what it acknowledges counts, since the server's kernel accepts a part of any response.
        It cannot save up time: one that stops after a fast start is as late as any other.
        """
        if self.sent == self.taken:
            return
        taken = self.sent - self._untaken()
        gained = max(0, taken - max(self.taken, self._first_window_end))
        latest = now + self.server.request_timeout
        self.write_deadline = min(latest, self.write_deadline + gained / SLOWEST)
        self.taken, self._first_window_end = taken, 0

    def bodies(self) -> list[bytes]:
        """The bodies in memory of which it has something left to send; a file is in none."""
        return [buffer.data for buffer in list(self.outbufs) if isinstance(buffer, Body)]

    def end(self) -> None:
        """End the connection of a client that has had its time; say so if it began a request."""
        with self.requests_lock:
            request, self.request = self.request, None
            if request is not None and self.is_idle and not self.lingering:
                request.error = RequestTimeout("")
                self.requests.append(request)
                self.server.add_task(self)
        if self.is_next:
            self.server.task_dispatcher.answer(self)
            return
        self.drop()

    def drop(self) -> None:
        """Close the connection, whatever it is doing."""
        if self.total_outbufs_len or self._untaken() > LARGE:
            # Nothing of it is left to the kernel.
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handle_close()

    def handle_close(self) -> None:
        # For what the kernel still has of a response: it would be offered for minutes.
        with contextlib.suppress(AttributeError, OSError):  # only Linux has it
            timeout = self.server.request_timeout * 1000
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
        super().handle_close()

    def _untaken(self) -> int:
        """Bytes that the kernel holds because the client has not acknowledged them."""
        try:
            (count,) = struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))
        except (OSError, TypeError, ValueError):
            # Not every system tells, and another thread may have closed the socket.
            return 0
        return count

    def handle_read(self) -> None:
        if self.lingering:
            self.recv(LARGE)  # to the bin; an end of it closes the connection
            return
        if self.request is None:
            self.since = time.monotonic()
        super().handle_read()

    def received(self, data: bytes) -> None:
        """Read the next request, once the last was answered and its answer taken.

        A client can ask for much in one breath and read nothing: neither memory nor a thread, nor
        the one thread that reads for all, is to be had in this way.
        """
        with self.requests_lock:
            self.ahead += data
            while self.ahead and self.is_idle and not self.will_close:
                self.request = request = self.request or self.parser_class(self.adj)
                self.ahead = self.ahead[request.received(self.ahead) :]
                if request.expect_continue and request.headers_finished:
                    self.send_continue()
                if request.completed:
                    self.request = None
                    if not request.empty:
                        self.requests.append(request)
                        self.server.add_task(self)
        if self.is_next:
            self.server.task_dispatcher.answer(self)

    def handle_write(self) -> None:
        self._flush_exception(self._flush_some_if_lockable if self.requests else self._flush_some)
        if not self.connected:
            return  # the client has gone, which only writing to it could tell
        if self.close_when_flushed and not self.total_outbufs_len:
            self.close_when_flushed = False
            self._finish()
        if self.will_close:
            self.handle_close()
        elif self.ahead and not self.total_outbufs_len:
            self.received(b"")

    def _finish(self) -> None:
        """Close, but not in the face of a client that sends: the system would drop our answer."""
        if not (self.linger or self.server.stopping):
            self.will_close = True
            return
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.will_close = True
            return
        self.since = time.monotonic()
        self.lingering = True

    def write_soon(self, data: bytes) -> int:
        self.write_deadline = time.monotonic() + self.server.request_timeout
        # One that keeps the rate is never late, however short the timeout is.
        uncounted = min(FIRST_WINDOW, self.server.request_timeout * SLOWEST // 2)
        self._first_window_end = self.sent + uncounted
        is_large = isinstance(data, bytes) and len(data) >= LARGE
        size: int = super().write_soon(Body(data) if is_large else data)
        if is_large and self.total_outbufs_len:
            self.server.limits.unsent_since_check += size
        return size

    def _flush_some(self, do_close: bool = True) -> bool:
        self._flush_end = self.sent + FLUSH_BYTES
        flushed: bool = super()._flush_some(do_close)
        return flushed

    def send(self, data: bytes, do_close: bool = True) -> int:
        # Waitress would go on for as long as the client takes what is sent.
        if self.sent >= self._flush_end:
            return 0
        count: int = super().send(data, do_close)
        self.sent += count
        return count

    def service(self) -> None:
        super().service()
        self.answered = True
        self.since = time.monotonic()
        if self.server.limits.request_done(self):
            self.server.pull_trigger()
        if self.ahead:
            self.received(b"")
