"""One client's connection: what it may send, how long it may take, how it ends.

Waitress reads and writes all connections in one thread. What is added here keeps a client from
holding it: a connection has a time for everything that it has to do, no thread waits for a client,
and what is not HTTP is refused in the shape of every error.
"""

import fcntl
import json
import socket
import struct
import termios
import time

from waitress.buffers import ReadOnlyFileBasedBuffer
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import build_http_date

from catalog.logs import AccessLog
from catalog.parsing import Parser, RequestTimeout
from catalog.routing import V1_PREFIX

LINGER = 2  # seconds in which a refused client can stop sending, and so get to read why
SLOWEST = 16 * 1024  # bytes a second at which an answer must be taken
# On every answer, refusals too: no browser is to guess that one is a page or a script.
NO_SNIFFING = b"X-Content-Type-Options: nosniff\r\n"
LARGE = 8 * 1024  # bytes from which an answer is sent from where it is, not from waitress's copy
ONE_PIECE = 48 * 1024  # bytes up to which head and body are put together: that is a copy too


class Body(ReadOnlyFileBasedBuffer):
    """A large answer on its way: the bytes stay where they are kept, however many read them."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)

    def __len__(self) -> int:
        return len(self._rest)

    def get(self, numbytes: int = -1, skip: bool = False) -> memoryview:
        return self._rest[:numbytes]

    def skip(self, numbytes: int, allow_prune: bool = False) -> None:
        self._rest = self._rest[numbytes:]

    def close(self) -> None:
        self._rest = memoryview(b"")


class LoggedTask:
    """A request answered, then logged, in whichever way it was answered."""

    def service(self) -> None:
        try:
            super().service()
        except ClientDisconnected:
            self._log()
            raise
        self._log()

    def set_close_on_finish(self) -> None:
        # Waitress would close after every answer without a body, for want of a length.
        asked = self.request.headers.get("CONNECTION", "").lower() == "close"
        if self.has_body or asked or self.version == "1.0" or self.channel.server.stopping:
            super().set_close_on_finish()

    def build_response_header(self) -> bytes:
        # Once told to stop, an answer after which nothing was asked is the last of its connection.
        stopping = self.channel.server.stopping
        if stopping and not self.channel.ahead:
            self.set_close_on_finish()
        goes_on = self.version == "1.1" and "CONNECTION" not in self.request.headers
        has_length = self.content_length is not None and self.has_body
        if goes_on and has_length and not (stopping or self.close_on_finish):
            head = self._usual_head()
        else:
            head = super().build_response_header()
        return head if NO_SNIFFING in head else head.removesuffix(b"\r\n") + NO_SNIFFING + b"\r\n"

    def _usual_head(self) -> bytes:
        """The head of an answer of known length, after which the connection goes on.

        Waitress would come to the same, by way of all the cases in which it would not.
        """
        lines = [f"{name}: {value}" for name, value in self.response_headers]
        names = {name.lower() for name, _ in self.response_headers}
        if "content-length" not in names:
            lines.append(f"Content-Length: {self.content_length}")
        if "date" not in names:
            lines.append(f"Date: {build_http_date(self.start_time)}")
        return "\r\n".join([f"HTTP/1.1 {self.status}", *lines, "", ""]).encode("latin-1")

    def _log(self) -> None:
        request = self.request
        environ = getattr(self, "environ", None) or {}
        status = int(self.status[:3])
        size = self.content_bytes_written
        if not size and self.has_body and getattr(request, "command", "") != "HEAD":
            size = self.content_length or 0  # a file, which waitress does not count
        self.channel.server.access_log.add(
            environ.get("REMOTE_ADDR") or self.channel.addr[0],
            getattr(request, "command", ""),
            getattr(request, "request_uri", "") or request_line(request),
            status,
            size,
            time.perf_counter() - request.begun if request.begun else 0,
            dict(self.response_headers).get("X-Request-Id", "") if status >= 500 else "",
        )


def request_line(request: HTTPRequestParser) -> str:
    """The first line of a request that was refused, as far as it came."""
    line = getattr(request, "first_line", b"") or request.header_plus
    return line.decode("latin-1").partition("\r\n")[0]


class Task(LoggedTask, WSGITask):
    """A request that the app answers."""

    def write(self, data: bytes) -> None:
        """Send an answer in one piece where it is there in one: each is a call of the system."""
        in_one = self.content_length == len(data) < ONE_PIECE and not self.wrote_header
        if not (in_one and data and self.has_body):
            super().write(data)
            return
        head = self.build_response_header()
        self.wrote_header = True
        self.content_bytes_written = len(data)
        self.channel.write_soon(head + data)


class Refusal(LoggedTask, ErrorTask):
    """The answer to what cannot be handed to the app, in the shape of the app's own errors."""

    def execute(self) -> None:
        error = self.request.error
        body = json.dumps({"error": self._sentence()}).encode() + b"\n"
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        if f" {V1_PREFIX}" in request_line(self.request):
            self.response_headers.append(("Access-Control-Allow-Origin", "*"))
        self.set_close_on_finish()
        self.channel.linger = True
        self.content_length = len(body)
        self.write(body if getattr(self.request, "command", "") != "HEAD" else b"")

    def _sentence(self) -> str:
        error, head = self.request.error, self.channel.adj.max_request_header_size
        reason = error.body.partition('"')[0].rstrip(" .")  # without what it quotes of the request
        return {
            400: f"Malformed HTTP request: {reason}.",
            408: "The request did not come whole in time.",
            413: "The body of the request is too large: no request here needs one.",
            414: f"The address is too long: with the headers it may have {head} bytes.",
            431: f"The headers are too large: with the address they may have {head} bytes.",
        }.get(error.code, "Something went wrong here; the request is not to blame.")


