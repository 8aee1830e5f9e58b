"""What a request costs as the catalog grows: the same requests at every size, in turn."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench import workload
from bench.catalogs import Catalog
from bench.load import Client, Load
from bench.processes import our_service
from bench.rounds import Rounds

# One caller, who waits for each answer: then time for each request is what the request costs.
ALONE = 1


def measure(
    catalogs: dict[int, Catalog], client: Client, rounds: Rounds, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """For each row the milliseconds of each round at each size."""
    rows = {size: workload.growth_rows(size) for size in catalogs}
    table = [
        {"key": row.key, "title": row.title, "sizes": {str(size): [] for size in catalogs}}
        for row in rows[min(catalogs)]
    ]
    for number in rounds:
        say(f"Growth, round {number}.")
        with ExitStack() as stack:
            servers = {}
            for size, catalog in catalogs.items():
                server = stack.enter_context(our_service(catalog.database))
                catalog.first_answers.append(server.seconds_to_first_answer)
                client.run(server.url, workload.warm_up(), Load(8, 5, once=True), {})
                servers[size] = server
            for at, line in enumerate(table):
                for size, server in servers.items():
                    row = rows[size][at]
                    load = Load(ALONE, row.seconds, once=row.cold)
                    outcome = client.run(server.url, row.requests, load, row.headers)
                    server.settle()
                    line["sizes"][str(size)].append(outcome.milliseconds)
            for size, server in servers.items():
                catalogs[size].memory = max(catalogs[size].memory, server.memory())
    return table
