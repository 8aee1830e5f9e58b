"""Which thread answers: quick reads at once, whatever a slow read or a blocked write does."""

import fcntl
import http.client
import json
import select
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from conftest import Server, create_demo

from app import create_app
from catalog.serving import dispatch
from catalog.store.database import Database
from catalog.store.sqlite import DeadlineExceeded, snapshot

CLOCK = "/api/v1/widgets/acme/clock"
PATHS = [
    "/api/v1/widgets/search",
    "/api/v1/widgets/search?q=weather&compatSdk=1.4.0",
    "/api/v1/widgets/search?q=we",
    CLOCK,
    "/api/v1/widgets/acme/none",
    "/api/widgets/acme/registry.json",
    "/api/health",
    "/api/stats",
]
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
    return create_demo(tmp_path / "catalog.db")


def count(server: Server) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request("GET", CLOCK)
        return int(json.load(connection.getresponse())["widget"]["downloadCount"])


def test_thread_in_a_hurry_does_not_go_on_with_a_long_read(database: Path) -> None:
    catalog = Database(database)
    catalog.set_deadline(0)
    with pytest.raises(DeadlineExceeded):
        catalog.reader().execute(LONG_READ)
    catalog.set_deadline(60)
    assert catalog.reader().execute(LONG_READ).fetchone()[0] == 100_000
    catalog.close()


FETCHES: dict[str, Callable[[sqlite3.Cursor], object]] = {
    "fetchone": lambda cursor: cursor.fetchone(),
    "fetchall": lambda cursor: cursor.fetchall(),
    "next": next,
}


def test_thread_in_a_hurry_is_never_left_in_a_snapshot(database: Path) -> None:
    catalog = Database(database)
    catalog.check()
    catalog.mark_io_thread()
    connection = catalog.reader()
    catalog.set_deadline(-1)
    told = 0
    # SQLite looks at the clock every so many steps, and BEGIN has a few.
    for _ in range(1000):
        try:
            with snapshot(connection):
                pass
        except DeadlineExceeded:
            told += 1
        assert not connection.in_transaction
    assert told > 0
    catalog.close()


@pytest.mark.parametrize("fetch", FETCHES.values(), ids=FETCHES)
def test_thread_in_a_hurry_does_not_fetch_what_takes_long(
    database: Path, fetch: Callable[[sqlite3.Cursor], object]
) -> None:
    catalog = Database(database)
    catalog.set_deadline(60)
    first_row_at_once = LONG_READ.replace("max(i) FROM n", "i FROM n WHERE i IN (1, 99999)")
    cursor = catalog.reader().execute(first_row_at_once)
    catalog.set_deadline(0)
    with pytest.raises(DeadlineExceeded):
        fetch(cursor)
    catalog.close()


def test_thread_with_time_reads_as_long_as_it_takes(database: Path) -> None:
    catalog = Database(database)
    assert catalog.reader().execute(LONG_READ).fetchone()[0] == 100_000
    catalog.close()


