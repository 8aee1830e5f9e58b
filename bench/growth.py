"""Measures the same requests against catalogs of several sizes."""

from contextlib import ExitStack

from bench import workload
from bench.catalogs import Catalog
from bench.load import Sample, measure
from bench.rounds import Rounds
from bench.workload import Row

# A row, and its samples for each number of widgets.
Growth = tuple[Row, dict[int, list[Sample]]]


def measure_growth(catalogs: list[Catalog], rounds: Rounds) -> list[Growth]:
    rows = {catalog.widgets: workload.growth_rows(catalog.widgets) for catalog in catalogs}
    table: list[Growth] = [(row, {size: [] for size in rows}) for row in rows[catalogs[0].widgets]]
    for _ in rounds:
        with ExitStack() as stack:
            servers = {
                catalog.widgets: stack.enter_context(catalog.serve()) for catalog in catalogs
            }
            for server in servers.values():
                measure(server, workload.warm_up(), workload.CONNECTIONS)
            for index, (_, samples) in enumerate(table):
                for size, server in servers.items():
                    # With one connection, the time per request is the latency.
                    sample = measure(server, rows[size][index].requests, connections=1)
                    samples[size].append(sample)
    return table
