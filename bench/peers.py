"""Compares the service with two other servers on this machine, and writes bench/PEERS.md.

One is bench/stock_flask.py, a simple implementation on the same database; the other is the npm
registry Verdaccio, if npm can install it. Run: python -m bench.peers
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from statistics import quantiles
from typing import NamedTuple

from bench import machine, workload
from bench.catalogs import CURRENT, build
from bench.load import measure_latencies
from bench.processes import ROOT, WORK, Server, StartError, free_port
from bench.rounds import log
from bench.workload import SEARCH, Request

WIDGETS = 10_000
PACKAGES = 1000
CONNECTIONS = 8
SECONDS = 5
# A script for wrk that requests the paths in a file over and over.
WRK_SCRIPT = """
local paths, at = {}, 0
for path in io.lines(%s) do paths[#paths + 1] = path end
request = function() at = at %% #paths + 1; return wrk.format("GET", paths[at]) end
"""


class Figures(NamedTuple):
    """Responses per second, and the median and 99th percentile of their latency in ms."""

    rate: float
    median: float
    p99: float


def measure(server: Server, requests: Sequence[Request], *, once: bool) -> Figures:
    """Measure the requests with wrk; if once is true or wrk is missing, send each request once."""
    wrk = shutil.which("wrk")
    if once or wrk is None:
        seconds, latencies = measure_latencies(server, requests, CONNECTIONS)
        cuts = quantiles([each * 1e3 for each in latencies], n=100, method="inclusive")
        return Figures(len(requests) / seconds, cuts[49], cuts[98])
    paths = WORK / "paths.txt"
    paths.write_text("".join(f"{request.path}\n" for request in requests))
    script = WORK / "paths.lua"
    script.write_text(WRK_SCRIPT % json.dumps(str(paths)))
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s", str(script)]
    output = subprocess.run(
        [*command, server.url], capture_output=True, text=True, check=True
    ).stdout
    if "Non-2xx" in output:
        raise StartError(f"{server.name} refused requests: {output}")
    rate = float(re.findall(r"Requests/sec: +([0-9.]+)", output)[0])
    times = dict(re.findall(r" +(\d\d)% +([0-9.]+[a-z]+)", output))
    return Figures(rate, milliseconds(times["50"]), milliseconds(times["99"]))


def milliseconds(text: str) -> float:
    """Convert a duration that wrk prints, such as 1.50ms or 900.00us, to milliseconds."""
    number, unit = re.fullmatch(r"([0-9.]+)([a-z]+)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


@contextmanager
def verdaccio() -> Iterator[Server | None]:
    """Yield Verdaccio with packages that have five versions each; None if npm cannot install it."""
    folder = WORK / "verdaccio"
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text('{"overrides": {"node-fetch": "2.6.7"}}')
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "verdaccio@6.0.5"]
    if shutil.which("npm") is None or subprocess.run(install, cwd=folder).returncode:
        log("npm cannot install Verdaccio.")
        yield None
        return
    storage, names = folder / "storage", [f"widget-{number}" for number in range(PACKAGES)]
    for name in names:
        (storage / name).mkdir(parents=True, exist_ok=True)
        (storage / name / "package.json").write_text(json.dumps(package(name)))
    database = {"list": names, "secret": "0" * 32}
    (storage / ".verdaccio-db.json").write_text(json.dumps(database))
    config = {
        "storage": str(storage),
        "packages": {"**": {"access": "$all"}},
        "log": {"type": "stdout", "format": "json", "level": "fatal"},
    }
    # JSON is also valid YAML.
    (folder / "config.yaml").write_text(json.dumps(config))
    port = free_port()
    program = str(folder / "node_modules" / ".bin" / "verdaccio")
    config_file = str(folder / "config.yaml")
    command = [program, "--config", config_file, "--listen", f"127.0.0.1:{port}"]
    with Server("verdaccio", command, port, f"/{names[0]}") as server:
        yield server


def package(name: str) -> dict[str, object]:
    """Return the stored metadata of a package with five versions."""
    numbers = [f"1.{minor}.0" for minor in range(5)]
    versions = {
        number: {
            "name": name,
            "version": number,
            "description": f"The widget {name}.",
            "dist": {"tarball": f"http://127.0.0.1/{name}-{number}.tgz", "shasum": "0" * 40},
        }
        for number in numbers
    }
    return {
        "name": name,
        "versions": versions,
        "dist-tags": {"latest": numbers[-1]},
        "time": dict.fromkeys(numbers, "2025-01-01T00:00:00.000Z"),
        "_attachments": {},
        "_distfiles": {},
        "_uplinks": {},
    }


def main() -> None:
    WORK.mkdir(exist_ok=True)
    catalog = build(CURRENT, WIDGETS)
    words = workload.searches(workload.cold_queries())
    details = workload.details_of(WIDGETS)[:1000]
    port = free_port()
    program = str(ROOT / "bench" / "stock_flask.py")
    command = [sys.executable, program, str(catalog.database), str(port)]
    rows = []
    with ExitStack() as stack:
        ours = stack.enter_context(catalog.serve())
        stock = stack.enter_context(Server("stock", command, port, SEARCH))
        peer = stack.enter_context(verdaccio())
        for title, requests, once in (
            ("search, each word once", words, True),
            ("search, fifty words, repeated", workload.hot_searches(), False),
            ("detail of a widget, five versions", details, False),
        ):
            for name, server in (("Widget Catalog", ours), ("stock Flask", stock)):
                log(f"{title}: {name}.")
                rows.append((title, name, measure(server, requests, once=once)))
        if peer:
            packages = [Request("GET", f"/widget-{number}") for number in range(PACKAGES)]
            title = "detail of a package, five versions"
            rows.append((title, "Verdaccio 6.0.5", measure(peer, packages, once=False)))
    text = page(rows)
    (ROOT / "bench" / "PEERS.md").write_text(text, encoding="utf-8")
    print(text)


def page(rows: Sequence[tuple[str, str, Figures]]) -> str:
    """Return the results as Markdown."""
    client = "wrk with one thread" if shutil.which("wrk") else "a client in Python"
    lines = [
        "# Compared with other servers",
        "",
        f"Written by `make bench-peers` on {datetime.now(UTC):%Y-%m-%d} at commit "
        f"{machine.commit()}. The machine: {machine.describe()}. All servers run on it at the "
        f"same time and are measured one after another by {client}, over {CONNECTIONS} "
        f"connections. The catalog has {WIDGETS:,} widgets. Stock Flask (bench/stock_flask.py) "
        f"reads the same database, but its search results have no latest version. Verdaccio has "
        f"{PACKAGES:,} packages. The Widget Catalog serves repeated searches from its response "
        "cache.",
        "",
        "| Request | Server | responses/s | median, ms | p99, ms |",
        "|---|---|---:|---:|---:|",
    ]
    for title, name, (rate, median, p99) in rows:
        lines.append(f"| {title} | {name} | {rate:,.0f} | {median:.2f} | {p99:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
