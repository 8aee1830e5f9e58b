"""Which thread handles a request: fast reads wait neither for slow reads nor for blocked writes."""

import fcntl
import http.client
import json
import os
import re
import select
import signal
import socket
import sqlite3
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from conftest import Limits, Server, import_demo

from app import create_app
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DeadlineExceeded, fetch_all, fetch_one, snapshot

CLOCK = "/api/v1/widgets/acme/clock"
PATHS = [
    "/api/v1/widgets/search",
    "/api/v1/widgets/search?q=weather&compatSdk=1.4.0",
    "/api/v1/widgets/search?q=we",
    CLOCK,
    "/api/widgets/acme/registry.json",
    "/api/v1/widgets/updates?compatSdk=1.4.0&installed=acme/clock@1.0.0",
    "/api/v1/widgets/changes",
    "/api/health",
    "/api/stats",
]
PAGES = ["/", "/?q=weather", "/widgets/acme/clock"]
SLOW_SEARCH = "/api/v1/widgets/search?q=slow"
QUICK_SEARCH = "/api/v1/widgets/search?q=quick"
BROKEN_SEARCH = "/api/v1/widgets/search?q=broken"
# Its first row is found at once, the next one after a while.
LONG_READ = """
WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)
SELECT i FROM n WHERE i IN (1, 99999)
"""


@contextmanager
def serving(database: Path, **settings: str) -> Iterator[Server]:
    server = Server(database, **settings)
    try:
        yield server
    finally:
        assert server.stop() == 0


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return import_demo(tmp_path / "catalog.db")


def count(server: Server) -> int:
    return int(json.loads(server.request("GET", CLOCK)[1])["widget"]["downloadCount"])


def test_a_template_past_the_deadline_is_aborted(database: Path) -> None:
    app = create_app({"DATABASE": database})
    catalog = app.extensions["database"]
    template = app.jinja_env.from_string("{% for n in range(10) %}{{ n }}{% endfor %}")
    catalog.deadline.set_budget(-1)
    with pytest.raises(DeadlineExceeded):
        template.render()
    catalog.deadline.set_budget(60)
    assert template.render() == "0123456789"
    catalog.close()


@pytest.mark.parametrize("fetch", [fetch_one, fetch_all])
def test_a_read_past_the_deadline_is_aborted(
    database: Path, fetch: Callable[[sqlite3.Connection, str], object]
) -> None:
    catalog = Database(database)
    connection = catalog.reader()
    catalog.deadline.set(0)
    with pytest.raises(DeadlineExceeded):
        fetch(connection, LONG_READ)
    catalog.close()


def test_an_aborted_snapshot_leaves_no_transaction_open(database: Path) -> None:
    catalog = Database(database)
    catalog.check()
    catalog.mark_io_thread()
    connection = catalog.reader()
    catalog.deadline.set(-1)
    aborted = 0
    # SQLite checks the deadline only after many steps, and BEGIN has few of them.
    for _ in range(1000):
        try:
            with snapshot(connection):
                pass
        except DeadlineExceeded:
            aborted += 1
        assert not connection.in_transaction
    assert aborted > 0
    catalog.close()


@pytest.mark.parametrize(
    "constants",
    [
        pytest.param({"READ_BUDGET": -1}, id="too slow for the I/O thread"),
        pytest.param({"READ_BUDGET": -1, "QUICK_BUDGET": -1}, id="too slow for the quick thread"),
    ],
)
def test_the_response_does_not_depend_on_the_thread(
    database: Path, limits: Limits, constants: dict[str, float]
) -> None:
    app = create_app({"DATABASE": database})
    with serving(database, **limits.set("serving.dispatch", **constants)) as server:
        for path in [*PATHS, *PAGES] * 2:
            response, body = server.request("GET", path, Host="localhost")
            expected = app.test_client().get(path)
            assert (response.status, body) == (expected.status_code, expected.data), path
    app.extensions["database"].close()


