"""Which thread answers: quick reads at once, whatever a slow read or a blocked write does."""

import http.client
import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from conftest import Server, create_demo

from app import create_app
from catalog.db import Database
from catalog.sqlite_file import DeadlineExceeded

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
    catalog.set_deadline(60)
    connection = catalog.reader()
    catalog.set_deadline(-1)
    told = 0
    for _ in range(1000):  # SQLite looks at the clock every so many steps, and BEGIN has a few
        try:
            with catalog.read():
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


def test_read_that_is_too_slow_for_the_loop_is_answered_all_the_same(
    database: Path, tmp_path: Path
) -> None:
    # A process in which every statement is too slow.
    (tmp_path / "sitecustomize.py").write_text(
        "import catalog.db, catalog.dispatch\n"
        "catalog.db.STEPS_BETWEEN_LOOKS = 1\n"
        "catalog.dispatch.PATIENCE = -1\n"
    )
    app = create_app({"DATABASE": database})
    with serving(database, PYTHONPATH=f"{tmp_path}:.") as slow:
        for path in PATHS:
            there, body = slow.request("GET", path)
            here = app.test_client().get(path)
            assert (there.status, body) == (here.status_code, here.data), path
    app.extensions["database"].close()


def test_reads_go_on_while_an_install_waits_for_another_process(database: Path) -> None:
    with (
        serving(database, CATALOG_THREADS="1") as server,
        closing(sqlite3.connect(database, isolation_level=None)) as other,
    ):
        before = count(server)
        other.execute("BEGIN IMMEDIATE")
        waiting = [
            http.client.HTTPConnection("127.0.0.1", server.port, timeout=10) for _ in range(3)
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
    catalog = Database(database)
    install = [("UPDATE widget SET download_count = 1 WHERE id = 1", {})]
    catalog.write(install)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        catalog._wait_for_others(1)  # as if it had waited
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            catalog.write(install)
        assert catalog._writer.connection.execute("PRAGMA busy_timeout").fetchone()[0] == 5
        other.execute("ROLLBACK")
    assert catalog.write(install) == [1]
    assert catalog._writer.connection.execute("PRAGMA busy_timeout").fetchone()[0] == 5000
    catalog.close()


def test_64_clients_that_install_the_same_widget_are_all_counted(database: Path) -> None:
    with serving(database) as server:
        before = count(server)
        with ThreadPoolExecutor(64) as clients:
            sent = [clients.submit(server.request, "POST", CLOCK) for _ in range(256)]
        assert {each.result()[0].status for each in sent} == {200}
        assert count(server) == before + 256
