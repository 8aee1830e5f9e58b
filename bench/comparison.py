"""Measures each row in turn on the service, the baseline and optionally another commit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random

from bench import workload
from bench.catalogs import Catalog
from bench.load import LoadError, Sample, idle_connections, measure
from bench.processes import Server, fetch, start_baseline
from bench.rounds import Rounds
from bench.workload import CONNECTIONS, Request, Row, constant_path

BASELINE = "baseline"
WARM_UP_REQUESTS = 50
# Servers take turns after each slice of a row, so that other processes on the machine affect all
# servers alike.
SLICES = 10
BASELINE_REQUESTS = 80


class Comparison:
    """The samples for each row, by server name: the name of a checkout, or "baseline"."""

    def __init__(self, rows: Sequence[Row], catalogs: Sequence[Catalog]) -> None:
        self.rows, self.catalogs = rows, catalogs
        self.rounds = 0
        self.rng = Random(9)
        names = [*(catalog.checkout.name for catalog in catalogs), BASELINE]
        self.samples: dict[str, dict[str, list[Sample]]] = {
            row.key: {name: [] for name in names} for row in rows
        }

    def run(self, rounds: Rounds) -> None:
        """Measure every row once in each round."""
        alone = [[row] for row in self.rows if row.cold or row.settings]
        together = [row for row in self.rows if not (row.cold or row.settings)]
        groups = [*alone, together] if together else alone
        with start_baseline() as baseline:
            for number in rounds:
                for rows in groups:
                    with self._servers(rows[0].settings) as servers:
                        for row in rows:
                            with ExitStack() as stack:
                                for server in servers.values():
                                    idle = idle_connections(server, row.idle_connections)
                                    stack.enter_context(idle)
                                self._measure(row, servers, baseline)
                self.rounds = number

    @contextmanager
    def _servers(self, settings: Mapping[str, str]) -> Iterator[dict[str, Server]]:
        """Yield new processes of the service that have already handled some requests."""
        with ExitStack() as stack:
            servers = {}
            for catalog in self.catalogs:
                server = stack.enter_context(catalog.serve(settings))
                servers[catalog.checkout.name] = server
                measure(server, workload.warm_up(), CONNECTIONS)
                measure(server, workload.earlier_use(), CONNECTIONS)
            yield servers

    def _measure(self, row: Row, servers: Mapping[str, Server], baseline: Server) -> None:
        constant = [Request("GET", constant_path(row.baseline_bytes))] * BASELINE_REQUESTS
        headers: dict[str, dict[str, str]] = {BASELINE: {}}
        for name, server in servers.items():
            headers[name] = row.headers | (validator(row, server) if row.revalidates else {})
            if not row.cold:
                # These requests fill the cache before anything is measured.
                distinct = list(dict.fromkeys(row.requests))[:WARM_UP_REQUESTS]
                measure(server, distinct, CONNECTIONS, headers[name])
        for number in range(min(SLICES, len(row.requests))):
            part = row.requests[number::SLICES]
            turns = [(name, server, part) for name, server in servers.items()]
            turns.append((BASELINE, baseline, constant))
            # The order is random because a turn can affect the next one.
            for name, server, sent in workload.shuffled(turns, self.rng):
                sample = measure(server, sent, CONNECTIONS, headers[name])
                self.samples[row.key][name].append(sample)


def validator(row: Row, server: Server) -> dict[str, str]:
    """Return the header that makes the server respond with 304."""
    _, headers, _ = fetch(server.url, *row.requests[0])
    validator = {"If-None-Match": headers["ETag"]}
    status, _, _ = fetch(server.url, *row.requests[0], validator)
    if status != 304:
        raise LoadError(f"{row.title}: the status is {status}, not 304.")
    return validator