@pytest.fixture(scope="module")
def late_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service in which every read is past its last deadline."""
    folder = tmp_path_factory.mktemp("late")
    passed = {"READ_BUDGET": -1, "QUICK_BUDGET": -1, "LONG_DEADLINE": -1}
    settings = Limits(folder).set("serving.dispatch", **passed)
    with serving(import_demo(folder / "catalog.db"), **settings) as server:
        yield server


@pytest.mark.parametrize("path", [*PATHS, *PAGES])
def test_a_read_past_the_last_deadline_is_503(late_server: Server, path: str) -> None:
    response, body = late_server.request("GET", path)
    assert response.status == 503
    if path == "/api/health":
        assert json.loads(body)["status"] == "unavailable"
    else:
        assert response.headers["Retry-After"] == "5"
        assert b"The request took too long." in body
    kind = "text/html; charset=utf-8" if path in PAGES else "application/json"
    assert response.headers["Content-Type"] == kind
    # The service itself is not affected.
    assert late_server.request("GET", "/api/version")[0].status == 200
    assert late_server.request("POST", CLOCK)[0].status == 200


# When a thread begins a request, it has waited for ten seconds.
SLOW_QUEUE = """
import itertools, types, catalog.serving.dispatch
catalog.serving.dispatch.time = types.SimpleNamespace(monotonic=itertools.count(0, 10).__next__)
"""


def test_a_long_request_that_has_waited_for_its_deadline_is_not_begun(
    database: Path, limits: Limits
) -> None:
    limits.run(SLOW_QUEUE)
    settings = limits.set("serving.dispatch", READ_BUDGET=-1, QUICK_BUDGET=-1)
    with serving(database, **settings) as server:
        response, body = server.request("GET", CLOCK)
    assert response.status == 503
    assert b"The request took too long." in body


# A search for "slow" exceeds the budgets of the I/O thread and of the quick thread, and waits for a
# lock on the long thread; one for "quick" waits on the quick thread; one for "broken" fails, and
# one for "fatal" would end the quick thread. The log has a line for each attempt.
MAKE_SLOW = """
import fcntl, flask, gc, catalog.api.v1.lists
from catalog.store.connection.sqlite import fetch_all
gc.disable()
find_widgets = catalog.api.v1.lists.find_widgets
def find_slowly(connection, query, *others):
    if query.q.startswith(("slow", "quick", "broken", "fatal")):
        deadline = flask.current_app.extensions["database"].deadline
        thread = "io" if deadline.on_io_thread else "long" if deadline.is_final else "quick"
        with open({log!r}, "a") as log:
            log.write(thread + " " + query.q + "\\n")
        fetch_all(connection, "SELECT scope FROM widget")
        if query.q.startswith("broken"):
            raise ValueError
        if thread == "io" or (thread == "quick" and query.q.startswith("slow")):
            deadline.set_budget(-1)
            connection.check_deadline()
        if query.q.startswith("fatal"):
            raise SystemExit
        with open({lock!r}) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
    return find_widgets(connection, query, *others)
