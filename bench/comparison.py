"""Rows measured in interleaved rounds: the service, the baseline and perhaps another commit."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from bench import workload
from bench.catalogs import Catalog
from bench.load import Client, LoadError, Sample
from bench.processes import Server, fetch, start_baseline
from bench.rounds import Rounds
from bench.workload import CHANGES, CONNECTIONS, Request, Row, constant_path

WARM_UP_REQUESTS = 50
# Servers take turns after each slice of a row, so that the load of other processes on the machine
# affects them all alike.
SLICES = 10
BASELINE_REQUESTS = 80


class Comparison:
    """Samples of each row by the name of the server: "baseline", or that of a checkout."""

    def __init__(self, rows: Sequence[Row], catalogs: Sequence[Catalog], client: Client) -> None:
        self.rows, self.catalogs, self.client = rows, catalogs, client
        self.rounds = 0
        self.rng = Random(9)
        names = [*(catalog.checkout.name for catalog in catalogs), "baseline"]
        self.samples: dict[str, dict[str, list[Sample]]] = {
            row.key: {name: [] for name in names} for row in rows
        }

    def run(self, rounds: Rounds, log: Callable[[str], None]) -> None:
        with start_baseline() as baseline:
            for number in rounds:
                log(f"Round {number}.")
                self._round(baseline)
                self.rounds = number

    def results(self) -> list[dict[str, Any]]:
        return [
            {
                "key": row.key,
                "title": row.title,
                "target": row.target,
                "max_milliseconds": row.max_milliseconds,
                # 0 if the baseline is no constant response.
                "baseline_bytes": 0 if row.has_own_baseline else row.baseline_bytes,
                "min_rate": row.min_rate,
                "samples": self.samples[row.key],
            }
            for row in self.rows
        ]

    def _round(self, baseline: Server) -> None:
        shared = [row for row in self.rows if not row.has_own_baseline]
        cold = [row for row in shared if row.cold]
        others = [row for row in shared if not row.cold]
        for rows in (*([row] for row in cold), others):
            if rows:
                with self._servers(rows[0].just_started) as servers:
                    for row in rows:
                        self._measure(row, servers, baseline)
        for row in self.rows:
            if row.has_own_baseline:
                with self._servers(settings=row.settings) as servers, self._servers() as plain:
                    self._measure(row, servers, plain[self.catalogs[0].checkout.name])

    @contextmanager
    def _servers(
        self, just_started: bool = False, settings: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Server]]:
        """New processes of the service, after some use unless just started."""
        with ExitStack() as stack:
            servers = {}
            for catalog in self.catalogs:
                server = stack.enter_context(catalog.serve(settings))
                servers[catalog.checkout.name] = server
                self.client.measure(server, workload.warm_up(), CONNECTIONS)
                if not just_started:
                    self.client.measure(server, workload.earlier_use(), CONNECTIONS)
            yield servers

    def _measure(self, row: Row, servers: Mapping[str, Server], baseline: Server) -> None:
        constant = [Request("GET", constant_path(row.baseline_bytes))] * BASELINE_REQUESTS
        compared = row.baseline_requests or row.requests
        headers, requests = {}, {}
        for name, server in servers.items():
            headers[name] = row.headers | (validator(row, server) if row.revalidates else {})
            requests[name] = requests_since(row, server) if row.follows_changes else row.requests
            if not row.cold:
                self.client.measure(server, distinct(requests[name]), CONNECTIONS, headers[name])
        if row.has_own_baseline and not row.cold:
            self.client.measure(baseline, distinct(compared), CONNECTIONS)
        for number in range(min(SLICES, len(row.requests))):
            part = slice(number, None, SLICES)
            turns = [
                (name, server, requests[name][part], headers[name])
                for name, server in servers.items()
            ]
            sent_to_baseline = compared[part] if row.has_own_baseline else constant
            turns.append(("baseline", baseline, sent_to_baseline, {}))
            # In random order, because a turn can depend on the one before it.
            for name, server, sent, fields in workload.shuffled(turns, self.rng):
                sample = self.client.measure(server, sent, CONNECTIONS, fields)
                self.samples[row.key][name].append(sample)


def distinct(requests: Sequence[Request]) -> list[Request]:
    """The requests that fill the cache of a row that is not cold."""
    return list(dict.fromkeys(requests))[:WARM_UP_REQUESTS]


def requests_since(row: Row, server: Server) -> list[Request]:
    """The requests of the row with the server's token after the last change."""
    query, has_more = "limit=100", True
    while has_more:
        status, _, body = fetch(server.url, "GET", f"{CHANGES}?{query}")
        if status != 200:
            raise LoadError(f"{row.title}: the status is {status}, not 200.")
        page = json.loads(body)
        query, has_more = f"since={page['next']}&limit=100", page["more"]
    return [Request(method, f"{path}?{query}") for method, path in row.requests]


def validator(row: Row, server: Server) -> dict[str, str]:
    """The header that makes the server respond with 304."""
    _, headers, _ = fetch(server.url, *row.requests[0])
    validator = {"If-None-Match": headers["ETag"]}
    status, _, _ = fetch(server.url, *row.requests[0], validator)
    if status != 304:
        raise LoadError(f"{row.title}: the status is {status}, not 304.")
    return validator
