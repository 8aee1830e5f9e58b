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
from builders import document
from conftest import ROOT, Limits, Server, create_catalog, import_demo


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
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


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
    connection = http.client.HTTPConnection("127.0.0.1", strict_server.port, timeout=60)
    connection.request("GET", "/api/health")
    assert connection.getresponse().read() == b'{"status":"ok"}\n'
    assert not select.select([connection.sock], [], [], 1.5)[0]
    connection.request("GET", "/api/health")
    assert connection.getresponse().read() == b'{"status":"ok"}\n'
    # It is closed after the idle timeout.
    assert connection.sock.recv(1) == b""
    connection.close()


# The clock of connections is the number in a file.
SET_CLOCK = """
import types, catalog.serving.connections, catalog.serving.event_loop as event_loop
def read_clock():
    with open({path!r}) as file:
        return float(file.read())
clock = types.SimpleNamespace(monotonic=read_clock, perf_counter=event_loop.time.perf_counter)
catalog.serving.connections.time = event_loop.time = clock
"""


class Clock:
    """The clock of a server's connections, which only the test advances."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._path, self._seconds = folder / "clock", 0.0
        self._path.write_text("0")
        limits.run(SET_CLOCK.format(path=str(self._path)))
        # Each turn checks the deadlines.
        self.settings = limits.set("serving.event_loop", CHECK_INTERVAL=0)

    def advance(self, seconds: float) -> None:
        self._seconds += seconds
        new = self._path.with_suffix(".new")
        new.write_text(str(self._seconds))
        new.replace(self._path)


@pytest.fixture
def clock(tmp_path: Path, limits: Limits) -> Clock:
    return Clock(tmp_path, limits)


def run_turns(server: Server) -> None:
    """Return when the server has read what was sent before, and has checked the deadlines."""
    for _ in range(3):
        assert server.request("GET", "/api/version")[0].status == 200


def test_idle_time_begins_when_the_response_has_been_sent(tmp_path: Path, clock: Clock) -> None:
    # Larger than the buffers of the kernel, so that the client takes a part of it later.
    documents = [document(f"acme/w{n}", description="d" * 10_000) for n in range(1000)]
    database = create_catalog(tmp_path / "catalog.db", *documents)
    timeouts = {"CATALOG_REQUEST_TIMEOUT": "3600", "CATALOG_IDLE_TIMEOUT": "60"}
    with Server(database, **timeouts, **clock.settings) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/widgets/acme/registry.json")
        response = connection.getresponse()
        clock.advance(1000)
        assert len(response.read()) > 10_000_000
        run_turns(server)
        clock.advance(59)
        run_turns(server)
        connection.request("GET", "/api/version")
        assert connection.getresponse().read().startswith(b'{"version":')
        run_turns(server)
        clock.advance(61)
        run_turns(server)
        assert connection.sock.recv(1) == b""
        connection.close()


UPLOAD = (
    b"PUT /api/widgets/acme/clock/1.0.0 HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n"
)


def is_read(server: Server, connection: socket.socket) -> bool:
    """Whether the server still reads what the client sends on a connection."""
    try:
        for _ in range(2):
            connection.sendall(b"x")
            run_turns(server)
    except OSError:
        return False
    return True


def test_a_client_that_sends_its_whole_rejected_upload_gets_the_response(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(UPLOAD + b"x" * 30_000_000)
        assert read_all(connection).startswith(b"HTTP/1.1 401 ")


def test_a_rejected_upload_is_read_for_30_seconds_or_until_the_client_is_quiet_for_5(
    tmp_path: Path, clock: Clock
) -> None:
    database = create_catalog(tmp_path / "catalog.db")
    with (
        Server(database, **clock.settings) as server,
        connect(server) as steady,
        connect(server) as quiet,
    ):
        for connection in (steady, quiet):
            # Each byte is sent at once.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(UPLOAD)
            # The server has shut down its side.
            assert read_all(connection).startswith(b"HTTP/1.1 401 ")
        clock.advance(4)
        assert is_read(server, steady)
        assert is_read(server, quiet)
        clock.advance(4)
        assert is_read(server, steady)
        clock.advance(2)
        run_turns(server)
        assert not is_read(server, quiet)
        for _ in range(4):
            assert is_read(server, steady)
            clock.advance(4.5)
        assert is_read(server, steady)
        clock.advance(3)
        run_turns(server)
        assert not is_read(server, steady)


def test_pipelined_requests_beyond_the_buffers_get_responses_in_order(server: Server) -> None:
    # Of the I/O thread, the quick and the long one.
    paths = ["/api/v1/widgets/search", "/docs", "/api/widgets/acme/registry.json", "/api/stats"]
    bodies = [server.request("GET", path, Host="a")[1] for path in paths]
    # More than the kernel buffers for a client; the small window makes responses wait.
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
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
        "Error: CATALOG_MAX_CONNECTIONS 150 needs 474 open files: this system allows 200.\n"
    )
