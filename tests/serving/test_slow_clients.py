"""Slow clients: each has a deadline, and none delays the others."""

import http.client
import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Limits, Server, import_demo


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a request timeout of one second."""
    limits = Limits(tmp_path_factory.mktemp("site"))
    running = Server(
        import_demo(tmp_path_factory.mktemp("strict") / "strict.db"),
        CATALOG_REQUEST_TIMEOUT="1",
        # Much longer than a test leaves a connection idle, also on a busy machine.
        CATALOG_IDLE_TIMEOUT="4",
        **limits.set("serving.event_loop", CHECK_INTERVAL=0.1),
    )
    yield running
    assert running.stop() == 0


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def read_all(connection: socket.socket) -> bytes:
    """All that is received until the server closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "data",
    [
        b"GET /api/v1/widgets/search HTTP/1.1\r\nHost: a\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + b"x" * 40,
    ],
    ids=["head", "body"],
)
def test_a_request_that_arrives_byte_by_byte_gets_408(strict_server: Server, data: bytes) -> None:
    with connect(strict_server) as connection:
        connection.sendall(data[:-30])
        for byte in data[-30:]:
            connection.sendall(bytes([byte]))
            if select.select([connection], [], [], 0.33)[0]:
                break
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.split()[1] == b"408"
    assert json.loads(body) == {"error": "Request timed out before it was complete."}


def test_a_connection_that_sends_nothing_is_closed_without_a_response(
    strict_server: Server,
) -> None:
    with connect(strict_server) as connection:
        assert read_all(connection) == b""


def test_a_connection_may_be_idle_longer_than_a_request_may_take(strict_server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", strict_server.port, timeout=10)
    connection.request("GET", "/api/health")
    assert connection.getresponse().read() == b'{"status":"ok"}\n'
    assert not select.select([connection.sock], [], [], 1.5)[0]
    connection.request("GET", "/api/health")
    assert connection.getresponse().read() == b'{"status":"ok"}\n'
    # It is closed after the idle timeout.
    assert connection.sock.recv(1) == b""
    connection.close()


def test_pipelined_requests_beyond_the_buffers_get_responses_in_order(server: Server) -> None:
    # Of the I/O thread, the quick and the long one.
    paths = ["/api/v1/widgets/search", "/docs", "/api/widgets/acme/registry.json", "/api/stats"]
    bodies = [server.request("GET", path, Host="a")[1] for path in paths]
    # More than the kernel buffers for a client; the small window makes responses wait.
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", server.port))
        heads = "".join(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n" for path in paths)
        connection.sendall(heads.encode() * 75)
        # After as many turns of the event loop, the service has sent as much as it can.
        for _ in range(300):
            assert server.request("GET", "/api/version")[0].status == 200
        with connection.makefile("rb") as file:
            for body in bodies * 75:
                assert file.readline() == b"HTTP/1.1 200 OK\r\n"
                while (line := file.readline()) != b"\r\n":
                    # An empty line would mean that the connection was closed.
                    assert line.endswith(b"\r\n")
                assert file.read(len(body)) == body


def test_a_connection_limit_above_the_limit_of_open_files_stops_the_start(tmp_path: Path) -> None:
    import_demo(tmp_path / "a.db")
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
        "Error: CATALOG_MAX_CONNECTIONS 150 needs 429 open files, and this system allows 200.\n"
    )
