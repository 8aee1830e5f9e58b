"""Which thread handles a request: fast reads wait neither for slow reads nor for blocked writes."""

import fcntl
import http.client
import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from conftest import Limits, Server, import_demo

from app import create_app
from catalog.serving import dispatch
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DeadlineExceeded, snapshot

CLOCK = "/api/v1/widgets/acme/clock"
PATHS = [
    "/api/v1/widgets/search",
    "/api/v1/widgets/search?q=weather&compatSdk=1.4.0",
    "/api/v1/widgets/search?q=we",
    CLOCK,
    "/api/v1/widgets/acme/none",
    "/api/widgets/acme/registry.json",
    "/api/v1/widgets/updates?compatSdk=1.4.0&installed=acme/clock@1.0.0",
    "/api/v1/widgets/changes",
    "/api/health",
    "/api/stats",
]
PAGES = ["/", "/?q=weather", "/widgets/acme/clock"]
SLOW_SEARCH = "/api/v1/widgets/search?q=slow"
LONG_READ = (
    "WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT max(i) FROM n"
)


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
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request("GET", CLOCK)
        return int(json.load(connection.getresponse())["widget"]["downloadCount"])


def test_a_read_past_its_deadline_is_aborted(database: Path) -> None:
    catalog = Database(database)
    catalog.set_deadline(0)
    with pytest.raises(DeadlineExceeded):
        catalog.reader().execute(LONG_READ)
    catalog.set_deadline(60)
    assert catalog.reader().execute(LONG_READ).fetchone()[0] == 100_000
    catalog.close()


def test_a_read_without_a_deadline_is_not_aborted(database: Path) -> None:
    catalog = Database(database)
    assert catalog.reader().execute(LONG_READ).fetchone()[0] == 100_000
    catalog.close()


FETCHES: dict[str, Callable[[sqlite3.Cursor], object]] = {
    "fetchone": lambda cursor: cursor.fetchone(),
    "fetchall": lambda cursor: cursor.fetchall(),
    "next": next,
}


@pytest.mark.parametrize("fetch", FETCHES.values(), ids=FETCHES)
def test_a_fetch_past_the_deadline_is_aborted(
    database: Path, fetch: Callable[[sqlite3.Cursor], object]
) -> None:
    catalog = Database(database)
    catalog.set_deadline(60)
    early_first_row = LONG_READ.replace("max(i) FROM n", "i FROM n WHERE i IN (1, 99999)")
    cursor = catalog.reader().execute(early_first_row)
    catalog.set_deadline(0)
    with pytest.raises(DeadlineExceeded):
        fetch(cursor)
    catalog.close()


def test_an_aborted_snapshot_leaves_no_transaction_open(database: Path) -> None:
    catalog = Database(database)
    catalog.check()
    catalog.mark_io_thread()
    connection = catalog.reader()
    catalog.set_deadline(-1)
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
        pytest.param({"LOOP_DEADLINE": -1}, id="too slow for the I/O thread"),
        pytest.param({"LOOP_DEADLINE": -1, "POOL_DEADLINE": -1}, id="too slow for the pool"),
        pytest.param({"TURN_BUDGET": -1}, id="budget of the turn used up"),
        pytest.param({"LOOP_SHARE": 0, "LOOP_BURST": 0}, id="share of slow reads used up"),
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


# However slow the machine is, no request is refused, no other read counts as slow, and slow ones
# stay known.
NO_DEADLINES = {"LOOP_DEADLINE": 60, "SLOW_DEADLINE": 60, "MAX_WAIT": 60, "SLOW_EXPIRY": 60}
ALL_DEADLINES_PASSED = {"LOOP_DEADLINE": -1, "POOL_DEADLINE": -1, "SLOW_DEADLINE": -1}
TOO_LONG = "The request took too long."


