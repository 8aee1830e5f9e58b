"""Three rqlite nodes whose leader is killed or hangs, or that are all stopped, again and again."""

import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import urllib3
from conftest import run
from rqlite_nodes import Nodes, require_rqlite, wait_until
from torture.clients import (
    CLOCK,
    POST,
    Client,
    count_status,
    installs,
    responses_to,
    running_clients,
    wait_for_responses,
)

ROUNDS = 10
# Seconds that any install may take: six by its deadlines, the rest for a machine that is slow. And
# until one is acknowledged after the leader was killed: the median, since an election may need a
# second round.
LONGEST_INSTALL = 12
LONGEST_ELECTION = 4


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    require_rqlite()
    running = Nodes(tmp_path, 3)
    try:
        assert run(running.app(running[0]), "init", "--demo").exit_code == 0
        running.wait_until_catalog()
        yield running
    finally:
        running.close()


class Reader(threading.Thread):
    """Reads the counter of the clock without a pause."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url + CLOCK
        self.counts: list[int] = []
        self.failed = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        with urllib3.PoolManager(retries=False, timeout=20) as pool:
            while not self.stopped.is_set():
                response = pool.request("GET", self._url)
                if response.status == 200:
                    self.counts.append(response.json()["widget"]["downloadCount"])
                else:
                    self.failed += 1

    def steps_back(self) -> int:
        """Return how often a counter was lower than the one before."""
        return sum(later < earlier for earlier, later in pairwise(self.counts))


def kill_all(nodes: Nodes) -> None:
    for node in nodes:
        node.end(signal.SIGKILL)
    nodes.restart()


FAULTS: dict[str, Callable[[Nodes], object]] = {
    "kill -9 of the leader": lambda nodes: nodes.leader().end(signal.SIGKILL),
    "a leader that hangs": lambda nodes: nodes.leader().send(signal.SIGSTOP),
    "kill -9 of all three nodes": kill_all,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_acknowledged_install_is_lost(
    fault: str, nodes: Nodes, figures: Callable[..., None]
) -> None:
    before = installs(nodes[0].database)
    acknowledged = refused = reads = failed = back = 0
    longest = 0.0
    gaps: list[float] = []
    for number in range(ROUNDS):
        beside = nodes[number % 3]
        with nodes.serve(beside) as server:
            reader = Reader(server.url)
            reader.start()
            with running_clients(server.port, *[[POST]] * 8) as clients:
                wait_for_responses(clients, 3)
                started = time.monotonic()
                FAULTS[fault](nodes)
                wait_for_acknowledged(clients)
                gaps.append(time.monotonic() - started)
                wait_for_responses(clients, 3)
            nodes.restart()
            reader.stopped.set()
            reader.join()
        responses = responses_to(clients, "POST")
        acknowledged += count_status(responses, 200)
        refused += (
            count_status(responses, 503)
            + count_status(responses, 504)
            + sum(client.unknown for client in clients)
        )
        longest = max(longest, *(response.milliseconds / 1000 for response in responses))
        reads += len(reader.counts)
        failed += reader.failed
        back += reader.steps_back()
    wait_until(lambda: len({installs(node.database) for node in nodes}) == 1)
    counted = installs(nodes[0].database) - before
    figures(
        f"{fault}, under 8 clients that post and one that reads",
        "no acknowledged install is lost, no read fails",
        rounds=ROUNDS,
        acknowledged=acknowledged,
        refused_503=refused,
        lost=max(0, acknowledged - counted),
        longest_install_s=round(longest, 1),
        next_acknowledged_after_s=round(statistics.median(gaps), 1),
        at_most_s=round(max(gaps), 1),
        reads=reads,
        failed=failed,
        back_in_time=back,
    )
    assert acknowledged <= counted <= acknowledged + refused
    assert failed == 0
    assert longest <= LONGEST_INSTALL
    if fault == "kill -9 of the leader":
        assert statistics.median(gaps) <= LONGEST_ELECTION


def wait_for_acknowledged(clients: list[Client]) -> None:
    """Wait until one more install is acknowledged."""
    before = count_status(responses_to(clients, "POST"), 200)
    wait_until(lambda: count_status(responses_to(clients, "POST"), 200) > before)
