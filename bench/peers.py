"""What a user would pick instead, on the same widgets, as its own documentation sets up search.

Each gets what our search answers: the widgets with their latest version, most installs first.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from bench.generate import Json, documents
from bench.processes import ROOT, WORK, Server, StartError, free_port
from bench.workload import Request

VENV = ROOT / "bench" / ".venv" / "bin"
JSON_SERVER = ROOT / "bench" / "node_modules" / ".bin" / "json-server"
DATABASE = WORK / "peers.db"
JSON_FILE = WORK / "peers.json"
LEAST_TIMES = 50.0


@dataclass(frozen=True)
class Peer:
    name: str
    server: Server
    search: Callable[[str], str]
    target: float | None  # how many times as fast ours should be, at least

    def requests(self, queries: list[str]) -> list[Request]:
        return [Request("GET", self.search(q)) for q in queries]


def start(widgets: int, stack: ExitStack) -> tuple[list[Peer], list[str]]:
    """The peers that can be had here, and a line for each that cannot."""
    peers: list[Peer] = []
    missing = []
    if not (JSON_SERVER.exists() and shutil.which("node")):
        missing.append("json-server is skipped: npm has not installed it.")
    if not (VENV / "datasette").exists():
        missing.append("Datasette is skipped: bench/.venv has not been made.")
    for name, make in (("json-server", _json_server), ("Datasette", _datasettes)):
        if not any(line.startswith(name) for line in missing):
            try:
                peers += make(widgets, stack)
            except StartError as error:
                missing.append(f"{name} is skipped: {error}")
    return peers, missing


def _summaries(widgets: int) -> Iterator[Json]:
    """Each widget as our search answers it, with the latest version in it."""
    for number, document in enumerate(documents(widgets)):
        offered = [version for version in document["versions"] if not version["yanked"]]
        yield {"id": number, **document["widget"], "latestVersion": next(iter(offered), None)}


def _json_server(widgets: int, stack: ExitStack) -> Iterator[Peer]:
    data = {"widgets": list(_summaries(widgets))}
    JSON_FILE.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    port = str(free_port())
    server = Server(
        "json-server",
        [JSON_SERVER, "--quiet", "--host", "127.0.0.1", "--port", port, JSON_FILE],
        "/widgets/1",
        url=f"http://127.0.0.1:{port}",
    )
    yield Peer(
        "json-server",
        stack.enter_context(server),
        lambda q: _address("/widgets", q=q, _sort="downloadCount", _order="desc", _limit="20"),
        LEAST_TIMES,
    )


def _datasettes(widgets: int, stack: ExitStack) -> Iterator[Peer]:
    _make_database(widgets)
    # Its suggestions of facets cost most of its time; so that nobody needs to wonder, both ways.
    for name, options, target in (
        ("Datasette", [], LEAST_TIMES),
        ("Datasette, suggest_facets off", ["--setting", "suggest_facets", "off"], None),
    ):
        port = str(free_port())
        server = Server(
            "datasette" if target else "datasette-off",
            [VENV / "datasette", "serve", DATABASE, "-h", "127.0.0.1", "-p", port, *options],
            "/-/versions.json",
            url=f"http://127.0.0.1:{port}",
        )
        yield Peer(
            name,
            stack.enter_context(server),
            lambda q: _address(
                "/peers/widgets.json",
                _search=q,
                _sort_desc="downloadCount",
                _size="20",
                _shape="objects",
            ),
            target,
        )


def _address(path: str, **parameters: str) -> str:
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