@pytest.fixture(scope="module")
def late_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service in which every read is past its last deadline."""
    folder = tmp_path_factory.mktemp("late")
    settings = Limits(folder).set("serving.dispatch", **ALL_DEADLINES_PASSED)
    with serving(import_demo(folder / "catalog.db"), **settings) as server:
        yield server


@pytest.mark.parametrize("path", [path for path in PATHS if path != "/api/health"])
def test_a_read_past_the_last_deadline_is_503_in_json(late_server: Server, path: str) -> None:
    response, body = late_server.request("GET", path)
    assert (response.status, json.loads(body)) == (503, {"error": TOO_LONG})
    assert response.headers["Retry-After"] == "5"
    assert response.headers["Content-Type"] == "application/json"
    is_v1 = path.startswith("/api/v1/")
    assert response.headers["Access-Control-Allow-Origin"] == ("*" if is_v1 else None)
    # The service itself is not affected.
    assert late_server.request("GET", "/api/version")[0].status == 200
    assert late_server.request("POST", CLOCK)[0].status == 200


@pytest.mark.parametrize("path", PAGES)
def test_a_page_past_the_last_deadline_is_503_in_html(late_server: Server, path: str) -> None:
    response, body = late_server.request("GET", path)
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert TOO_LONG in body.decode()


def test_health_past_the_last_deadline_has_its_own_shape(late_server: Server) -> None:
    response, body = late_server.request("GET", "/api/health")
    assert (response.status, json.loads(body)["status"]) == (503, "unavailable")


def test_a_request_that_waited_too_long_is_503(database: Path, limits: Limits) -> None:
    settings = limits.set("serving.dispatch", LOOP_DEADLINE=-1, MAX_WAIT=-1)
    with serving(database, **settings) as server:
        response, body = server.request("GET", SLOW_SEARCH)
        assert (response.status, json.loads(body)) == (503, {"error": TOO_LONG})


# A search for "slow" takes the I/O thread longer than a fast one and is then past its deadline; in
# a pool it waits for a lock.
MAKE_SLOW = """
import fcntl, flask, time, catalog.api.v1, catalog.serving.dispatch
find_widgets = catalog.api.v1.find_widgets
def find_slowly(connection, query):
    if query.q.startswith("slow"):
        database = flask.current_app.extensions["database"]
        with open({log!r}, "a") as log:
            log.write("io " if connection.on_io_thread else "pool ")
        if connection.on_io_thread:
            time.sleep(2.5 * catalog.serving.dispatch.MAX_FAST)
            database.set_deadline(-1)
            connection.check_deadline()
        with open({lock!r}) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
    return find_widgets(connection, query)
