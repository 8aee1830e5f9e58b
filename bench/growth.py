"""Cost of a request as the catalog grows: the same requests at every size, in turn."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench import workload
from bench.catalogs import Catalog
from bench.load import Client
from bench.rounds import Rounds

# One connection sends one request at a time, so that the time per request is its latency.
CONNECTIONS = 1


def measure_growth(
    catalogs: list[Catalog], client: Client, rounds: Rounds, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows, each with its samples at each size."""
    rows = {catalog.widgets: workload.growth_rows(catalog.widgets) for catalog in catalogs}
    table: list[dict[str, Any]] = [
        {"key": row.key, "title": row.title, "sizes": {str(size): [] for size in rows}}
        for row in rows[catalogs[0].widgets]
    ]
    for number in rounds:
        log(f"Growth, round {number}.")
        with ExitStack() as stack:
            servers = {
                catalog.widgets: stack.enter_context(catalog.serve()) for catalog in catalogs
            }
            for server in servers.values():
                client.measure(server, workload.warm_up(), workload.CONNECTIONS)
            for index, line in enumerate(table):
                for size, server in servers.items():
                    sample = client.measure(server, rows[size][index].requests, CONNECTIONS)
                    line["sizes"][str(size)].append(sample)
    return table
