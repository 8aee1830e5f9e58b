"""Random sequences of fragments of requests: each is refused or gets a response."""

import random
import socket
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Server, create_demo

FRAGMENTS = [b"GET ", b"POST ", b"/api/v1/widgets/search?q=", b"/api/health", b" HTTP/1.1", b"\r\n"]
FRAGMENTS += [
    b"Host: a",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked",
    b"5",
    b"0",
    b"\r\n\r\n",
]
FRAGMENTS += [
    b"Expect: 100-continue",
    b"\n",
    b"\0",
    b": ",
    b" ",
    b"\xff",
    b"%",
    b"hello",
    b"a" * 9000,
]
# Whole heads too: otherwise most requests would be refused for their first line.
FRAGMENTS += [
    b"GET /api/health HTTP/1.1\r\nHost: a\r\n",
    b"POST /api/v1/widgets/a/b HTTP/1.1\r\n",
] * 3


def test_random_requests_neither_block_nor_break_the_service(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    timeouts = {"CATALOG_REQUEST_TIMEOUT": "1", "CATALOG_IDLE_TIMEOUT": "1"}
    server = Server(create_demo(tmp_path / "catalog.db"), **timeouts)
    generator = random.Random(5)  # noqa: S311
    statuses: dict[bytes, int] = {}
    sent = 0
    for _ in range(20):
        connections = []
        for _ in range(100):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=15)
            noise = b"".join(generator.choices(FRAGMENTS, k=generator.randint(1, 14)))
            connection.sendall(noise)
            if generator.random() < 0.8:
                connection.shutdown(socket.SHUT_WR)
            connections.append(connection)
            sent += 1
        for connection in connections:
            try:
                response = connection.makefile("rb").read()
            except ConnectionResetError:
                response = b""
            status = response[9:12]
            statuses[status] = statuses.get(status, 0) + 1
            connection.close()
        assert server.request("GET", "/api/health")[0].status == 200
    server.process.terminate()
    _, errors = server.process.communicate(timeout=20)
    figures(
        "random sequences of fragments of requests",
        "each is refused or dropped, without a 500 or a hang, and the next request succeeds",
        requests=sent,
        status_200=statuses.get(b"200", 0),
        refused=sum(count for status, count in statuses.items() if status[:1] == b"4"),
        failed=sum(count for status, count in statuses.items() if status[:1] == b"5"),
    )
    assert errors == ""
    assert {status[:1] for status in statuses} <= {b"", b"1", b"2", b"4"}
