"""python -m bench: builds the catalogs, measures in interleaved rounds, writes the report."""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import growth, machine, peers, report, workload
from bench.answers import record, with_etag
from bench.catalogs import Catalog, build
from bench.load import Client, Load, LoadError, Outcome
from bench.processes import ROOT, WORK, Server, StartError, fetch, our_service, the_limit
from bench.rounds import BEGUN, Rounds
from bench.workload import Row

CONNECTIONS = 8  # more callers than threads, as on a busy day
PEER_CONNECTIONS = 4  # they answer so few in a second that those cut off at the end would count
PEER_SECONDS = 3
WARM_UP = 50
WHOLE_RUN = 15 * 60  # seconds after which something must be wrong


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...]
    main_size: int
    rounds: Rounds
    peer_rounds: int
    growth_rounds: Rounds | None
    rows: Sequence[Row]
    command: str
    output: Path


def full_plan() -> Plan:
    rows = workload.rows(10_000)
    sizes = (1_000, 10_000, 100_000)
    return Plan(
        sizes, 10_000, Rounds(5, 9, 330), 3, Rounds(3, 6, 480), rows, "make bench", ROOT / "bench"
    )


def quick_plan() -> Plan:
    rows = [replace(row, seconds=1) for row in workload.rows(1_000) if row.key in workload.QUICK]
    return Plan((1_000,), 1_000, Rounds(3, 3, 0), 0, None, rows, "make bench-quick", WORK / "quick")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 widgets, a few rows")
    parser.add_argument("--own-client", action="store_true", help="do not use wrk")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, _stop)  # an exception, so that every server is ended on the way out
    signal.alarm(WHOLE_RUN)
    try:
        run(quick_plan() if options.quick else full_plan(), options.own_client)
    except (LoadError, StartError) as error:
        sys.exit(f"The benchmark stops: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped.")


def _stop(number: int, _: object) -> None:
    raise SystemExit(f"Stopped by {signal.Signals(number).name}.")


def run(plan: Plan, own_client: bool) -> None:
    WORK.mkdir(exist_ok=True)
    client = Client(WORK, own_client)
    say(f"Load from {client.name}.")
    results: dict[str, Any] = {**machine.facts(), "client": client.name}
    catalogs = {size: build(size, max(plan.sizes), say) for size in plan.sizes}
    bench = Bench(plan, client, catalogs[plan.main_size])
    with ExitStack() as stack:
        bench.run(stack)
    if plan.growth_rounds:
        results["growth"] = growth.measure(catalogs, client, plan.growth_rounds, say)
    results |= {
        "command": plan.command,
        "widgets": plan.main_size,
        "rounds": bench.done,
        "connections": CONNECTIONS,
        "rows": bench.rows(),
        "peers": bench.peer_rows(),
        "skipped": bench.skipped,
        "memory": bench.memory,
        "sizes": [catalog.facts() for catalog in catalogs.values()],
        "minutes": round((time.perf_counter() - BEGUN) / 60, 1),
    }
    report.write(results, plan.output)
    print(report.summary(results))


class Bench:
    """The rounds at one size: each row by our service, then by the limit, then by the peers."""

    def __init__(self, plan: Plan, client: Client, catalog: Catalog) -> None:
        self.plan, self.client, self.catalog = plan, client, catalog
        self.answers = WORK / "answers"
        self.rates: dict[str, dict[str, list[float]]] = {}
        self.memory: dict[str, int] = {}
        self.skipped: list[str] = []
        self.peers: list[peers.Peer] = []
        self.done = 0

    def run(self, stack: ExitStack) -> None:
        with self.fresh() as server:
            record(self.plan.rows, server, self.answers)
        if self.plan.peer_rounds:
            say("Starting the peers.")
            self.peers, self.skipped = peers.start(self.plan.main_size, stack)
            for line in self.skipped:
                say(line)
        limit = stack.enter_context(the_limit(self.answers))
        for number in self.plan.rounds:
            say(f"Round {number}.")
            self.round(number, limit)
            self.done = number
        for peer in self.peers:
            self.memory[peer.name] = peer.server.memory()
        self.memory["the limit"] = limit.memory()

    def round(self, number: int, limit: Server) -> None:
        for row in self.plan.rows:
            if row.cold:
                with self.fresh(row.just_started) as server:
                    self.pair(row, server, limit)
        with self.fresh() as server:
            for row in self.plan.rows:
                if not row.cold:
                    self.pair(row, server, limit)
            self.catalog.memory = max(self.catalog.memory, server.memory())
        if number <= self.plan.peer_rounds:
            self.peers_round()

    @contextmanager
    def fresh(self, just_started: bool = False) -> Iterator[Server]:
        """Our service, with every thread once used; in use for a while unless just started."""
        with our_service(self.catalog.database) as server:
            self.catalog.first_answers.append(server.seconds_to_first_answer)
            self.send(server, Row("warm-up", "warm-up", workload.warm_up(), cold=True))
            if not just_started:
                used = workload.earlier_use()
                self.send(server, Row("use", "earlier use", used, cold=True, seconds=5))
            yield server

    def pair(self, row: Row, server: Server, limit: Server) -> None:
        row = with_etag(row, server)
        status, _, _ = fetch(limit.url, "PUT", f"/answers/{row.key}")
        if status != 204:
            raise StartError(f"The limit has no answers for {row.title}.")
        for name, each in (("ours", server), ("limit", limit)):
            if not row.cold:
                first = list(dict.fromkeys(row.requests))[:WARM_UP]
                self.send(each, Row(row.key, row.title, first, cold=True, headers=row.headers))
            rates = self.rates.setdefault(row.key, {"ours": [], "limit": []})
            rates[name].append(self.send(each, row).rate)

    def send(self, server: Server, row: Row) -> Outcome:
        load = Load(CONNECTIONS, row.seconds, once=row.cold)
        outcome = self.client.run(server.url, row.requests, load, row.headers)
        server.settle()
        return outcome

    def peers_round(self) -> None:
        queries = workload.cold_queries()
        load = Load(PEER_CONNECTIONS, PEER_SECONDS, once=True)
        for peer in self.peers:
            outcome = self.client.run(peer.server.url, peer.requests(queries), load, {})
            peer.server.settle()
            self.rates.setdefault(peer.name, {"rate": []})["rate"].append(outcome.rate)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"key": row.key, "title": row.title, "target": row.target, **self.rates[row.key]}
            for row in self.plan.rows
        ]

    def peer_rows(self) -> list[dict[str, Any]]:
        return [
            {"name": peer.name, "target": peer.target, **self.rates[peer.name]}
            for peer in self.peers
        ]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