catalog.api.v1.lists.find_widgets = find_slowly
"""


class SlowSearch:
    """Makes searches for "slow" and "quick" run until they are released, and logs them."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._log = folder / "threads"
        self._log.touch()
        self._lock = (folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._limits = limits
        limits.run(MAKE_SLOW.format(log=str(self._log), lock=self._lock.name))

    def settings(self, **constants: float) -> dict[str, str]:
        """The environment of a server with slow searches and these constants of dispatch."""
        # However slow the machine is, no request is refused, and none but these is slow.
        unlimited = {"READ_BUDGET": 60, "QUICK_BUDGET": 60, "LONG_DEADLINE": 60}
        return self._limits.set("serving.dispatch", **{**unlimited, **constants})

    def release(self) -> None:
        self._lock.close()

    def attempts(self, thread: str) -> list[str]:
        """The searches that were begun on the thread "io", "quick" or "long", in their order."""
        lines = [line.split(" ", 1) for line in self._log.read_text().splitlines()]
        return [query for name, query in lines if name == thread]


@pytest.fixture
def slow_search(tmp_path: Path, limits: Limits) -> Iterator[SlowSearch]:
    search = SlowSearch(tmp_path, limits)
    yield search
    search.release()


Send = Callable[..., http.client.HTTPConnection]


@pytest.fixture
def send() -> Iterator[Send]:
    """Sends a request without waiting for its response."""
    with ExitStack() as stack:

        def send_to(
            server: Server, path: str, client: str = "127.0.0.1", method: str = "GET", **kw: str
        ) -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection(
                "127.0.0.1", server.port, timeout=30, source_address=(client, 0)
            )
            headers = {name.replace("_", "-"): value for name, value in kw.items()}
            connection.request(method, path, headers=headers)
            return stack.enter_context(closing(connection))

        yield send_to


def statuses(connections: list[http.client.HTTPConnection]) -> list[int]:
    return [connection.getresponse().status for connection in connections]


def test_no_other_request_waits_for_slow_searches(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    with serving(database, **slow_search.settings()) as server:
        waiting = [send(server, f"{SLOW_SEARCH}-{number}") for number in range(20)]
        style = re.search(rb'href="(/static/[^"]+[.]css)"', server.request("GET", "/")[1])
        assert style is not None
        for path in [*PATHS, "/", "/widgets/acme/clock", "/docs", style[1].decode()]:
            assert server.request("GET", path)[0].status == 200, path
        assert server.request("POST", CLOCK)[0].status == 200
        slow_search.release()
        assert statuses(waiting) == [200] * 20


def test_a_cached_response_waits_for_no_thread(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    hot = "/api/v1/widgets/search?q=weather"
    with serving(database, **slow_search.settings()) as server:
        assert server.request("GET", hot)[0].status == 200
        # Both threads for reads are busy.
        waiting = [send(server, path) for path in (QUICK_SEARCH, SLOW_SEARCH, QUICK_SEARCH)]
        for _ in range(3):
            assert server.request("GET", hot)[0].status == 200
            assert server.request("GET", "/api/health")[0].status == 200
        slow_search.release()
        assert statuses(waiting) == [200] * 3


@pytest.mark.parametrize("search", [SLOW_SEARCH, QUICK_SEARCH], ids=["long", "quick"])
@pytest.mark.parametrize("is_proxied", [False, True], ids=["by address", "behind a proxy"])
def test_a_client_waits_for_one_request_of_another_client(
    database: Path, slow_search: SlowSearch, send: Send, search: str, is_proxied: bool
) -> None:
    settings = {"CATALOG_TRUSTED_PROXY": "127.0.0.1"} if is_proxied else {}
    settings |= slow_search.settings()
    thread = "long" if search is SLOW_SEARCH else "quick"

    def send_as(client: int, path: str) -> http.client.HTTPConnection:
        if is_proxied:
            return send(server, path, X_Forwarded_For=f"2001:db8:0:{client}::{len(waiting) + 1}")
        # A client cannot name itself another one.
        named = f"2001:db8:0:{len(waiting)}::1"
        return send(server, path, f"127.0.0.{client}", X_Forwarded_For=named)

    waiting: list[http.client.HTTPConnection] = []
    with serving(database, **settings) as server:
        for number in range(10):
            waiting.append(send_as(1, f"{search}-{number}"))
        # A later request has its response, so the service has read the earlier ones.
        assert server.request("GET", "/api/version")[0].status == 200
        waiting.append(send_as(2, f"{search}-other"))
        # The quick thread has handed the slow ones over when it responds to a later request.
        later = "/docs" if search is SLOW_SEARCH else "/api/version"
        assert server.request("GET", later)[0].status == 200
        slow_search.release()
        assert statuses(waiting) == [200] * 11
    # The first one was handled already, and the second is next in its line.
    assert any("other" in query for query in slow_search.attempts(thread)[:3])


RESET = struct.pack("ii", 1, 0)


def reset(connection: http.client.HTTPConnection) -> None:
    """Close the connection so that the server learns at once that nobody can receive."""
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def test_a_queued_read_is_skipped_if_its_client_has_left(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    with serving(database, **slow_search.settings()) as server:
        blocking = send(server, f"{QUICK_SEARCH}-blocking")
        left = send(server, f"{QUICK_SEARCH}-left")
        half_closed = send(server, f"{QUICK_SEARCH}-half-closed")
        # A later request has its response, so the service has read the earlier ones.
        assert server.request("GET", "/api/version")[0].status == 200
        reset(left)
        half_closed.sock.shutdown(socket.SHUT_WR)
        slow_search.release()
        assert statuses([blocking, half_closed]) == [200, 200]
    assert slow_search.attempts("quick") == ["quick-blocking", "quick-half-closed"]


def test_an_install_runs_although_its_client_has_left(database: Path, send: Send) -> None:
    with (
        serving(database) as server,
        closing(sqlite3.connect(database, isolation_level=None)) as other,
    ):
        before = count(server)
        other.execute("BEGIN IMMEDIATE")
        first, left = (send(server, CLOCK, method="POST") for _ in range(2))
        assert server.request("GET", "/api/version")[0].status == 200
        reset(left)
        other.execute("ROLLBACK")
        assert statuses([first, send(server, CLOCK, method="POST")]) == [200, 200]
        assert count(server) == before + 3


def test_an_error_that_escapes_a_thread_closes_the_connection(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    with Server(database, **slow_search.settings()) as server:
        fatal = send(server, "/api/v1/widgets/search?q=fatal")
        with pytest.raises(http.client.RemoteDisconnected):
            fatal.getresponse()
        # The thread handles the next request.
        slow_search.release()
        assert server.request("GET", QUICK_SEARCH)[0].status == 200


@pytest.mark.parametrize("name", ["bundle.js", "picture"])
def test_a_file_is_not_sent_by_the_io_thread(
    database: Path, slow_search: SlowSearch, send: Send, name: str
) -> None:
    path = f"{CLOCK}/1.0.0/bundle.js" if name == "bundle.js" else f"{CLOCK}/picture"
    with serving(database, **slow_search.settings()) as server:
        expected = server.request("GET", path)[0].status
        waiting = [send(server, QUICK_SEARCH), send(server, path)]
        for _ in range(3):
            assert server.request("GET", "/api/version")[0].status == 200
        assert not select.select([waiting[1].sock], [], [], 0)[0]
        slow_search.release()
        assert statuses(waiting) == [200, expected]


HOT_SEARCH = "/api/v1/widgets/search?q=weather"
COLD_SEARCH = "/api/v1/widgets/search?q=clock"


@pytest.mark.parametrize("is_proxied", [False, True], ids=["by address", "behind a proxy"])
def test_reads_beyond_32_that_wait_are_503_for_their_client_only(
    database: Path, slow_search: SlowSearch, send: Send, is_proxied: bool
) -> None:
    # Behind a proxy, one client can open all connections.
    proxied = {"CATALOG_TRUSTED_PROXY": "127.0.0.1", "CATALOG_MAX_CONNECTIONS": "100"}
    settings = slow_search.settings() | (proxied if is_proxied else {})

    def send_as(client: int, path: str, method: str = "GET") -> http.client.HTTPConnection:
        if is_proxied:
            return send(server, path, method=method, X_Forwarded_For=f"192.0.2.{client}")
        return send(server, path, f"127.0.0.{client}", method)

    with serving(database, **settings) as server:
        assert statuses([send_as(2, HOT_SEARCH)]) == [200]
        waiting = [send_as(1, f"{QUICK_SEARCH}-{number}") for number in range(100)]
        # This response is sent at once, so the service has read all of them.
        assert statuses(waiting[-1:]) == [503]
        # Other clients are not affected, and neither is a response from the cache or an install.
        assert statuses([send_as(2, HOT_SEARCH), send_as(2, COLD_SEARCH)]) == [200, 200]
        assert statuses([send_as(1, HOT_SEARCH), send_as(1, CLOCK, "POST")]) == [200, 200]
        # The I/O thread does not even begin a read that could not wait for another thread.
        refused = send_as(1, "/api/v1/widgets/search?q=map").getresponse()
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        assert json.loads(refused.read()) == {
            "error": "Too many requests from this client are waiting."
        }
        slow_search.release()
        # While 32 wait, the quick thread may already handle another one.
        assert 99 - statuses(waiting[:-1]).count(503) in (32, 33)


def test_files_do_not_count_as_waiting_reads(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    with serving(database, **slow_search.settings()) as server:
        style = re.search(rb'href="(/static/[^"]+[.]css)"', server.request("GET", "/")[1])
        assert style is not None
        waiting = [send(server, QUICK_SEARCH)]
        waiting += [send(server, style[1].decode()) for _ in range(100)]
        waiting.append(send(server, "/docs"))
        slow_search.release()
        assert statuses(waiting) == [200] * 102


@pytest.mark.parametrize(
    ("path", "io_attempts"),
    [
        (SLOW_SEARCH, 1),
        (f"////{SLOW_SEARCH}", 1),
        (SLOW_SEARCH + "&a" * 300, 0),
    ],
    ids=["path", "five slashes", "300 parameters"],
)
def test_which_threads_try_a_search(
    database: Path, slow_search: SlowSearch, path: str, io_attempts: int
) -> None:
    slow_search.release()
    with serving(database, **slow_search.settings()) as server:
        assert server.request("GET", path)[0].status == 200
    attempts = [len(slow_search.attempts(thread)) for thread in ("io", "quick", "long")]
    assert attempts == [io_attempts, 1, 1]


@pytest.mark.parametrize(("search", "status"), [(SLOW_SEARCH, 200), (BROKEN_SEARCH, 500)])
def test_after_a_read_was_aborted_or_failed_the_thread_reads_new_data(
    database: Path, slow_search: SlowSearch, search: str, status: int
) -> None:
    slow_search.release()
    with serving(database, **slow_search.settings()) as server:
        before = count(server)
        for number in range(3):
            assert server.request("GET", f"{search}-{number}")[0].status == status
            assert server.request("POST", CLOCK)[0].status == 200
            assert count(server) == before + number + 1


IN_ONE_TURN = b"GET /api/version HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("is_connected", [True, False], ids=["connected", "connects"])
def test_another_client_is_read_before_the_flood_of_one(
    database: Path, limits: Limits, is_connected: bool
) -> None:
    # A turn serves one connection.
    settings = limits.set("serving.event_loop", TURN_TIME=1e-9)
    with Server(database, CATALOG_LOG_LEVEL="info", **settings) as server, ExitStack() as stack:

        def connect(client: str) -> socket.socket:
            connection = socket.create_connection(
                ("127.0.0.1", server.port), 20, source_address=(client, 0)
            )
            return stack.enter_context(connection)

        def receive(connection: socket.socket, count: int) -> None:
            received = b""
            while received.count(b"HTTP/1.1 200") < count:
                received += connection.recv(65536)

        flood = [connect("127.0.0.1") for _ in range(30)]
        others = [connect("127.0.0.2")] if is_connected else []
        for connection in (*flood, *others):
            connection.sendall(IN_ONE_TURN)
            receive(connection, 1)
        # A stopped process reads nothing, so all of this arrives in one turn.
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
        for connection in flood:
            connection.sendall(IN_ONE_TURN * 20)
        other = others[0] if is_connected else connect("127.0.0.2")
        other.sendall(IN_ONE_TURN)
        server.process.send_signal(signal.SIGCONT)
        receive(other, 1)
        for connection in flood:
            receive(connection, 20)
        server.process.terminate()
        output, _ = server.process.communicate(timeout=60)
    clients = [line.split()[1] for line in output.splitlines()[30 + is_connected :]]
    assert len(clients) == 601
    # A connection is accepted at the end of a turn, and read in the next one.
    assert clients.index("127.0.0.2") <= (1 if is_connected else 2)


# Requests that are no installs.
OTHERS = [("DELETE", CLOCK, 405), ("POST", "/none", 404), ("POST", "/api/stats", 405)]


def test_only_installs_wait_for_an_install_that_waits_for_another_process(
    database: Path, limits: Limits, send: Send
) -> None:
    # The installs must still wait when all reads are done.
    with (
        serving(database, **limits.set_busy_timeout(60_000)) as server,
        closing(sqlite3.connect(database, isolation_level=None)) as other,
    ):
        before = count(server)
        other.execute("BEGIN IMMEDIATE")
        paths = (CLOCK, f"{CLOCK}/2.2.0", f"/{CLOCK}")
        waiting = [send(server, path, method="POST") for path in paths]
        for path in PATHS:
            assert server.request("GET", path)[0].status == 200, path
        for method, path, status in OTHERS:
            assert server.request(method, path)[0].status == status
        assert count(server) == before
        other.execute("ROLLBACK")
        assert statuses(waiting) == [200] * 3
        assert count(server) == before + 3


def test_after_one_install_timed_out_the_queued_ones_are_refused_without_a_wait(
    database: Path, limits: Limits
) -> None:
    with (
        serving(database, **limits.set_busy_timeout(1000)) as server,
        closing(sqlite3.connect(database, isolation_level=None)) as other,
        ThreadPoolExecutor(30) as clients,
    ):
        before = count(server)
        other.execute("BEGIN IMMEDIATE")
        # If each waited for a second, the last would exceed the client's timeout of ten.
        sent = [clients.submit(server.request, "POST", CLOCK) for _ in range(30)]
        assert {each.result()[0].status for each in sent} == {503}
        other.execute("ROLLBACK")
        assert server.request("POST", CLOCK)[0].status == 200
        assert count(server) == before + 1
