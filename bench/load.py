"""Puts load on a server on this machine: requests over several connections, in one thread."""

import resource
import selectors
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

from bench.processes import Server
from bench.workload import Request

TIMEOUT = 60  # seconds for all requests in one load
RECEIVE_BYTES = 256 * 1024
# A second address on the loopback interface, which the server treats as another client.
OTHER_CLIENT = "127.0.0.2"
# A server limits the connections from one client, so idle connections come from several addresses.
IDLE_PER_CLIENT = 100
# The maximum number of files that a run without idle connections opens.
USUAL_FILES = 500


class LoadError(Exception):
    """A request failed, so the measurement is worthless."""


class Sample(NamedTuple):
    """The server's CPU time in µs per request, and the number of requests per second."""

    cpu: float
    rate: float


def measure(
    server: Server,
    requests: Sequence[Request],
    connections: int,
    headers: Mapping[str, str] | None = None,
) -> Sample:
    """Send each request once, and wait until the server is idle."""
    cpu_before = server.cpu_seconds()
    queue = iter(list(_encoded(requests, headers or {})))
    opened = [Connection(server.url, queue) for _ in range(connections)]
    started = time.perf_counter()
    _exchange(opened, opened)
    seconds = time.perf_counter() - started
    server.settle()
    cpu = server.cpu_seconds() - cpu_before
    return Sample(cpu / len(requests) * 1e6, len(requests) / seconds)


def measure_latencies(
    server: Server, requests: Sequence[Request], connections: int
) -> tuple[float, list[float]]:
    """Send each request once; return the total and individual durations, in seconds."""
    queue = iter(list(_encoded(requests, {})))
    opened = [Connection(server.url, queue) for _ in range(connections)]
    started = time.perf_counter()
    _exchange(opened, opened)
    seconds = time.perf_counter() - started
    return seconds, [latency for each in opened for latency in each.latencies]


def measure_under_flood(
    server: Server, requests: Sequence[Request], flood: Iterable[Request], connections: int
) -> list[float]:
    """Return the duration of each of one client's requests while another floods the server."""
    waves = _encoded(flood, {})
    flooding = [Connection(server.url, waves, may_fail=True) for _ in range(connections)]
    judge = Connection(server.url, _encoded(requests, {}), OTHER_CLIENT)
    _exchange([*flooding, judge], [judge])
    return judge.latencies


@contextmanager
def idle_connections(server: Server, count: int) -> Iterator[None]:
    """Open this many connections, use each once, and keep them open while the with block runs."""
    allow_open_files(count)
    request = [Request("GET", "/api/version")]
    with ExitStack() as stack:
        opened = [
            Connection(
                server.url, _encoded(request, {}), f"127.0.1.{1 + number // IDLE_PER_CLIENT}"
            )
            for number in range(count)
        ]
        for each in opened:
            stack.callback(each.socket.close)
            each.send_next()
            while not each.receive():
                pass
        server.settle()
        yield


def allow_open_files(count: int) -> None:
    """Raise the limit on open files to allow this many idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = USUAL_FILES + 2 * count
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _encoded(requests: Iterable[Request], headers: Mapping[str, str]) -> Iterator[bytes]:
    fixed = "Host: bench\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    for method, path in requests:
        length = "Content-Length: 0\r\n" if method == "POST" else ""
        yield f"{method} {path} HTTP/1.1\r\n{fixed}{length}\r\n".encode()


class Connection:
    """Sends the requests in a queue one after another; connections can share a queue."""

    def __init__(
        self, url: str, queue: Iterator[bytes], source: str = "", *, may_fail: bool = False
    ) -> None:
        self._address, self._queue, self._source = urlsplit(url), queue, source
        self._may_fail = may_fail
        self.is_finished = self.is_closed = False
        self.latencies: list[float] = []
        self.open()

    def open(self) -> None:
        """Connect, or connect again."""
        address = (self._address.hostname or "", self._address.port or 0)
        self.socket = socket.create_connection(address, TIMEOUT, (self._source, 0))

    def send_next(self) -> None:
        """Send the next request in the queue; finish if there is none."""
        self._request, self._head, self._missing = next(self._queue, b""), b"", 0
        self.is_finished = not self._request
        self._sent_at = time.perf_counter()
        if self._request:
            self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Read the available data; return whether the response is complete."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except ConnectionError:
            data = b""
        self.is_closed = not data
        if self.is_closed:
            return self._may_fail or self._fail("got no response")
        if self._missing:
            self._missing -= len(data)
        else:
            self._head += data
            if b"\r\n\r\n" not in self._head:
                return False
            head, _, body = self._head.partition(b"\r\n\r\n")
            self._missing = self._length(head.lower()) - len(body)
        if self._missing:
            return False
        self.latencies.append(time.perf_counter() - self._sent_at)
        return True

    def _length(self, head: bytes) -> int:
        status = int(head[9:12])
        if status >= 400 and not self._may_fail:
            self._fail(f"got status {status}")
        if status == 304:
            return 0
        return int(head.split(b"\r\ncontent-length:", 1)[1].split(b"\r\n", 1)[0])

    def _fail(self, problem: str) -> NoReturn:
        request = self._request.partition(b" HTTP/")[0].decode()
        raise LoadError(f"{request[:200]} at {self._address.netloc} {problem}.")


def _exchange(connections: Sequence[Connection], awaited: Sequence[Connection]) -> None:
    """Send requests until the awaited connections are finished, then close all connections."""
    deadline = time.perf_counter() + TIMEOUT
    try:
        with selectors.DefaultSelector() as selector:
            for each in connections:
                selector.register(each.socket, selectors.EVENT_READ, each)
                each.send_next()
            while not all(each.is_finished for each in awaited):
                if time.perf_counter() > deadline:
                    raise LoadError(f"The requests took more than {TIMEOUT} seconds.")
                for key, _ in selector.select(1):
                    _continue(key.data, selector)
    finally:
        for each in connections:
            each.socket.close()


def _continue(connection: Connection, selector: selectors.BaseSelector) -> None:
    if not connection.receive():
        return
    if connection.is_closed:
        selector.unregister(connection.socket)
        connection.socket.close()
        connection.open()
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    connection.send_next()
