"""Stopping the service: connected clients get their responses, new connections are refused."""

import http.client
import os
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from conftest import Limits, Server, create_demo

CLOCK = "/api/v1/widgets/acme/clock"
POST = f"POST {CLOCK} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
GET = b"GET /api/version HTTP/1.1\r\nHost: a\r\n\r\n"

Start = Callable[..., Server]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def start(database: Path) -> Iterator[Start]:
    """Starts the service; kills what still runs at the end of the test."""
    started = []

    def start_server(**settings: str) -> Server:
        # The tests may run with interrupts ignored, which a child process would inherit.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        started.append(Server(database, **settings))
        signal.signal(signal.SIGINT, before)
        return started[-1]

    yield start_server
    for server in started:
        server.process.kill()
        server.process.communicate()


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def receive(connection: socket.socket) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response


def count(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (installs,) = connection.execute("SELECT sum(download_count) FROM widget").fetchone()
    return int(installs)


def locked(database: Path) -> sqlite3.Connection:
    """Return a connection that holds the write lock, so that a POST stays in flight."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def stop(server: Server, idle: socket.socket, number: signal.Signals = signal.SIGTERM) -> None:
    """Send the signal, and return when a response on the idle connection shows that it arrived."""
    server.process.send_signal(number)
    idle.sendall(GET)
    assert receive(idle).headers["Connection"] == "close"


def in_flight(server: Server, then: bytes = b"") -> socket.socket:
    """Return a connection whose POST is being handled, with more bytes sent after it."""
    connection = connect(server)
    connection.sendall(POST + then)
    # The response to a later request shows that the service has read this one.
    assert server.request("GET", "/api/version")[0].status == 200
    return connection


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_request_in_flight_gets_its_response(
    start: Start, database: Path, number: signal.Signals
) -> None:
    before = count(database)
    server = start()
    lock = locked(database)
    with in_flight(server) as connection, connect(server) as idle:
        stop(server, idle, number)
        # Not later: two processes that close the database at the same time both leave the WAL.
        lock.close()
        response = receive(connection)
        assert (response.status, response.headers["Connection"]) == (200, "close")
        assert response.read() == b'{"success":true}\n'
    assert server.process.wait(10) == 0
    # The database was closed properly.
    assert not Path(f"{database}-wal").exists()
    assert count(database) == before + 1


def test_connections_queued_before_a_stop_get_a_response(start: Start) -> None:
    # More than one turn of the event loop accepts, and less than the backlog.
    clients = 200
    server = start()
    with ExitStack() as stack:
        # A stopped process accepts nothing, so all of them stay in the listen queue.
        server.process.send_signal(signal.SIGSTOP)
        waiting = [stack.enter_context(connect(server)) for _ in range(clients)]
        for connection in waiting:
            connection.sendall(GET)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        assert [receive(connection).status for connection in waiting] == [200] * clients
    assert server.process.wait(10) == 0


PAUSE = """
import os, signal
import catalog.serving.server as server
drain = server.drain
def pause_and_drain(*arguments):
    os.kill(os.getpid(), signal.SIGSTOP)
    drain(*arguments)
server.drain = pause_and_drain
"""


def test_no_connection_whose_request_arrived_is_closed_for_a_queued_one(
    start: Start, limits: Limits
) -> None:
    server = start(CATALOG_MAX_CONNECTIONS="10", **limits.run(PAUSE))
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for _ in range(10)]
        # A response to the last one: the service has accepted all of them.
        connections[-1].sendall(GET)
        assert receive(connections.pop()).status == 200
        server.process.send_signal(signal.SIGTERM)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
        connections += [stack.enter_context(connect(server)) for _ in range(3)]
        for connection in connections:
            connection.sendall(GET)
        server.process.send_signal(signal.SIGCONT)
        assert [receive(connection).status for connection in connections] == [200] * 12
    assert server.process.wait(10) == 0


def test_only_the_last_response_of_a_connection_says_that_it_closes(
    start: Start, database: Path
) -> None:
    server = start()
    lock = locked(database)
    with in_flight(server, then=GET * 2) as connection, connect(server) as idle:
        stop(server, idle)
        lock.execute("ROLLBACK")
        with connection.makefile("rb") as file:
            received = file.read()
    lock.close()
    responses = received.split(b"HTTP/1.1 ")[1:]
    assert [response[:6] for response in responses] == [b"200 OK"] * 3
    closes = [b"Connection: close\r\n" in response for response in responses]
    assert closes == [False, False, True]
    assert server.process.wait(10) == 0


def test_connections_without_a_request_do_not_delay_the_stop(start: Start) -> None:
    server = start(CATALOG_STOP_TIMEOUT="3600")
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connect(server))
        # Within the ten seconds that stop() waits.
        assert server.stop() == 0


def test_a_request_that_is_still_arriving_gets_its_response(start: Start, limits: Limits) -> None:
    beginning = POST[:9]
    server = start(**limits.set("serving.server", STOP_IDLE_TIME=0))
    with connect(server) as connection, connect(server) as idle:
        connection.sendall(beginning)
        # The response to a later request shows that the service has read this one.
        assert server.request("GET", "/api/version")[0].status == 200
        stop(server, idle)
        # The turn of the event loop that closes the idle one leaves this one open.
        while idle.recv(1024):
            pass
        connection.sendall(POST.removeprefix(beginning))
        assert receive(connection).status == 200
    assert server.process.wait(10) == 0


def test_a_connection_after_the_stop_has_begun_is_refused(start: Start, database: Path) -> None:
    server = start()
    lock = locked(database)
    with in_flight(server) as connection, ExitStack() as stack:
        idle, *others = (stack.enter_context(connect(server)) for _ in range(3))
        stop(server, idle)
        # The service reads all sockets once more before it closes the listening one. The last
        # request is read in a later turn of the event loop.
        for other in others:
            other.sendall(GET)
            assert receive(other).status == 200
        with pytest.raises(ConnectionRefusedError):
            connect(server)
        lock.execute("ROLLBACK")
        assert receive(connection).status == 200
    assert server.process.wait(10) == 0
    lock.close()


def test_a_signal_ends_the_wait_for_events(start: Start, limits: Limits) -> None:
    # Without a request, the service would wait for this long.
    server = start(**limits.set("serving.event_loop", CHECK_INTERVAL=3600))
    assert server.request("GET", "/api/version")[0].status == 200
    wait_until_asleep(server.process.pid)
    assert server.stop() == 0


def wait_until_asleep(pid: int) -> None:
    """Return when the main thread of a process has slept for a thousand looks at it."""
    looks = 0
    while looks < 1000:
        state = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        looks = looks + 1 if state == "S" else 0


def test_a_second_signal_ends_the_process_at_once(start: Start, database: Path) -> None:
    server = start()
    lock = locked(database)
    with in_flight(server), connect(server) as idle:
        stop(server, idle)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == -signal.SIGTERM
    lock.close()


def test_a_stop_ends_after_its_timeout(start: Start, database: Path) -> None:
    server = start(CATALOG_STOP_TIMEOUT="1", CATALOG_LOG_LEVEL="warning")
    lock = locked(database)
    with in_flight(server):
        server.process.send_signal(signal.SIGTERM)
        message = server.process.stderr.readline()
        lock.close()
        assert server.process.wait(10) == 0
    assert message.endswith(" WARNING Closing 1 connection still busy after 1 second.\n")


def test_an_interrupt_stays_ignored_if_it_was_at_the_start(database: Path) -> None:
    # As a shell does for a command that it starts with &.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = Server(database)
    signal.signal(signal.SIGINT, before)
    os.kill(server.process.pid, signal.SIGINT)
    assert server.request("GET", "/api/version")[0].status == 200
    assert server.stop() == 0