class Limits:
    """Settings of a server's process that have no name in the environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._code = "import catalog.serving.dispatch\n"

    def set(self, **constants: float) -> dict[str, str]:
        """Give constants of dispatch.py these values; returns the settings of such a server."""
        for name, value in constants.items():
            self._code += f"catalog.serving.dispatch.{name} = {value}\n"
        return self.run("")

    def run(self, code: str) -> dict[str, str]:
        """Have the process run the code first; returns the settings of such a server."""
        self._code += code
        (self._folder / "sitecustomize.py").write_text(self._code)
        return {"PYTHONPATH": f"{self._folder}:."}


@pytest.fixture
def limits(tmp_path: Path) -> Limits:
    folder = tmp_path / "site"
    folder.mkdir()
    return Limits(folder)


@pytest.mark.parametrize(
    "constants",
    [
        pytest.param({"LOOP_DEADLINE": -1}, id="too slow for the I/O thread"),
        pytest.param({"LOOP_DEADLINE": -1, "POOL_DEADLINE": -1}, id="too slow for the pool"),
        pytest.param({"TURN_BUDGET": -1}, id="too many in a turn"),
        pytest.param({"LOOP_SHARE": 0, "LOOP_SAVINGS": 0}, id="too many slow ones before"),
    ],
)
def test_response_is_the_same_in_whichever_thread(
    database: Path, limits: Limits, constants: dict[str, float]
) -> None:
    app = create_app({"DATABASE": database})
    with serving(database, **limits.set(**constants)) as slow:
        for path in [*PATHS, *PAGES] * 2:
            there, body = slow.request("GET", path, Host="localhost")
            here = app.test_client().get(path)
            assert (there.status, body) == (here.status_code, here.data), path
    app.extensions["database"].close()


SEARCH = "/api/v1/widgets/search?q=slow"
PAGES = ["/", "/?q=weather", "/widgets/acme/clock"]
# However long the machine takes, it is not what is tested.
PATIENT = {"SLOW_DEADLINE": 60, "MAX_WAIT": 60, "KNOWN_SLOW": 60}
NEVER = {"LOOP_DEADLINE": -1, "POOL_DEADLINE": -1, "SLOW_DEADLINE": -1}
TOO_LONG = "The request took too long."


@pytest.mark.parametrize("path", [*PATHS[:6], "/api/stats"])
def test_read_that_takes_too_long_is_refused_in_the_shape_of_every_error(
    database: Path, limits: Limits, path: str
) -> None:
    with serving(database, **limits.set(**NEVER)) as server:
        response, body = server.request("GET", path)
        assert (response.status, json.loads(body)) == (503, {"error": TOO_LONG})
        assert response.headers["Retry-After"] == "5"
        assert response.headers["Content-Type"] == "application/json"
        is_v1 = path.startswith("/api/v1/")
        assert response.headers["Access-Control-Allow-Origin"] == ("*" if is_v1 else None)
        # It is the read that ended, not the connection or the service.
        assert server.request("GET", "/api/version")[0].status == 200
        assert server.request("POST", CLOCK)[0].status == 200


@pytest.mark.parametrize("path", PAGES)
def test_page_that_takes_too_long_is_refused_with_a_page(
    database: Path, limits: Limits, path: str
) -> None:
    with serving(database, **limits.set(**NEVER)) as server:
        response, body = server.request("GET", path)
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        assert TOO_LONG in body.decode()


def test_health_that_takes_too_long_says_so_in_its_own_shape(
    database: Path, limits: Limits
) -> None:
    with serving(database, **limits.set(**NEVER)) as server:
        response, body = server.request("GET", "/api/health")
        assert (response.status, json.loads(body)["status"]) == (503, "unavailable")


def test_request_that_waited_too_long_is_refused(database: Path, limits: Limits) -> None:
    with serving(database, **limits.set(LOOP_DEADLINE=-1, MAX_WAIT=-1)) as server:
        response, body = server.request("GET", SEARCH)
        assert (response.status, json.loads(body)) == (503, {"error": TOO_LONG})


# A search for "slow" exceeds the deadline of the I/O thread, and in a pool waits for a lock.
SLOW_SEARCH = """
import fcntl, flask, catalog.api.response_cache
rendered = catalog.api.response_cache.render_and_cache
def slowly(key, make):
    if getattr(key, "q", "").startswith("slow"):
        connection = flask.current_app.extensions["database"].reader()
        with open({log!r}, "a") as log:
            log.write("io " if connection.on_io_thread else "pool ")
        while connection.on_io_thread:
            connection.check_deadline()
        with open({lock!r}) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
    return rendered(key, make)
