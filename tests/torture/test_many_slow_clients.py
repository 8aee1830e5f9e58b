"""500 slow clients, and the response times of the others."""

import http.client
import resource
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Server, create_demo

SLOW = 500
REQUESTS = 300
SEARCH = "/api/v1/widgets/search?q=clock"
BYTES = b"GET " + SEARCH.encode() + b" HTTP/1.1\r\nHost: a\r\nX-Padding: " + b"x" * 1000
PIPELINED = b"GET /api/widgets/acme/registry.json HTTP/1.1\r\nHost: a\r\n\r\n" * 8


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, SLOW + 200)), hard))
    running = Server(
        create_demo(tmp_path / "catalog.db"),
        CATALOG_REQUEST_TIMEOUT="8",
        CATALOG_IDLE_TIMEOUT="16",
        CATALOG_MAX_CONNECTIONS_PER_CLIENT="0",
    )
    yield running
    assert running.stop() == 0


def latencies(server: Server, each: Callable[[], None] = lambda: None) -> list[float]:
    """Milliseconds of requests that are sent one after another; each() runs before each."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    milliseconds = []
    for _ in range(REQUESTS):
        each()
        started = time.perf_counter()
        connection.request("GET", SEARCH)
        response = connection.getresponse()
        response.read()
        milliseconds.append((time.perf_counter() - started) * 1000)
        assert response.status == 200
    connection.close()
    return milliseconds


def p99(milliseconds: list[float]) -> float:
    return round(statistics.quantiles(milliseconds, n=100)[98], 1)


def connect(server: Server, receive_buffer: int = 0) -> socket.socket:
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", server.port))
    connection.setblocking(False)
    return connection


def wait_until_closed(slow: list[socket.socket], each: Callable[[], None], timeout: float) -> float:
    """Wait until all are closed, calling each() meanwhile; return how many seconds it took."""
    poll = select.poll()
    for connection in slow:
        poll.register(connection, select.POLLRDHUP)
    started, open_ = time.monotonic(), len(slow)
    while open_ and time.monotonic() - started < timeout:
        for descriptor, _ in poll.poll(100):
            poll.unregister(descriptor)
            open_ -= 1
        each()
    assert open_ == 0
    return round(time.monotonic() - started, 1)


def test_500_clients_that_send_a_byte_a_second(
    server: Server, figures: Callable[..., None]
) -> None:
    alone, before = latencies(server), server.megabytes()
    slow = [connect(server) for _ in range(SLOW)]
    next_byte = iter(range(len(BYTES)))
    due = time.monotonic()

    def send_a_byte() -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due += 1
        position = next(next_byte)
        for connection in slow:
            try:
                connection.send(BYTES[position : position + 1])
            except OSError:
                # The server has closed it.
                continue

    beside, after = latencies(server, send_a_byte), server.megabytes()
    seconds = wait_until_closed(slow, send_a_byte, 30)
    for connection in slow:
        connection.close()
    figures(
        "500 clients that send a byte a second",
        "others get responses as usual, and each of them gets 408 in time",
        clients=SLOW,
        requests=REQUESTS,
        failed=0,
        p99_ms_alone=p99(alone),
        p99_ms_beside_them=p99(beside),
        closed_after_s=seconds,
        more_memory_MB=after - before,
    )
    assert after - before < 50
    assert statistics.median(beside) < statistics.median(alone) * 3 + 5


def test_500_clients_that_read_a_byte_a_second(
    server: Server, figures: Callable[..., None]
) -> None:
    alone, before = latencies(server), server.megabytes()
    slow = [connect(server, receive_buffer=4096) for _ in range(SLOW)]
    for connection in slow:
        connection.send(PIPELINED)
    due = time.monotonic()

    def read_a_byte() -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due += 1
        for connection in slow:
            try:
                connection.recv(1)
            except OSError:
                # Nothing to read yet, or the server has closed it.
                continue

    # Meanwhile 4,000 registries are sent to them.
    while_sending = latencies(server, read_a_byte)
    beside, after = latencies(server, read_a_byte), server.megabytes()
    seconds = wait_until_closed(slow, read_a_byte, 60)
    for connection in slow:
        connection.close()
    figures(
        "500 clients that request 8 registries each and read a byte a second",
        "others get responses as usual, and each of them is disconnected in time",
        clients=SLOW,
        requests=2 * REQUESTS,
        failed=0,
        p99_ms_alone=p99(alone),
        p99_ms_while_they_send=p99(while_sending),
        p99_ms_while_they_read=p99(beside),
        closed_after_s=seconds,
        more_memory_MB=after - before,
    )
    assert after - before < 100
    assert statistics.median(beside) < statistics.median(alone) * 3 + 5
