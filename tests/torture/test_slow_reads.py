"""Reads that take long, one beginning before the other ends, while clients install."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Server, create_demo
from tests.torture.clients import (
    CLOCK,
    POST,
    answers_of,
    asking,
    counted,
    installs,
    p99,
    wait_for_answers,
)

READERS = 8
INSTALLS = 1000  # of each client
BOUND = 64 * 1024 * 1024
HEALTH = ("GET", "/api/health")
PAGE = ("GET", "/")

# Each search that is not cached reads for 0.2 seconds from one state of the catalog.
SLOW_SEARCH = """
import time, flask, catalog.api.response_cache
from catalog.store.sqlite import snapshot
rendered = catalog.api.response_cache.render_and_cache
def slowly(key, make):
    if getattr(key, "q", ""):
        connection = flask.current_app.extensions["database"].reader()
        with snapshot(connection):
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                connection.execute("SELECT count(*) FROM version").fetchone()
                connection.check_deadline()
    return rendered(key, make)
catalog.api.response_cache.render_and_cache = slowly
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


def searches(client: int) -> list[tuple[str, str]]:
    """More than are cached, and no other client has the same."""
    return [("GET", f"/api/v1/widgets/search?q={client}x{n}") for n in range(10_000)]


@contextmanager
def watched(path: Path) -> Iterator[list[int]]:
    """The sizes of the file while the block runs."""
    sizes: list[int] = [0]
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(0.01):
            sizes.append(os.stat(path).st_size)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield sizes
    finally:
        stopped.set()
        thread.join()


def test_overlapping_slow_reads_do_not_let_the_wal_grow(
    database: Path, tmp_path: Path, figures: Callable[..., None]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_SEARCH)
    before = installs(database)
    with Server(database, PYTHONPATH=f"{tmp_path}:.") as server:
        server.request("POST", CLOCK)
        with (
            watched(Path(f"{database}-wal")) as sizes,
            asking(server.port, *map(searches, range(READERS)), [HEALTH], [PAGE]) as readers,
            asking(server.port, *[[POST]] * 4) as writers,
        ):
            wait_for_answers(writers, INSTALLS)
        assert server.stop() == 0
    posts, reads = answers_of(writers, "POST"), answers_of(readers, "GET")
    acknowledged = 1 + counted(posts, 200)
    health, page = readers[-2].answers, readers[-1].answers
    figures(
        "8 clients whose searches take 0.2 s each, beside 4 that post",
        "the WAL stays under 64 MB, health and pages are answered, no install is lost or refused",
        searches=sum(len(client.answers) for client in readers[:READERS]),
        acknowledged=acknowledged,
        failed=len(reads) + len(posts) - counted(reads, 200) - counted(posts, 200),
        largest_wal_MB=round(max(sizes) / 1024 / 1024),
        p99_ms_health=p99(health),
        p99_ms_page=p99(page),
        longest_install_s=round(max(answer.took for answer in posts) / 1000, 1),
        lost=before + acknowledged - installs(database),
    )
    assert counted(reads, 200) == len(reads)
    assert counted(posts, 200) == len(posts)
    assert max(sizes) < BOUND
    assert installs(database) == before + acknowledged
