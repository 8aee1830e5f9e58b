"""Long reads that overlap, while clients install."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Limits, Server, create_demo
from tests.torture.clients import (
    CLOCK,
    POST,
    count_status,
    installs,
    p99,
    responses_to,
    running_clients,
    wait_for_responses,
)

READERS = 8
# Of each client.
INSTALLS = 1000
MAX_WAL = 64 * 1024 * 1024  # bytes
HEALTH = ("GET", "/api/health")
PAGE = ("GET", "/")

# Each search that is not cached reads for 0.2 seconds from one snapshot.
SLOW_SEARCH = """
import time, catalog.api.v1
from catalog.store.connection.sqlite import snapshot
find_widgets = catalog.api.v1.find_widgets
def find_slowly(connection, query):
    if query.q:
        with snapshot(connection):
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                connection.execute("SELECT count(*) FROM version").fetchone()
                connection.check_deadline()
    return find_widgets(connection, query)
catalog.api.v1.find_widgets = find_slowly
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


def searches(client: int) -> list[tuple[str, str]]:
    """More searches than are cached, different for each client."""
    return [("GET", f"/api/v1/widgets/search?q={client}x{n}") for n in range(10_000)]


@contextmanager
def watch_size(path: Path) -> Iterator[list[int]]:
    """Record the sizes of the file while the block runs."""
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
    database: Path, limits: Limits, figures: Callable[..., None]
) -> None:
    before = installs(database)
    with Server(database, **limits.run(SLOW_SEARCH)) as server:
        server.request("POST", CLOCK)
        with (
            watch_size(Path(f"{database}-wal")) as sizes,
            running_clients(
                server.port, *map(searches, range(READERS)), [HEALTH], [PAGE]
            ) as readers,
            running_clients(server.port, *[[POST]] * 4) as writers,
        ):
            wait_for_responses(writers, INSTALLS)
        assert server.stop() == 0
    posts, reads = responses_to(writers, "POST"), responses_to(readers, "GET")
    acknowledged = 1 + count_status(posts, 200)
    health, page = readers[-2].responses, readers[-1].responses
    figures(
        "8 clients whose searches take 0.2 s each, beside 4 that post",
        "the WAL stays under 64 MB, health and pages have responses, no install is lost or refused",
        searches=sum(len(client.responses) for client in readers[:READERS]),
        acknowledged=acknowledged,
        failed=len(reads) + len(posts) - count_status(reads, 200) - count_status(posts, 200),
        largest_wal_MB=round(max(sizes) / 1024 / 1024),
        p99_ms_health=p99(health),
        p99_ms_page=p99(page),
        longest_install_s=round(max(response.milliseconds for response in posts) / 1000, 1),
        lost=before + acknowledged - installs(database),
    )
    assert count_status(reads, 200) == len(reads)
    assert count_status(posts, 200) == len(posts)
    assert max(sizes) < MAX_WAL
    assert installs(database) == before + acknowledged
