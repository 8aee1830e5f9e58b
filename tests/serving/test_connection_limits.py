"""Limits that connections share: those without progress are closed first."""

import http.client
import resource
import select
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from builders import bundled, document, version
from conftest import Limits, Server, hold, putting

from app import create_app
from catalog.domain.documents import check_document

CONTENT = bytes(8_000_000)
BUNDLE = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
CLOCK = "/api/v1/widgets/acme/clock"
SCOPES = [f"scope-{number}" for number in range(8)]
REGISTRIES = [f"/api/widgets/{scope}/registry.json" for scope in SCOPES]
ONE, OTHER = "127.0.0.1", "127.0.0.2"

Send = Callable[..., socket.socket]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a large bundle, and with scopes of large registries."""
    path = tmp_path_factory.mktemp("limits") / "catalog.db"
    app = create_app({"DATABASE": path})
    # Two megabytes each.
    versions = [version(f"1.{number}.0", releaseNotes="x" * 65_536) for number in range(32)]
    documents = [document(f"{scope}/clock", *versions) for scope in SCOPES]
    documents.append(document("acme/clock", bundled("1.0.0", CONTENT)))
    app.extensions["database"].create(putting(map(check_document, documents)))
    hold(app, CONTENT)
    app.extensions["database"].close()
    return path


@contextmanager
def serving(catalog: Path, **settings: object) -> Iterator[tuple[Server, Send]]:
    """A server in which no deadline passes, and a function that sends a request to it."""
    no_deadlines = {"CATALOG_REQUEST_TIMEOUT": "3600", "CATALOG_IDLE_TIMEOUT": "3600"}
    named = {
        name if name == "PYTHONPATH" else f"CATALOG_{name}": str(value)
        for name, value in settings.items()
    }
    with Server(catalog, **no_deadlines | named) as server, ExitStack() as stack:

        def send(path: str, client: str = ONE, method: str = "GET") -> socket.socket:
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.bind((client, 0))
            connection.connect((ONE, server.port))
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            return connection

        yield server, send


def leave_unread(connection: socket.socket) -> socket.socket:
    """Wait until the response begins, and do not read the rest."""
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
    """Wait until this many of the unread connections are closed, and return the others."""
    left = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for descriptor in left:
        poll.register(descriptor, select.POLLHUP)
    while len(left) > len(connections) - count:
        for descriptor, _ in poll.poll(20_000) or pytest.fail("still connected"):
            poll.unregister(descriptor)
            del left[descriptor]
    return list(left.values())


def test_a_slow_but_steady_reader_stays_while_connections_without_progress_are_closed(
    catalog: Path,
) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (_, send):
        steady = send(BUNDLE)
        with steady.makefile("rb") as file:
            read = file.read(256 * 1024)
            unread = []
            for _ in range(20):
                unread.append(leave_unread(send(BUNDLE)))
                read += file.read(256 * 1024)
            head = read.partition(b"\r\n\r\n")[0]
            read += file.read(len(head) + 4 + len(CONTENT) - len(read))
        assert read.endswith(CONTENT)
        # Each new one has replaced another, and the last nine are left.
        assert unread[-1] in wait_until_closed(unread, 11)


def test_an_idle_connection_is_closed_before_a_download(catalog: Path) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (_, send):
        downloads = [leave_unread(send(BUNDLE)) for _ in range(9)]
        for _ in range(20):
            assert read_rest(send("/api/health")) == b'{"status":"ok"}\n'
        assert [read_rest(connection) for connection in downloads] == [CONTENT] * 9


@pytest.fixture
def blocked_installs(catalog: Path) -> Iterator[sqlite3.Connection]:
    """A lock on the database: every POST is in flight until it is released."""
    with closing(sqlite3.connect(catalog, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_a_new_connection_waits_while_all_others_have_requests_in_flight(
    catalog: Path, blocked_installs: sqlite3.Connection
) -> None:
    with serving(catalog, MAX_CONNECTIONS=10) as (server, send):
        in_flight = [send(CLOCK, method="POST") for _ in range(10)]
        waiting = send("/api/health")
        before = server.cpu_seconds()
        assert not select.select([waiting], [], [], 1)[0]
        # Meanwhile the event loop must not spin.
        assert server.cpu_seconds() - before < 0.5
        blocked_installs.execute("ROLLBACK")
        # 503 if the lock was held for longer than an install waits.
        assert {status(connection) for connection in in_flight} <= {200, 503}
        assert status(waiting) == 200


def test_without_a_file_descriptor_the_service_waits_and_does_not_spin(catalog: Path) -> None:
    with serving(catalog) as (server, send):
        assert status(send("/api/health")) == 200
        pid = server.process.pid
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, hard))
        waiting = send("/api/health")
        before = server.cpu_seconds()
        assert not select.select([waiting], [], [], 1)[0]
        assert server.cpu_seconds() - before < 0.5
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert status(waiting) == 200


def test_a_client_with_too_many_connections_displaces_only_its_own(catalog: Path) -> None:
    limits = {"MAX_CONNECTIONS": 10, "MAX_CONNECTIONS_PER_CLIENT": 5}
    with serving(catalog, **limits) as (server, send):
        others = [leave_unread(send(BUNDLE, OTHER)) for _ in range(5)]
        many = [leave_unread(send(BUNDLE, ONE)) for _ in range(30)]
        left = wait_until_closed(many, 25)
        assert many[-1] in left
        assert [read_rest(connection) for connection in left + others] == [CONTENT] * 10
        assert server.request("GET", "/api/health")[0].status == 200


def test_a_client_with_all_its_requests_in_flight_gets_no_further_connection(
    catalog: Path, blocked_installs: sqlite3.Connection
) -> None:
    with serving(catalog, MAX_CONNECTIONS_PER_CLIENT=3) as (_, send):
        in_flight = [send(CLOCK, ONE, "POST") for _ in range(3)]
        # A later request has its response, so the service has read the earlier ones.
        assert status(send("/api/health", OTHER)) == 200
        assert status(send("/api/health", ONE)) is None
        assert status(send("/api/health", OTHER)) == 200
        blocked_installs.execute("ROLLBACK")
        assert {status(connection) for connection in in_flight} <= {200, 503}


@pytest.mark.parametrize(
    "settings", [{"TRUSTED_PROXY": "127.0.0.0/30"}, {"MAX_CONNECTIONS_PER_CLIENT": 0}], ids=str
)
def test_a_trusted_proxy_has_no_limit_of_its_own(
    catalog: Path, settings: dict[str, object]
) -> None:
    with serving(catalog, **{"MAX_CONNECTIONS_PER_CLIENT": 2, **settings}) as (_, send):
        unread = [leave_unread(send(BUNDLE)) for _ in range(12)]
        assert [read_rest(connection) for connection in unread] == [CONTENT] * 12


def test_the_connection_of_an_unread_response_is_closed_after_the_timeout(catalog: Path) -> None:
    with serving(catalog, REQUEST_TIMEOUT=1) as (_, send):
        wait_until_closed([leave_unread(send(BUNDLE))], 1)


def set_memory(limits: Limits, megabytes: int) -> dict[str, str]:
    """The environment of a server with this much memory for unsent bodies."""
    return limits.set("serving.connection_limits", MAX_UNSENT=megabytes * 1024 * 1024)


def test_connections_are_closed_when_unread_bodies_take_too_much_memory(
    catalog: Path, limits: Limits
) -> None:
    with serving(catalog, **set_memory(limits, 1)) as (_, send):
        download = leave_unread(send(BUNDLE))
        unread = [leave_unread(send(registry)) for registry in REGISTRIES]
        # One remains, larger than the limit: the largest does not count.
        (left,) = wait_until_closed(unread, len(unread) - 1)
        assert len(read_rest(left) or b"") >> 20 == 2
        # A file is not in memory.
        assert read_rest(download) == CONTENT


def test_no_thread_waits_for_clients_that_leave_registries_unread(catalog: Path) -> None:
    with serving(catalog) as (server, send):
        unread = [leave_unread(send(registry, OTHER)) for registry in REGISTRIES[1:]]
        # Pages and registries need the threads that have rendered these.
        for path in ("/docs", REGISTRIES[0], CLOCK):
            assert server.request("GET", path)[0].status == 200
        assert [len(read_rest(each) or b"") >> 20 for each in unread] == [2] * len(unread)


def test_a_body_that_many_connections_send_counts_once(catalog: Path, limits: Limits) -> None:
    with serving(catalog, **set_memory(limits, 3)) as (_, send):
        unread = [leave_unread(send(REGISTRIES[0])) for _ in range(20)]
        last = leave_unread(send(REGISTRIES[1]))
        assert [len(read_rest(each) or b"") >> 20 for each in [*unread, last]] == [2] * 21
