"""Registries with gzip and without: bytes on the wire, CPU time and rate."""

import json
import time
from collections.abc import Callable
from random import Random
from typing import Any

from bench.catalogs import CURRENT, Catalog
from bench.generate import FIXED_SCOPE, FIXED_SCOPE_SIZE, documents
from bench.load import Client, LoadError, Sample
from bench.processes import WORK, Server, create_database, fetch, run_flask
from bench.rounds import Rounds
from bench.workload import CONNECTIONS, Request, shuffled

LARGE_SCOPE, LARGE_SCOPE_SIZE = "three-thousand", 3000
# Widgets and requests in each turn, by scope.
SCOPES = {FIXED_SCOPE: (FIXED_SCOPE_SIZE, 100), LARGE_SCOPE: (LARGE_SCOPE_SIZE, 16)}
ENCODINGS = ("identity", "gzip")
# Until a worker has compressed a large body, it is sent as it is.
COMPRESS_TIMEOUT = 30  # seconds


def measure_compression(
    client: Client, rounds: Rounds, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One result for each registry and encoding."""
    results: dict[tuple[str, str], list[Sample]] = {
        (scope, encoding): [] for scope in SCOPES for encoding in ENCODINGS
    }
    rng = Random(10)
    with _build_catalog().serve() as server:
        sizes = {key: _body_size(server, *key) for key in results}
        for number in rounds:
            log(f"Compression, round {number}.")
            for scope, encoding in shuffled(results, rng):
                requests = [Request("GET", _path(scope))] * SCOPES[scope][1]
                headers = {"Accept-Encoding": encoding}
                sample = client.measure(server, requests, CONNECTIONS, headers)
                results[scope, encoding].append(sample)
    return [
        {"widgets": SCOPES[scope][0], "encoding": encoding, "bytes": size, "samples": samples}
        for ((scope, encoding), samples), size in zip(results.items(), sizes.values(), strict=True)
    ]


def _path(scope: str) -> str:
    return f"/api/widgets/{scope}/registry.json"


def _build_catalog() -> Catalog:
    """A catalog of the scopes."""
    file, database = WORK / "scopes.jsonl", WORK / "scopes.db"
    with file.open("w", encoding="utf-8") as lines:
        for number, widget in enumerate(documents(FIXED_SCOPE_SIZE + LARGE_SCOPE_SIZE)):
            if number >= FIXED_SCOPE_SIZE:
                widget["widget"]["scope"] = LARGE_SCOPE
            lines.write(json.dumps(widget, ensure_ascii=False) + "\n")
    create_database(CURRENT.directory, database)
    run_flask(CURRENT.directory, database, "import", str(file))
    return Catalog(CURRENT, FIXED_SCOPE_SIZE + LARGE_SCOPE_SIZE, database, import_seconds=0)


def _body_size(server: Server, scope: str, encoding: str) -> int:
    """The size of the body in this encoding, once the server has it."""
    deadline = time.perf_counter() + COMPRESS_TIMEOUT
    while time.perf_counter() < deadline:
        _, headers, body = fetch(server.url, "GET", _path(scope), {"Accept-Encoding": encoding})
        if headers.get("Content-Encoding", "identity") == encoding:
            return len(body)
        time.sleep(0.05)
    raise LoadError(f"{_path(scope)} has no body with Content-Encoding {encoding}.")