catalog.api.v1.find_widgets = find_slowly
"""


class SlowSearch:
    """Makes searches for "slow" run until they are released, and logs their threads."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._log = folder / "threads"
        self._log.touch()
        self._lock = (folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._limits = limits
        limits.run(MAKE_SLOW.format(log=str(self._log), lock=self._lock.name))

    def settings(self, **constants: float) -> dict[str, str]:
        """The environment of a server with slow searches and these constants of dispatch."""
        return self._limits.set("serving.dispatch", **{**NO_DEADLINES, **constants})

    def release(self) -> None:
        self._lock.close()

    def attempts(self, thread: str) -> int:
        """How often such a search was begun on the I/O thread ("io") or in a pool ("pool")."""
        return self._log.read_text().split().count(thread)


@pytest.fixture
def slow_search(tmp_path: Path, limits: Limits) -> Iterator[SlowSearch]:
    search = SlowSearch(tmp_path, limits)
    yield search
    search.release()


Send = Callable[[Server, str], http.client.HTTPConnection]


@pytest.fixture
def send() -> Iterator[Send]:
    """Sends a request without waiting for its response."""
    with ExitStack() as stack:

        def send_to(server: Server, path: str) -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", path)
            return stack.enter_context(closing(connection))

        yield send_to


def statuses(connections: list[http.client.HTTPConnection]) -> list[int]:
    return [connection.getresponse().status for connection in connections]


def test_no_other_request_waits_for_slow_searches(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    # The I/O thread tries all searches, whether or not they come in one turn.
    with serving(database, **slow_search.settings(LOOP_BURST=60)) as server:
        waiting = [send(server, f"{SLOW_SEARCH}-{number}") for number in range(20)]
        for path in [*PATHS, "/", "/widgets/acme/clock", "/docs", "/static/style.css"]:
            assert server.request("GET", path)[0].status in (200, 404), path
        assert server.request("POST", CLOCK)[0].status == 200
        slow_search.release()
        assert statuses(waiting) == [200] * 20


def test_a_page_with_a_new_query_does_not_wait_for_slow_searches(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    # The I/O thread has no time to try anything, so that every search goes to the slow pool.
    with serving(database, **slow_search.settings(LOOP_SHARE=0, LOOP_BURST=0)) as server:
        waiting = [send(server, f"{SLOW_SEARCH}-{number}") for number in range(20)]
        assert server.request("GET", "/?q=weather")[0].status == 200
        slow_search.release()
        assert statuses(waiting) == [200] * 20
    assert slow_search.attempts("io") == 0


def test_a_search_that_was_slow_is_not_tried_again_on_the_io_thread(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    with serving(database, **slow_search.settings(LOOP_BURST=60)) as server:
        waiting = [send(server, SLOW_SEARCH) for _ in range(10)]
        # A later request has its response, so the service has read the earlier ones.
        assert server.request("GET", "/api/version")[0].status == 200
        slow_search.release()
        assert statuses(waiting) == [200] * 10
    assert slow_search.attempts("io") == 1


def test_different_slow_searches_get_a_limited_share_of_the_io_thread(
    database: Path, slow_search: SlowSearch
) -> None:
    slow_search.release()
    with serving(database, **slow_search.settings(LOOP_SHARE=0)) as server:
        for number in range(50):
            assert server.request("GET", f"{SLOW_SEARCH}-{number}")[0].status == 200
    max_attempts = dispatch.LOOP_BURST / dispatch.LOOP_DEADLINE + 1
    assert 1 <= slow_search.attempts("io") <= max_attempts
    assert slow_search.attempts("pool") == 50


def test_a_fast_search_stays_on_the_io_thread_beside_slow_ones(
    database: Path, slow_search: SlowSearch, send: Send
) -> None:
    fast = "/api/v1/widgets/search?q=weather"
    # Long enough that a fast search counts as fast on a busy machine too.
    constants = {"MAX_FAST": 0.5, "LOOP_SHARE": 0, "LOOP_BURST": 0.5}
    with serving(database, **slow_search.settings(**constants)) as server:
        # The first one may be slow, since the service has just started.
        for _ in range(2):
            assert server.request("GET", fast)[0].status == 200
        waiting = [send(server, f"{SLOW_SEARCH}-{number}") for number in range(20)]
        assert server.request("GET", fast)[0].status == 200
        slow_search.release()
        assert statuses(waiting) == [200] * 20


def test_a_fast_error_does_not_make_a_slow_search_count_as_fast(
    database: Path, slow_search: SlowSearch
) -> None:
    slow_search.release()
    # Whatever is handled counts as fast, and the I/O thread has no time to try anything else.
    constants = {"MAX_FAST": 60, "LOOP_SHARE": 0, "LOOP_BURST": 0}
    with serving(database, **slow_search.settings(**constants)) as server:
        assert server.request("DELETE", SLOW_SEARCH)[0].status == 405
        assert server.request("GET", SLOW_SEARCH, Host="not a host")[0].status == 400
        assert server.request("GET", SLOW_SEARCH)[0].status == 200
    assert slow_search.attempts("io") == 0


def set_busy_timeout(limits: Limits, milliseconds: int) -> dict[str, str]:
    """The environment of a server in which a write waits this long for another process."""
    return limits.run(
        "import functools, catalog.application as application\n"
        f"longer = functools.partial(application.Database, busy_timeout_ms={milliseconds})\n"
        "application.Database = longer\n"
    )


def test_reads_do_not_wait_for_an_install_that_waits_for_another_process(
    database: Path, limits: Limits, send: Send
) -> None:
    # The installs must still wait when all reads are done.
    settings = set_busy_timeout(limits, 60_000)
    with (
        serving(database, CATALOG_THREADS="1", **settings) as server,
        closing(sqlite3.connect(database, isolation_level=None)) as other,
    ):
        before = count(server)
        other.execute("BEGIN IMMEDIATE")
        waiting = [
            http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(3)
        ]
        for connection in waiting:
            connection.request("POST", CLOCK)
        for path in PATHS:
            assert server.request("GET", path)[0].status in (200, 404)
        assert server.request("DELETE", CLOCK)[0].status == 405
        assert count(server) == before
        other.execute("ROLLBACK")
        for connection in waiting:
            assert connection.getresponse().status == 200
            connection.close()
        assert count(server) == before + 3


def test_after_one_install_timed_out_the_queued_ones_are_refused_without_a_wait(
    database: Path, limits: Limits
) -> None:
    with (
        serving(database, **set_busy_timeout(limits, 1000)) as server,
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


def test_pipelined_requests_get_their_responses_in_order(database: Path) -> None:
    requests = [*(f"GET {path}" for path in PATHS), f"POST {CLOCK}", f"GET {CLOCK}", "GET /api/x"]
    with serving(database) as server:
        alone = [server.request("GET", path) for path in PATHS]
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            heads = (f"{request} HTTP/1.1\r\nHost: here\r\n\r\n" for request in requests)
            connection.sendall("".join(heads).encode())
            with connection.makefile("rb") as stream:
                responses = [read_response(stream) for _ in requests]
    expected = [(response.status, body) for response, body in alone]
    assert responses[: len(PATHS)] == expected
    assert [status for status, _ in responses[len(PATHS) :]] == [200, 200, 401]
    assert responses[-3][1] == b'{"success":true}\n'
    assert json.loads(responses[-2][1])["widget"]["downloadCount"] == (
        json.loads(expected[3][1])["widget"]["downloadCount"] + 1
    )


def read_response(stream: BinaryIO) -> tuple[int, bytes]:
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return status, stream.read(length)


def test_installs_of_the_same_widget_by_64_clients_are_all_counted(database: Path) -> None:
    with serving(database) as server:
        before = count(server)
        with ThreadPoolExecutor(64) as clients:
            sent = [clients.submit(server.request, "POST", CLOCK) for _ in range(256)]
        assert {each.result()[0].status for each in sent} == {200}
        assert count(server) == before + 256