catalog.api.response_cache.render_and_cache = slowly
"""


class SlowSearch:
    """Searches for "slow" last until they are let go, and it is known which threads had them."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._log = folder / "threads"
        self._lock = (folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.settings = limits.run(SLOW_SEARCH.format(log=str(self._log), lock=self._lock.name))

    def let_go(self) -> None:
        self._lock.close()

    def tries(self, thread: str) -> int:
        return self._log.read_text().split().count(thread)


@pytest.fixture
def slow_search(tmp_path: Path, limits: Limits) -> Iterator[SlowSearch]:
    search = SlowSearch(tmp_path, limits)
    yield search
    search.let_go()


Sent = http.client.HTTPConnection


@pytest.fixture
def send() -> Iterator[Callable[[Server, str], Sent]]:
    """Sends a request whose response is not waited for."""
    with ExitStack() as stack:

        def send_to(server: Server, path: str) -> Sent:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", path)
            return stack.enter_context(closing(connection))

        yield send_to


def status(sent: Sent) -> int:
    return sent.getresponse().status


def test_no_other_request_waits_for_slow_searches(
    database: Path, slow_search: SlowSearch, limits: Limits, send: Callable[[Server, str], Sent]
) -> None:
    settings = {**slow_search.settings, **limits.set(**PATIENT)}
    with serving(database, **settings) as server:
        waiting = [send(server, f"{SEARCH}-{number}") for number in range(20)]
        for path in [*PATHS, "/", "/widgets/acme/clock", "/docs", "/static/style.css"]:
            assert server.request("GET", path)[0].status in (200, 404), path
        assert server.request("POST", CLOCK)[0].status == 200
        slow_search.let_go()
        assert [status(connection) for connection in waiting] == [200] * 20


def test_the_like_of_a_slow_search_are_not_tried_on_the_io_thread(
    database: Path, slow_search: SlowSearch, limits: Limits, send: Callable[[Server, str], Sent]
) -> None:
    settings = {**slow_search.settings, **limits.set(**PATIENT)}
    with serving(database, **settings) as server:
        waiting = [send(server, SEARCH) for _ in range(10)]
        # What is sent later is answered: so the service has read what was sent before.
        assert server.request("GET", "/api/version")[0].status == 200
        slow_search.let_go()
        assert [status(connection) for connection in waiting] == [200] * 10
    assert slow_search.tries("io") == 1


def test_slow_searches_that_differ_are_tried_on_the_io_thread_only_now_and_then(
    database: Path, slow_search: SlowSearch, limits: Limits
) -> None:
    slow_search.let_go()
    settings = {**slow_search.settings, **limits.set(LOOP_SHARE=0)}
    with serving(database, **settings) as server:
        for number in range(50):
            assert server.request("GET", f"{SEARCH}-{number}")[0].status == 200
    most = dispatch.LOOP_SAVINGS / dispatch.LOOP_DEADLINE + 1
    assert 1 <= slow_search.tries("io") <= most
    assert slow_search.tries("pool") == 50


def test_search_known_to_be_fast_stays_on_the_io_thread_beside_slow_ones(
    database: Path, slow_search: SlowSearch, limits: Limits, send: Callable[[Server, str], Sent]
) -> None:
    fast = "/api/v1/widgets/search?q=weather"
    # What is costly cannot be told from what is not by a machine that has much else to do.
    constants = {"LOOP_DEADLINE": 1, "COSTLY": 0.5, "LOOP_SHARE": 0, "LOOP_SAVINGS": 0.5}
    settings = {**slow_search.settings, **limits.set(**constants, **PATIENT)}
    with serving(database, **settings) as server:
        assert server.request("GET", fast)[0].status == 200
        waiting = [send(server, f"{SEARCH}-{number}") for number in range(20)]
        assert server.request("GET", fast)[0].status == 200
        slow_search.let_go()
        assert [status(connection) for connection in waiting] == [200] * 20


@contextmanager
def read_by_another_process(path: Path) -> Iterator[None]:
    """Holds the lock of one who reads a file that is not in WAL mode."""
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN')\n"
        "connection.execute('SELECT count(*) FROM widget').fetchone()\n"
        "print('reading', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.communicate()


def test_io_thread_does_not_wait_for_the_lock_of_a_file_that_takes_the_place(
    database: Path, send: Callable[[Server, str], Sent]
) -> None:
    spare = create_demo(database.with_name("spare.db"))
    with closing(sqlite3.connect(spare)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    with serving(database) as server:
        assert count(server) > 0
        with read_by_another_process(spare):
            spare.replace(database)
            waiting = send(server, CLOCK)
            assert server.request("GET", "/api/version")[0].status == 200
            readable, _, _ = select.select([waiting.sock], [], [], 0)
            assert not readable
        assert status(waiting) == 200
        assert server.request("GET", "/api/health")[0].status == 200


def test_reads_go_on_while_an_install_waits_for_another_process(
    database: Path, limits: Limits
) -> None:
    # So that the installs still wait when all has been read.
    settings = limits.run(
        "import functools, catalog.application as application\n"
        "longer = functools.partial(application.Database, busy_timeout_ms=60_000)\n"
        "application.Database = longer\n"
    )
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


def test_requests_sent_at_once_are_answered_in_their_order(database: Path) -> None:
    requests = [*(f"GET {path}" for path in PATHS), f"POST {CLOCK}", f"GET {CLOCK}", "GET /api/x"]
    with serving(database) as server:
        alone = [server.request("GET", path)[1] for path in PATHS]
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            lines = (f"{request} HTTP/1.1\r\nHost: here\r\n\r\n" for request in requests)
            connection.sendall("".join(lines).encode())
            with connection.makefile("rb") as answers:
                got = [read_answer(answers) for _ in requests]
    assert [status for status, _ in got] == [200] * 4 + [404] + [200] * 5 + [401]
    assert [body for _, body in got[: len(PATHS)]] == alone
    assert got[-3][1] == b'{"success":true}\n'
    assert json.loads(got[-2][1])["widget"]["downloadCount"] == (
        json.loads(alone[3])["widget"]["downloadCount"] + 1
    )


def read_answer(stream: BinaryIO) -> tuple[int, bytes]:
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return status, stream.read(length)


def test_after_one_install_has_waited_in_vain_the_next_learns_it_sooner(database: Path) -> None:
    catalog = Database(database, busy_timeout_ms=100)
    write_timeout = ("UPDATE widget SET icon = (SELECT * FROM pragma_busy_timeout)", {})
    timeouts = []
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            catalog.write([write_timeout])
        other.execute("ROLLBACK")
    for _ in range(2):
        catalog.write([write_timeout])
        timeouts.append(catalog.reader().execute("SELECT icon FROM widget").fetchone()[0])
    assert timeouts == ["5", "100"]
    catalog.close()


def test_64_clients_that_install_the_same_widget_are_all_counted(database: Path) -> None:
    with serving(database) as server:
        before = count(server)
        with ThreadPoolExecutor(64) as clients:
            sent = [clients.submit(server.request, "POST", CLOCK) for _ in range(256)]
        assert {each.result()[0].status for each in sent} == {200}
        assert count(server) == before + 256
