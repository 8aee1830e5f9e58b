"""Other servers that a user could choose, with the same widgets.

Each is configured for search as in its own documentation, and returns what our search returns: the
widgets with their latest version, most installs first.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.generate import Json, documents
from bench.load import Client, Sample
from bench.processes import ROOT, WORK, Server, StartError, free_port
from bench.workload import Request, cold_queries

VENV = ROOT / "bench" / ".venv" / "bin"
JSON_SERVER = ROOT / "bench" / "node_modules" / ".bin" / "json-server"
DATABASE = WORK / "peers.db"
JSON_FILE = WORK / "peers.json"
# How many times the rate of a peer our service should reach.
TARGET = 50.0
ROUNDS = 3
QUERIES = 40
CONNECTIONS = 4


@dataclass(frozen=True)
class Peer:
    name: str
    server: Server
    search: Callable[[str], str]
    target: float | None = None
    samples: list[Sample] = field(default_factory=list)


def measure_peers(
    widgets: int, client: Client, log: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The samples of each installed peer, and a line for each peer that is not installed."""
    with ExitStack() as stack:
        log("Starting the peers.")
        peers, skipped = _start(widgets, stack)
        for number in range(1, ROUNDS + 1):
            log(f"Peers, round {number}.")
            for peer in peers:
                requests = [Request("GET", peer.search(q)) for q in cold_queries()[:QUERIES]]
                peer.samples.append(client.measure(peer.server, requests, CONNECTIONS))
        measured = [
            {
                "name": peer.name,
                "target": peer.target,
                "samples": peer.samples,
                "memory": peer.server.memory(),
            }
            for peer in peers
        ]
    return measured, skipped


def _start(widgets: int, stack: ExitStack) -> tuple[list[Peer], list[str]]:
    peers: list[Peer] = []
    skipped = []
    for name, program, start in (
        ("json-server", JSON_SERVER, _json_server),
        ("Datasette", VENV / "datasette", _datasettes),
    ):
        try:
            if not program.exists():
                raise StartError("It is not installed.")
            peers += start(widgets, stack)
        except StartError as error:
            skipped.append(f"{name} is skipped: {error}")
    return peers, skipped


def _summaries(widgets: int) -> Iterator[Json]:
    """Each widget as our search returns it, with its latest version."""
    for number, document in enumerate(documents(widgets)):
        available = [version for version in document["versions"] if not version["yanked"]]
        yield {"id": number, **document["widget"], "latestVersion": next(iter(available), None)}


def _json_server(widgets: int, stack: ExitStack) -> Iterator[Peer]:
    data = {"widgets": list(_summaries(widgets))}
    JSON_FILE.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    port = free_port()
    options = ["--quiet", "--host", "127.0.0.1", "--port", str(port)]
    server = Server("json-server", [JSON_SERVER, *options, JSON_FILE], port, "/widgets/1")
    yield Peer(
        "json-server",
        stack.enter_context(server),
        lambda q: _path("/widgets", q=q, _sort="downloadCount", _order="desc", _limit="20"),
        TARGET,
    )


def _datasettes(widgets: int, stack: ExitStack) -> Iterator[Peer]:
    _make_database(widgets)
    # Facet suggestions take most of its time, so it is measured with and without them.
    yield _datasette("Datasette", stack, TARGET)
    options = ("--setting", "suggest_facets", "off")
    yield _datasette("Datasette, suggest_facets off", stack, None, *options)


def _datasette(name: str, stack: ExitStack, target: float | None, *options: str) -> Peer:
    port = free_port()
    command: list[str | Path] = [VENV / "datasette", "serve", DATABASE, *options]
    command += ["-h", "127.0.0.1", "-p", str(port)]
    server = stack.enter_context(Server(name, command, port, "/-/versions.json"))
    return Peer(name, server, _datasette_search, target)


def _datasette_search(q: str) -> str:
    parameters = {"_sort_desc": "downloadCount", "_size": "20", "_shape": "objects"}
    return _path("/peers/widgets.json", _search=q, **parameters)


def _path(path: str, **parameters: str) -> str:
    return f"{path}?{urlencode(parameters)}"


def _make_database(widgets: int) -> None:
    DATABASE.unlink(missing_ok=True)
    options = ("--nl", "--flatten", "--pk", "id")
    _sqlite_utils("insert", DATABASE, "widgets", "-", *options, rows=_summaries(widgets))
    _sqlite_utils("enable-fts", DATABASE, "widgets", "displayName", "description")


def _sqlite_utils(*arguments: str | Path, rows: Iterator[Json] | None = None) -> None:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows or ())
    subprocess.run(
        [VENV / "sqlite-utils", *arguments], input=lines.encode(), check=True, timeout=120
    )
