"""Measures how long a hot search takes while another client floods the service."""

from bench import workload
from bench.catalogs import Catalog
from bench.load import measure, measure_under_flood
from bench.rounds import Rounds

CONNECTIONS = 40
SEARCHES = 300


def measure_flood(catalog: Catalog, rounds: Rounds) -> list[float]:
    """Return the duration of every search in all rounds, in seconds."""
    hot, seconds = workload.hot_searches(), []
    for _ in rounds:
        with catalog.serve() as server:
            measure(server, hot, workload.CONNECTIONS)
            slow = workload.slow_requests(catalog.widgets)
            seconds += measure_under_flood(server, hot[:SEARCHES], slow, CONNECTIONS)
    return seconds
