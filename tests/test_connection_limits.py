"""Limits that connections share: those without progress make room for the others."""

import http.client
import select
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from builders import bundled, document, version
from conftest import Server, hold

from app import create_app
from catalog.documents import check_document
from catalog.serving.connection_limits import ConnectionLimits, Rank
from catalog.store import writes

CONTENT = bytes(8_000_000)
BUNDLE = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
CLOCK = "/api/v1/widgets/acme/clock"
SCOPES = [f"scope-{number}" for number in range(8)]
REGISTRIES = [f"/api/widgets/{scope}/registry.json" for scope in SCOPES]
MEGABYTES_OF_A_REGISTRY = 2
ONE, OTHER = "127.0.0.1", "127.0.0.2"

Ask = Callable[..., socket.socket]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a large bundle, and with scopes of large registries."""
    path = tmp_path_factory.mktemp("limits") / "catalog.db"
    app = create_app({"DATABASE": path})
    notes = "x" * (MEGABYTES_OF_A_REGISTRY * 1024 * 1024)
    documents = [document(f"{scope}/clock", version(releaseNotes=notes)) for scope in SCOPES]
    documents.append(document("acme/clock", bundled("1.0.0", CONTENT)))
    app.extensions["database"].create(writes.put_documents(map(check_document, documents)))
    hold(app, CONTENT)
    app.extensions["database"].close()
    return path


@contextmanager
def serving(catalog: Path, **settings: object) -> Iterator[tuple[Server, Ask]]:
    """A server in which no deadline passes, and a way to ask it and leave the response unread."""
    unhurried = {"CATALOG_REQUEST_TIMEOUT": "3600", "CATALOG_IDLE_TIMEOUT": "3600"}
    given = {f"CATALOG_{name}": str(value) for name, value in settings.items()}
    with Server(catalog, **unhurried | given) as server, ExitStack() as stack:

        def ask(path: str, client: str = ONE, method: str = "GET") -> socket.socket:
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.bind((client, 0))
            connection.connect((ONE, server.port))
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            return connection

        yield server, ask


def leave_unread(connection: socket.socket) -> socket.socket:
    """Wait until the response begins, and read no more of it."""
    assert connection.recv(1) == b"H"
    return connection


def read_rest(connection: socket.socket) -> bytes | None:
    """The body of a response left unread; None if the server has closed the connection."""
    try:
        with connection.makefile("rb") as file:
            head = b"".join(iter(file.readline, b"\r\n"))
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            body = file.read(length)
            return body if len(body) == length else None
    except (ConnectionError, IndexError):
        return None


def status(connection: socket.socket) -> int | None:
    """The status of a response; None if the server has closed the connection."""
    try:
        response = http.client.HTTPResponse(connection)
        response.begin()
    except (ConnectionError, http.client.BadStatusLine):
        return None
    return response.status


def wait_until_closed(connections: list[socket.socket], count: int) -> list[socket.socket]:
    """Wait until so many are closed, though nothing is read from them; the others are left."""
    left = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for descriptor in left:
        poll.register(descriptor, select.POLLHUP)
    while len(left) > len(connections) - count:
        for descriptor, _ in poll.poll(20_000) or pytest.fail("still connected"):
            poll.unregister(descriptor)
            del left[descriptor]
    return list(left.values())


def cpu_seconds(server: Server) -> float:
    times = Path(f"/proc/{server.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / 100


def test_newcomers_are_served_while_all_others_leave_large_responses_unread(catalog: Path) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (server, ask):
        for _ in range(10):
            leave_unread(ask(BUNDLE))
        for _ in range(20):
            assert server.request("GET", "/api/health")[0].status == 200


def test_no_more_connections_are_closed_than_newcomers_need(catalog: Path) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (_, ask):
        unread = [leave_unread(ask(BUNDLE)) for _ in range(25)]
        left = wait_until_closed(unread, 15)
        assert unread[-1] in left
        assert [read_rest(connection) for connection in left] == [CONTENT] * 10


def test_a_slow_but_steady_reader_stays_while_those_that_stand_still_make_room(
    catalog: Path,
) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (_, ask):
        steady = ask(BUNDLE)
        with steady.makefile("rb") as file:
            read = file.read(256 * 1024)
            for _ in range(20):
                leave_unread(ask(BUNDLE))
                read += file.read(256 * 1024)
            head = read.partition(b"\r\n\r\n")[0]
            read += file.read(len(head) + 4 + len(CONTENT) - len(read))
        assert read.endswith(CONTENT)


def test_an_idle_connection_makes_room_before_a_download(catalog: Path) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (_, ask):
        downloads = [leave_unread(ask(BUNDLE)) for _ in range(9)]
        for _ in range(20):
            assert read_rest(ask("/api/health")) == b'{"status":"ok"}\n'
        assert [read_rest(connection) for connection in downloads] == [CONTENT] * 9


@pytest.fixture
def blocked_installs(catalog: Path) -> Iterator[sqlite3.Connection]:
    """A lock on the database, so that every POST is worked on until it is let go."""
    with closing(sqlite3.connect(catalog, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_requests_that_are_worked_on_are_finished_before_a_newcomer_gets_in(
    catalog: Path, blocked_installs: sqlite3.Connection
) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (server, ask):
        in_flight = [ask(CLOCK, method="POST") for _ in range(10)]
        newcomer = ask("/api/health")
        before = cpu_seconds(server)
        assert not select.select([newcomer], [], [], 1)[0]
        # Nor does the loop turn for want of room.
        assert cpu_seconds(server) - before < 0.5
        blocked_installs.execute("ROLLBACK")
        # 503 where the lock was held for longer than an install waits.
        assert {status(connection) for connection in in_flight} <= {200, 503}
        assert status(newcomer) == 200


def test_a_client_with_too_many_connections_displaces_its_own_alone(catalog: Path) -> None:
    limits = {"MAX_CONNECTIONS": 10, "MAX_CONNECTIONS_PER_CLIENT": 5}
    with serving(catalog, **limits) as (server, ask):
        others = [leave_unread(ask(BUNDLE, OTHER)) for _ in range(5)]
        many = [leave_unread(ask(BUNDLE, ONE)) for _ in range(30)]
        left = wait_until_closed(many, 25)
        assert many[-1] in left
        assert [read_rest(connection) for connection in left + others] == [CONTENT] * 10
        assert server.request("GET", "/api/health")[0].status == 200


def test_a_client_all_of_whose_requests_are_worked_on_gets_no_further_connection(
    catalog: Path, blocked_installs: sqlite3.Connection
) -> None:
    with serving(catalog, MAX_CONNECTIONS_PER_CLIENT=3) as (_, ask):
        in_flight = [ask(CLOCK, ONE, "POST") for _ in range(3)]
        # What is sent later is answered: so the service has read what was sent before.
        assert status(ask("/api/health", OTHER)) == 200
        assert status(ask("/api/health", ONE)) is None
        assert status(ask("/api/health", OTHER)) == 200
        blocked_installs.execute("ROLLBACK")
        assert {status(connection) for connection in in_flight} <= {200, 503}


@pytest.mark.parametrize(
    "settings", [{"TRUSTED_PROXY": "127.0.0.0/30"}, {"MAX_CONNECTIONS_PER_CLIENT": 0}], ids=str
)
def test_a_trusted_proxy_has_as_many_connections_as_there_are(
    catalog: Path, settings: dict[str, object]
) -> None:
    with serving(catalog, **{"MAX_CONNECTIONS_PER_CLIENT": 2, **settings}) as (_, ask):
        unread = [leave_unread(ask(BUNDLE)) for _ in range(12)]
        assert [read_rest(connection) for connection in unread] == [CONTENT] * 12


class StubConnection:
    """A connection that must not be closed: loopback has one address of IPv6 alone."""

    def __init__(self, address: str) -> None:
        self.addr = (address, 1)

    def rank(self, now: float) -> Rank | None:
        return None

    def drop(self) -> None:
        raise AssertionError

    def bodies(self) -> list[bytes]:
        return []


def test_the_addresses_of_one_ipv6_network_are_one_client() -> None:
    limits = ConnectionLimits(1, [])
    limits.add(StubConnection("2001:db8::1"))
    assert not limits.admits("2001:db8::ffff:2", 0)
    assert limits.admits("2001:db8:0:1::1", 0)


def test_an_unread_response_ends_after_the_timeout_however_large_it_is(catalog: Path) -> None:
    with serving(catalog, REQUEST_TIMEOUT=1) as (_, ask):
        wait_until_closed([leave_unread(ask(BUNDLE))], 1)


def test_what_the_kernel_holds_of_a_response_ends_after_the_timeout_too(catalog: Path) -> None:
    with serving(catalog, REQUEST_TIMEOUT=1) as (_, ask):
        part = "HTTP/1.1\r\nConnection: close\r\nRange: bytes=0-99999\r\nX-Rest:"
        wait_until_closed([leave_unread(ask(f"{BUNDLE} {part}"))], 1)


@pytest.fixture
def little_memory(tmp_path: Path) -> str:
    """A PYTHONPATH with which a server has three megabytes for unsent bodies."""
    (tmp_path / "sitecustomize.py").write_text(
        "import catalog.serving.connection_limits\n"
        "catalog.serving.connection_limits.MAX_UNSENT = 3 * 1024 * 1024\n"
        "catalog.serving.connection_limits.UNSENT_STEP = 1024 * 1024\n"
    )
    return f"{tmp_path}:."


def test_unread_bodies_beyond_the_memory_for_them_are_given_up(
    catalog: Path, little_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", little_memory)
    with serving(catalog) as (_, ask):
        download = leave_unread(ask(BUNDLE))
        unread = [leave_unread(ask(registry)) for registry in REGISTRIES]
        # Two fit, of which the largest does not count.
        left = wait_until_closed(unread, len(unread) - 2)
        assert [len(read_rest(each) or b"") >> 20 for each in left] == [2, 2]
        # A file takes no memory.
        assert read_rest(download) == CONTENT


def test_a_body_that_many_connections_send_counts_once(
    catalog: Path, little_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", little_memory)
    with serving(catalog) as (_, ask):
        unread = [leave_unread(ask(REGISTRIES[0])) for _ in range(20)]
        last = leave_unread(ask(REGISTRIES[1]))
        assert [len(read_rest(each) or b"") >> 20 for each in [*unread, last]] == [2] * 21


def test_a_registry_larger_than_the_memory_for_unsent_bodies_is_sent_whole(
    tmp_path: Path, little_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", little_memory)
    path = tmp_path / "pieces.db"
    app = create_app({"DATABASE": path})
    notes = "x" * 20_000
    documents = [document(f"acme/w{n:03}", version(releaseNotes=notes)) for n in range(600)]
    app.extensions["database"].create(writes.put_documents(map(check_document, documents)))
    app.extensions["database"].close()
    with serving(path) as (_, ask):
        body = read_rest(ask("/api/widgets/acme/registry.json"))
    assert body is not None
    assert body.count(b'"releaseNotes":"x') == 600
