"""Long reads that overlap, while clients install."""

import os
from collections.abc import Callable
from pathlib import Path

from conftest import Limits, Server, create_demo
from torture.clients import (
    CLOCK,
    POST,
    count_status,
    installs,
    p99,
    responses_to,
    running_clients,
    wait_for_responses,
)

MAX_WAL = 64 * 1024 * 1024  # bytes

# Each search that is not cached reads for 0.2 seconds from one snapshot.
SLOW_SEARCH = """
import time, catalog.api.v1.lists
from catalog.store.connection.sqlite import snapshot
find_widgets = catalog.api.v1.lists.find_widgets
def find_slowly(connection, query, *arguments):
    if query.q:
        with snapshot(connection):
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                connection.execute("SELECT count(*) FROM version").fetchone()
                connection.check_deadline()
    return find_widgets(connection, query, *arguments)
catalog.api.v1.lists.find_widgets = find_slowly
"""


def searches(client: int) -> list[tuple[str, str]]:
    """More searches than are cached, different for each client."""
    return [("GET", f"/api/v1/widgets/search?q={client}x{n}") for n in range(10_000)]


def test_overlapping_slow_reads_do_not_let_the_wal_grow(
    tmp_path: Path, limits: Limits, figures: Callable[..., None]
) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    others = [("GET", "/api/health")], [("GET", "/")]
    with Server(database, **limits.run(SLOW_SEARCH)) as server:
        server.request("POST", CLOCK)
        sizes = []
        with (
            running_clients(server.port, *map(searches, range(8)), *others) as readers,
            running_clients(server.port, *[[POST]] * 4) as writers,
        ):
            for _ in range(200):
                wait_for_responses(writers, 5)
                sizes.append(os.stat(f"{database}-wal").st_size)
        assert server.stop() == 0
    posts, reads = responses_to(writers, "POST"), responses_to(readers, "GET")
    acknowledged = 1 + count_status(posts, 200)
    health, page = readers[-2].responses, readers[-1].responses
    figures(
        "8 clients whose searches take 0.2 s each, beside 4 that post",
        "the WAL stays under 64 MB, health and pages have responses, no install is lost or refused",
        searches=sum(len(client.responses) for client in readers[:-2]),
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
