"""Clients that take their time: each has enough of it, and none has that of others."""

import http.client
import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from conftest import ROOT, Server, create_demo

REQUEST = b"GET /api/v1/widgets/search HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of two threads that gives each client a second for a request."""
    running = Server(
        create_demo(tmp_path_factory.mktemp("hasty") / "hasty.db"),
        CATALOG_REQUEST_TIMEOUT="1",
        CATALOG_IDLE_TIMEOUT="2",
        CATALOG_THREADS="2",
    )
    yield running
    assert running.stop() == 0


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def narrow(server: Server) -> socket.socket:
    """A connection that takes little at a time."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", server.port))
    return connection


def everything(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def drip(connection: socket.socket, data: bytes) -> None:
    """Send a byte each tenth of a second until there is an answer."""
    for byte in data:
        connection.sendall(bytes([byte]))
        if select.select([connection], [], [], 0.1)[0]:
            return
    raise AssertionError("no answer")


@pytest.mark.parametrize(
    "data",
    [
        REQUEST,
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + b"x" * 99,
        b"POST / HTTP/1.1\r\n",
    ],
    ids=["head", "body", "headers"],
)
def test_a_request_that_comes_byte_by_byte_is_refused_in_time(hasty: Server, data: bytes) -> None:
    with connect(hasty) as connection:
        connection.sendall(data[:-30])
        drip(connection, data[-30:] * 2)
        head, _, body = everything(connection).partition(b"\r\n\r\n")
    assert head.split()[1] == b"408"
    assert json.loads(body) == {"error": "The request did not come whole in time."}


def test_a_connection_that_says_nothing_is_closed_without_a_word(hasty: Server) -> None:
    with connect(hasty) as connection:
        assert everything(connection) == b""


def test_a_kept_connection_may_rest_longer_than_a_request_may_take(hasty: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", hasty.port, timeout=10)
    connection.request("GET", "/api/health")
    assert connection.getresponse().read() == b'{"status":"ok"}\n'
    assert not select.select([connection.sock], [], [], 1.5)[0]
    connection.request("GET", "/api/health")
    assert connection.getresponse().read() == b'{"status":"ok"}\n'
    assert connection.sock.recv(1) == b""  # and is closed then
    connection.close()


def test_who_asks_for_much_and_reads_nothing_holds_no_thread_and_is_let_go(hasty: Server) -> None:
    with ExitStack() as stack:
        greedy = []
        for _ in range(4):  # twice as many as there are threads
            connection = stack.enter_context(narrow(hasty))
            connection.sendall(REQUEST * 160)
            greedy.append(connection)
        assert hasty.request("GET", "/api/health")[0].status == 200
        # Closed though they take nothing: what the system had taken for them is all they get.
        poll = select.poll()
        for connection in greedy:
            poll.register(connection, select.POLLHUP)
        ended: set[int] = set()
        while len(ended) < len(greedy):
            for descriptor, _ in poll.poll(10_000) or pytest.fail("still connected"):
                poll.unregister(descriptor)
                ended.add(descriptor)


def test_requests_sent_in_one_breath_are_all_answered_in_order(server: Server) -> None:
    registry = "/api/widgets/acme/registry.json"
    bodies = {path: server.request("GET", path)[1] for path in (registry, "/api/stats")}
    paths = [registry, registry, "/api/stats"] * 100  # more than the system takes for a client
    with narrow(server) as connection:  # so that answers have to wait to be taken
        heads = (f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n" for path in paths)
        connection.sendall("".join(heads).encode())
        for _ in paths:  # by turns: after as many, the others have been answered as far as may be
            assert server.request("GET", "/api/version")[0].status == 200
        with connection.makefile("rb") as file:
            for path in paths:
                assert file.readline() == b"HTTP/1.1 200 OK\r\n"
                while (line := file.readline()) != b"\r\n":
                    assert line.endswith(b"\r\n")  # and not the end of everything
                assert file.read(len(bodies[path])) == bodies[path]


def test_where_there_is_no_room_whoever_waited_longest_makes_it(tmp_path: Path) -> None:
    with (
        Server(create_demo(tmp_path / "full.db"), CATALOG_MAX_CONNECTIONS="10") as full,
        ExitStack() as stack,
    ):
        idle = [stack.enter_context(connect(full)) for _ in range(30)]
        for connection in idle:
            connection.sendall(b"GET /")
        for _ in range(3):
            assert full.request("GET", "/api/health")[0].status == 200
        with suppress(ConnectionResetError):  # what it sent may not have been read yet
            assert everything(idle[0]) == b""
        idle[-1].sendall(b"api/health HTTP/1.0\r\n\r\n")
        assert everything(idle[-1]).endswith(b'{"status":"ok"}\n')


def test_more_connections_than_files_can_be_open_are_refused_at_the_start(tmp_path: Path) -> None:
    create_demo(tmp_path / "a.db")
    started = subprocess.run(
        ["bash", "-c", f"ulimit -n 200; exec {sys.executable} app.py"],
        cwd=ROOT,
        env={"CATALOG_DATABASE": str(tmp_path / "a.db"), "CATALOG_MAX_CONNECTIONS": "150"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (started.returncode, started.stdout) == (1, "")
    assert started.stderr == (
        "Error: CATALOG_MAX_CONNECTIONS 150 needs 374 open files, and this system allows 200.\n"
    )
