"""Random sequences of fragments of requests: each is refused or gets a response."""

import random
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from conftest import Server, create_demo

FRAGMENTS = [
    *(b"GET ", b"POST ", b"/api/v1/widgets/search?q=", b"/api/health", b" HTTP/1.1", b"\r\n"),
    *(b"Host: a", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Expect: 100-continue"),
    *(b"5", b"0", b"\r\n\r\n", b"\n", b"\0", b": ", b" ", b"\xff", b"%", b"hello", b"a" * 9000),
    # Whole heads too: otherwise most requests would be refused for their first line.
    *[b"GET /api/health HTTP/1.1\r\nHost: a\r\n", b"POST /api/v1/widgets/a/b HTTP/1.1\r\n"] * 3,
]


def test_random_requests_neither_block_nor_break_the_service(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    timeouts = {"CATALOG_REQUEST_TIMEOUT": "1", "CATALOG_IDLE_TIMEOUT": "1"}
    server = Server(create_demo(tmp_path / "catalog.db"), **timeouts)
    generator = random.Random(5)  # noqa: S311
    # By the first digit; none if there was no response.
    statuses: Counter[bytes] = Counter()
    for _ in range(20):
        connections = []
        for _ in range(100):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=15)
            noise = b"".join(generator.choices(FRAGMENTS, k=generator.randint(1, 14)))
            connection.sendall(noise)
            if generator.random() < 0.8:
                connection.shutdown(socket.SHUT_WR)
            connections.append(connection)
        for connection in connections:
            response = b""
            with connection, suppress(ConnectionResetError):
                response = connection.makefile("rb").read()
            statuses[response[9:10]] += 1
        assert server.request("GET", "/api/health")[0].status == 200
    assert (server.stop(), server.errors) == (0, "")
    figures(
        "random sequences of fragments of requests",
        "each is refused or dropped, without a 500 or a hang, and the next request succeeds",
        requests=statuses.total(),
        status_200=statuses[b"2"],
        refused=statuses[b"4"],
        failed=statuses[b"5"],
    )
    assert set(+statuses) <= {b"", b"1", b"2", b"4"}
