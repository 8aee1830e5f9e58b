"""The end of the service: what was asked before is answered, what comes after is not begun."""

import http.client
import os
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import Server, create_demo

CLOCK = "/api/v1/widgets/acme/clock"
POST = f"POST {CLOCK} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
GET = b"GET /api/version HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def start(database: Path) -> Iterator[Callable[..., Server]]:
    """Starts the service; whatever still runs at the end of the test is ended."""
    started = []

    def start_server(**settings: str) -> Server:
        # Whoever runs the tests may ignore interrupts, and a child inherits that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        started.append(Server(database, **settings))
        signal.signal(signal.SIGINT, before)
        return started[-1]

    yield start_server
    for server in started:
        server.process.kill()
        server.process.communicate()


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def response(connection: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer


def count(database: Path) -> int:
    connection = sqlite3.connect(database)
    (installs,) = connection.execute(
        "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
    ).fetchone()
    connection.close()
    return installs


def locked(database: Path) -> sqlite3.Connection:
    """Holds the lock that a write needs, so that a POST stays in flight."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def stop(server: Server, kept: socket.socket, ending: signal.Signals = signal.SIGTERM) -> None:
    """Have the service stop, and wait until it has begun to: whom it answers then, it lets go."""
    server.process.send_signal(ending)
    kept.sendall(GET)
    assert response(kept).headers["Connection"] == "close"


def in_flight(server: Server, then: bytes = b"") -> socket.socket:
    """A connection whose POST the service is working on, with what was sent after it."""
    connection = connect(server)
    connection.sendall(POST + then)
    # What is sent later is answered: so the service has read what was sent before.
    assert server.request("GET", "/api/version")[0].status == 200
    return connection


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_request_in_flight_is_finished(
    start: Callable[..., Server], database: Path, ending: signal.Signals
) -> None:
    before = count(database)
    server = start()
    lock = locked(database)
    with in_flight(server) as connection, connect(server) as kept:
        stop(server, kept, ending)
        lock.execute("ROLLBACK")
        answer = response(connection)
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert answer.read() == b'{"success":true}\n'
    lock.close()
    assert server.process.wait(10) == 0
    assert not Path(f"{database}-wal").exists()  # closed in order
    assert count(database) == before + 1


@pytest.mark.parametrize("clients", [1, 200])
def test_connections_queued_before_a_stop_get_a_response(
    start: Callable[..., Server], clients: int
) -> None:
    """200 is more than one turn of the event loop accepts, and less than the backlog."""
    server = start()
    with ExitStack() as stack:
        # A stopped process accepts nothing, so all of them stay in the listen queue.
        server.process.send_signal(signal.SIGSTOP)
        waiting = [stack.enter_context(connect(server)) for _ in range(clients)]
        for connection in waiting:
            connection.sendall(GET)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        assert [response(connection).status for connection in waiting] == [200] * clients
    assert server.process.wait(10) == 0


def test_connections_that_wait_for_room_when_a_stop_begins_get_a_response(
    start: Callable[..., Server], database: Path
) -> None:
    server = start(CATALOG_MAX_CONNECTIONS="10")
    lock = locked(database)
    with ExitStack() as stack:
        connections = []
        for request in [POST] * 10 + [GET] * 3:
            connections.append(stack.enter_context(connect(server)))
            connections[-1].sendall(request)
        server.process.send_signal(signal.SIGTERM)
        lock.close()
        assert [response(connection).status for connection in connections] == [200] * 13
    assert server.process.wait(10) == 0


def test_only_the_last_response_of_a_connection_says_that_it_closes(
    start: Callable[..., Server], database: Path
) -> None:
    server = start()
    lock = locked(database)
    with in_flight(server, then=GET * 2) as connection, connect(server) as kept:
        stop(server, kept)
        lock.execute("ROLLBACK")
        with connection.makefile("rb") as file:
            received = file.read()
    lock.close()
    responses = received.split(b"HTTP/1.1 ")[1:]
    assert [response[:6] for response in responses] == [b"200 OK"] * 3
    closing = [b"Connection: close\r\n" in response for response in responses]
    assert closing == [False, False, True]
    assert server.process.wait(10) == 0


def test_connections_that_ask_nothing_do_not_delay_the_end(start: Callable[..., Server]) -> None:
    server = start(CATALOG_STOP_TIMEOUT="3600")
    with ExitStack() as stack:
        for sent in (b"", b"GET /api", POST[:-2]):
            stack.enter_context(connect(server)).sendall(sent)
        assert server.stop() == 0  # within the ten seconds that it waits


def test_a_connection_after_the_stop_has_begun_is_refused(
    start: Callable[..., Server], database: Path
) -> None:
    server = start()
    lock = locked(database)
    with in_flight(server) as connection, connect(server) as kept, connect(server) as next_kept:
        stop(server, kept)
        # This request is read in a later turn of the event loop than the one of the signal, so
        # the listening socket is closed by then.
        next_kept.sendall(GET)
        assert response(next_kept).status == 200
        with pytest.raises(ConnectionRefusedError):
            connect(server)
        lock.execute("ROLLBACK")
        assert response(connection).status == 200
    assert server.process.wait(10) == 0
    lock.close()


def test_a_second_signal_ends_it_at_once(start: Callable[..., Server], database: Path) -> None:
    server = start()
    lock = locked(database)
    with in_flight(server), connect(server) as kept:
        stop(server, kept)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == -signal.SIGTERM
    lock.close()


def test_it_does_not_wait_longer_than_it_may(start: Callable[..., Server], database: Path) -> None:
    server = start(CATALOG_STOP_TIMEOUT="1", CATALOG_LOG_LEVEL="warning")
    lock = locked(database)
    with in_flight(server):
        server.process.send_signal(signal.SIGTERM)
        said = server.process.stderr.readline()
        lock.close()
        assert server.process.wait(10) == 0
    assert said.endswith(" WARNING 1 connection was not finished 1 second after the stop.\n")


def test_an_interrupt_that_is_not_for_it_is_ignored(database: Path) -> None:
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # as a shell does for what it starts with &
    server = Server(database)
    signal.signal(signal.SIGINT, before)
    os.kill(server.process.pid, signal.SIGINT)
    assert server.request("GET", "/api/version")[0].status == 200
    assert server.stop() == 0
