"""500 slow clients, and the response times of the others."""

import http.client
import resource
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Server, create_demo

SLOW = 500
REQUESTS = 300
SEARCH = "/api/v1/widgets/search?q=clock"
BEGINNING = f"GET {SEARCH} HTTP/1.1\r\nHost: a\r\nX-Padding: ".encode()
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


def connect(server: Server, sent: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.setblocking(False)
    connection.send(sent)
    return connection


def wait_until_closed(slow: list[socket.socket], each: Callable[[], None]) -> float:
    """Wait until all are closed, calling each() meanwhile; return how many seconds it took."""
    poll = select.poll()
    for connection in slow:
        poll.register(connection, select.POLLRDHUP)
    started, open_ = time.monotonic(), len(slow)
    while open_ and time.monotonic() - started < 60:
        for descriptor, _ in poll.poll(100):
            poll.unregister(descriptor)
            open_ -= 1
        each()
    assert open_ == 0
    return round(time.monotonic() - started, 1)


# What each client sends first, what it does each second, and the promise about it.
SLOW_CLIENTS: dict[str, tuple[bytes, Callable[[socket.socket], object], str]] = {
    "500 clients that send a byte a second": (
        BEGINNING,
        lambda connection: connection.send(b"x"),
        "others get responses as usual, and each of them gets 408 within 60 s",
    ),
    "500 clients that request 8 registries each and read a byte a second": (
        PIPELINED,
        lambda connection: connection.recv(1),
        "others get responses as usual, and each of them is disconnected within 60 s",
    ),
}


@pytest.mark.parametrize("name", SLOW_CLIENTS)
def test_others_are_served_as_usual_beside_500_slow_clients(
    server: Server, name: str, figures: Callable[..., None]
) -> None:
    sent, act, promise = SLOW_CLIENTS[name]
    alone, before = latencies(server), server.megabytes()
    slow = [connect(server, sent) for _ in range(SLOW)]
    due = time.monotonic()

    def act_each_second() -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due += 1
        for connection in slow:
            # Nothing to read yet, or the server has closed it.
            with suppress(OSError):
                act(connection)

    # Meanwhile 4,000 registries are sent to those that read.
    at_first = latencies(server, act_each_second)
    beside, after = latencies(server, act_each_second), server.megabytes()
    seconds = wait_until_closed(slow, act_each_second)
    for connection in slow:
        connection.close()
    figures(
        name,
        promise,
        clients=SLOW,
        requests=2 * REQUESTS,
        failed=0,
        p99_ms_alone=p99(alone),
        p99_ms_at_first=p99(at_first),
        p99_ms_beside_them=p99(beside),
        closed_after_s=seconds,
        more_memory_MB=after - before,
    )
    assert after - before < 100
    assert statistics.median(beside) < statistics.median(alone) * 3 + 5