class Channel(HTTPChannel):
    """A connection that has a time for everything it has to do."""

    parser_class = Parser
    task_class = Task
    error_task_class = Refusal

    linger = False  # whether the client may still be sending when we close
    lingering = False
    ahead = b""  # sent after the request that is being answered
    is_next = False  # to be answered, as soon as the thread that reads has let go of its lock
    in_turn = False  # being answered by the thread that reads
    answered = False
    unsent = 0  # bytes of the last answer, when it was made

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.since = time.monotonic()  # it was made, began a request, or was answered
        super().__init__(*args, **kwargs)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost to the client if the connection ends now."""
        return not (self.requests or self.total_outbufs_len or self.close_when_flushed)

    def time_left(self, now: float) -> float:
        """Seconds until the client has had its time for what it is doing."""
        if self.total_outbufs_len or self.close_when_flushed:
            allowed = self.server.request_timeout + self.unsent / SLOWEST
        elif self.requests:
            return 1  # it waits for us
        elif self.lingering:
            allowed = LINGER
        elif self.request is None and self.answered:
            allowed = self.server.idle_timeout
        else:
            allowed = self.server.request_timeout
        return self.since + allowed - now

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
        if self.total_outbufs_len or self._untaken():
            # The system would go on to offer it, and keep it in memory, for minutes.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handle_close()

    def _untaken(self) -> int:
        """Bytes that the system holds because the client does not take them."""
        try:
            (count,) = struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))
        except OSError:  # not every system tells
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
                self.request = self.request or self.parser_class(self.adj)
                self.ahead = self.ahead[self.request.received(self.ahead) :]
                if self.request.expect_continue and self.request.headers_finished:
                    self.send_continue()
                if self.request.completed:
                    request, self.request = self.request, None
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
        self.since, self.unsent = time.monotonic(), len(data)
        large = isinstance(data, bytes) and len(data) >= LARGE  # a file is sent from its file
        return super().write_soon(Body(data) if large else data)

    def service(self) -> None:
        super().service()
        self.answered = True
        self.since = time.monotonic()
        if self.ahead:
            self.received(b"")


class Listener(TcpWSGIServer):
    """One address that is served."""

    channel_class = Channel
    access_log: AccessLog
    request_timeout: int
    idle_timeout: int
    stopping = False

    def pull_trigger(self) -> None:
        """Wake the loop, unless this is the loop itself."""
        if not self.task_dispatcher.in_loop():
            super().pull_trigger()

    def readable(self) -> bool:
        return self.accepting and len(self._map) < self.adj.connection_limit

    def handle_accept(self) -> None:
        """Accept all who wait: a turn of the loop costs more, the more are connected."""
        before = -1
        while before < len(self._map) < self.adj.connection_limit:
            before = len(self._map)
            super().handle_accept()
