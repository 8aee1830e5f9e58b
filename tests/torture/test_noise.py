"""Requests put together of parts of requests: refused or answered, and nothing else suffers."""

import random
import socket
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Server, create_demo

PIECES = [b"GET ", b"POST ", b"/api/v1/widgets/search?q=", b"/api/health", b" HTTP/1.1", b"\r\n"]
PIECES += [b"Host: a", b"Content-Length: ", b"Transfer-Encoding: chunked", b"5", b"0", b"\r\n\r\n"]
PIECES += [b"Expect: 100-continue", b"\n", b"\0", b": ", b" ", b"\xff", b"%", b"hello", b"a" * 9000]
# Whole heads too, or most of it would be refused at the first line.
PIECES += [b"GET /api/health HTTP/1.1\r\nHost: a\r\n", b"POST /api/v1/widgets/a/b HTTP/1.1\r\n"] * 3


def test_noise_of_every_kind_never_hangs_or_breaks_it(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    hasty = {"CATALOG_REQUEST_TIMEOUT": "1", "CATALOG_IDLE_TIMEOUT": "1"}
    server = Server(create_demo(tmp_path / "catalog.db"), **hasty)
    chance = random.Random(5)  # noqa: S311
    pieces = [
        b"GET ",
        b"POST ",
        b"/api/v1/widgets/search?q=",
        b"/api/health",
        b" HTTP/1.1",
        b"\r\n",
    ]
    pieces += [
        b"Host: a",
        b"Content-Length: ",
        b"Transfer-Encoding: chunked",
        b"5",
        b"0",
        b"\r\n\r\n",
    ]
    pieces += [
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
    statuses: dict[bytes, int] = {}
    sent = 0
    for _ in range(20):
        connections = []
        for _ in range(100):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=15)
            noise = b"".join(chance.choices(PIECES, k=chance.randint(1, 14)))
            connection.sendall(noise)
            if chance.random() < 0.8:
                connection.shutdown(socket.SHUT_WR)
            connections.append(connection)
            sent += 1
        for connection in connections:
            try:
                answer = connection.makefile("rb").read()
            except ConnectionResetError:
                answer = b""
            status = answer[9:12]
            statuses[status] = statuses.get(status, 0) + 1
            connection.close()
        assert server.request("GET", "/api/health")[0].status == 200
    server.process.terminate()
    _, errors = server.process.communicate(timeout=20)
    figures(
        "requests put together of noise",
        "refused or dropped, never a 500, never a hang, the next is fine",
        requests=sent,
        answered_200=statuses.get(b"200", 0),
        refused=sum(count for status, count in statuses.items() if status[:1] == b"4"),
        failed=sum(count for status, count in statuses.items() if status[:1] == b"5"),
    )
    assert errors == ""
    assert {status[:1] for status in statuses} <= {b"", b"1", b"2", b"4"}
