"""Socket activation: the service uses the sockets that systemd passes, and a restart loses none."""

import http.client
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from activation import start_with
from conftest import create_demo

GET = b"GET /api/version HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /api/v1/widgets/acme/clock HTTP/1.1\r\nHost: a\r\n\r\n"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def start(database: Path) -> Iterator[Start]:
    """Starts the service with sockets; those that still run at the end of the test are killed."""
    processes = []

    def start_process(*passed: socket.socket, **options: Any) -> subprocess.Popen[str]:
        processes.append(start_with(database, *passed, **options))
        return processes[-1]

    yield start_process
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listening socket that outlives the processes it is passed to."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield listening


@pytest.fixture
def unix_listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        yield listening


def connect(listening: socket.socket) -> socket.socket:
    connection = socket.socket(listening.family)
    connection.settimeout(60)
    connection.connect(listening.getsockname())
    return connection


def receive(connection: socket.socket) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response


def get(listening: socket.socket) -> int:
    with connect(listening) as connection:
        connection.sendall(GET)
        return receive(connection).status


def stop(process: subprocess.Popen[str]) -> str:
    """Stop the service and return what it wrote to standard output after its first line."""
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out


def test_a_passed_socket_is_served_instead_of_host_and_port(
    start: Start, listener: socket.socket
) -> None:
    process = start(listener, CATALOG_HOST="not an address", CATALOG_PORT="1")
    port = listener.getsockname()[1]
    assert process.stdout.readline().endswith(f"catalog.db on http://127.0.0.1:{port}\n")
    assert get(listener) == 200
    assert stop(process) == ""


@pytest.mark.parametrize("prefix", ["", "@"], ids=["path", "abstract"])
def test_systemd_is_told_once_when_the_service_responds(
    start: Start, listener: socket.socket, tmp_path: Path, prefix: str
) -> None:
    name = f"{prefix}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(name.replace("@", "\0"))
        notified.settimeout(20)
        process = start(listener, NOTIFY_SOCKET=name)
        assert notified.recv(100) == b"READY=1"
        assert get(listener) == 200
        process.stdout.readline()
        assert stop(process) == ""
        notified.setblocking(False)
        with pytest.raises(BlockingIOError):
            notified.recv(100)


def test_every_passed_socket_is_served(
    start: Start, listener: socket.socket, unix_listener: socket.socket
) -> None:
    process = start(listener, unix_listener, LISTEN_FDNAMES="first:second")
    process.stdout.readline()
    assert [get(each) for each in (unix_listener, listener)] == [200, 200]
    assert stop(process) == ""


def test_clients_of_a_unix_socket_have_no_address_and_share_no_limit(
    start: Start, unix_listener: socket.socket
) -> None:
    settings = {"CATALOG_LOG_LEVEL": "info", "CATALOG_MAX_CONNECTIONS_PER_CLIENT": "1"}
    process = start(unix_listener, **settings)
    assert process.stdout.readline().endswith(f" on unix:{unix_listener.getsockname()}\n")
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(unix_listener)) for _ in range(3)]
        for connection in connections * 2:
            connection.sendall(GET)
            assert receive(connection).status == 200
    line = r"\S+ - GET /api/version 200 \d+ \d+\.\d\n"
    assert re.fullmatch(f"({line}){{6}}", stop(process))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv4_client_of_a_socket_for_ipv6_has_its_ipv4_address(start: Start) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        port = listening.getsockname()[1]
        process = start(listening, CATALOG_LOG_LEVEL="info")
        assert process.stdout.readline().endswith(f" on http://[::]:{port}\n")
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port), timeout=60) as connection:
                connection.sendall(GET)
                assert receive(connection).status == 200
        clients = [line.split()[1] for line in stop(process).splitlines()]
    assert clients == ["127.0.0.1", "::1"]


def test_a_restart_loses_no_connection(
    start: Start, listener: socket.socket, database: Path
) -> None:
    first = start(listener)
    first.stdout.readline()
    lock = sqlite3.connect(database, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with ExitStack() as stack:
        in_flight, *idle = (stack.enter_context(connect(listener)) for _ in range(4))
        in_flight.sendall(POST)
        # A response to a later connection: the service has accepted all before it.
        assert get(listener) == 200
        first.send_signal(signal.SIGTERM)
        # The third response is of a turn of the event loop that is two after that of the signal: by
        # then the service has closed its listening socket.
        for connection in idle:
            connection.sendall(GET)
            assert receive(connection).headers["Connection"] == "close"
        queued = [stack.enter_context(connect(listener)) for _ in range(20)]
        for connection in queued[:10]:
            connection.sendall(GET)
        lock.close()
        assert receive(in_flight).status == 200
        assert first.wait(10) == 0
        second = start(listener)
        for connection in queued[10:]:
            connection.sendall(GET)
        assert [receive(each).status for each in queued] == [200] * 20
        assert get(listener) == 200
        second.stdout.readline()
        assert stop(second) == ""


def test_sockets_of_another_process_are_ignored(start: Start, listener: socket.socket) -> None:
    process = start(listener, LISTEN_PID="1", LISTEN_FDS="many")
    port = int(process.stdout.readline().rsplit(":")[-1])
    assert port != listener.getsockname()[1]


def test_a_descriptor_that_is_not_a_listening_stream_socket_stops_the_start(
    start: Start, listener: socket.socket, tmp_path: Path
) -> None:
    reason = "passed by LISTEN_FDS, is not a listening TCP or Unix socket."
    with (
        socket.socket() as unbound,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        (tmp_path / "file").open("wb") as file,
    ):
        for wrong in (unbound, datagrams, file):
            process = start(listener, wrong)
            output = process.communicate(timeout=30)
            assert (process.returncode, *output) == (1, "", f"Error: Descriptor 4, {reason}\n")
