"""Measure CPU time per request and rate of the service, and compare them with a constant response.

Without options: every row, growth, compression and other servers; the results are written to
bench/. With options: only the rows; the results are written to bench/.work/.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Any

from bench import machine, report, workload
from bench.catalogs import CURRENT, Catalog, build, extract
from bench.comparison import Comparison
from bench.compression import measure_compression
from bench.growth import measure_growth
from bench.load import Client, LoadError
from bench.peers import measure_peers
from bench.processes import ROOT, WORK, StartError
from bench.rounds import Rounds, elapsed
from bench.workload import Row

SMALL, USUAL, LARGE = 1_000, 10_000, 100_000
# When each part ends, in seconds from the start: the last round is the last that fits.
ROWS_END, COMPRESSION_END, GROWTH_END = 300, 360, 840
# The large catalog needs the time of this many imports of the usual one: to be generated and
# imported, and for a round.
LARGE_IMPORTS = 18
# In seconds, in case something hangs; every part ends long before.
TIMEOUT = 20 * 60


def main() -> None:
    if sys.platform != "linux":
        sys.exit("The benchmark needs Linux: it reads the CPU time of the server processes.")
    options = parse(sys.argv[1:])
    # Raise an exception, so that every server is stopped on the way out.
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, _stop)
    signal.alarm(TIMEOUT)
    try:
        run(options)
    except (LoadError, StartError) as error:
        sys.exit(f"The benchmark failed: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped.")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 widgets and few rows")
    parser.add_argument("--rows", metavar="KEY,…", type=lambda keys: keys.split(","))
    parser.add_argument("--against", metavar="COMMIT", help="measure another commit in turn")
    parser.add_argument("--no-wrk", action="store_true", help="use the built-in client")
    options = parser.parse_args(arguments)
    known = [row.key for row in workload.rows(SMALL)]
    if unknown := set(options.rows or ()) - set(known):
        parser.error(f"unknown rows: {', '.join(unknown)}; known rows: {', '.join(known)}")
    options.is_full = not (options.quick or options.rows or options.against)
    options.command = " ".join(["python -m bench", *arguments])
    return options


def selected_rows(options: argparse.Namespace, size: int) -> list[Row]:
    rows = workload.rows(size)
    keys = options.rows or (workload.QUICK_ROWS if options.quick else [row.key for row in rows])
    return [row for row in rows if row.key in keys]


def run(options: argparse.Namespace) -> None:
    WORK.mkdir(exist_ok=True)
    client = Client(WORK, use_wrk=not options.no_wrk)
    log(f"Load from {client.name}.")
    results: dict[str, Any] = {**machine.facts(), "client": client.name}
    size = SMALL if options.quick else USUAL
    catalogs = [build(CURRENT, size, log)]
    others = [build(extract(options.against), size, log)] if options.against else []
    comparison = Comparison(selected_rows(options, size), [*catalogs, *others], client)
    end = ROWS_END if options.is_full else GROWTH_END
    comparison.run(Rounds(3 if options.quick else 9, end), log)
    results |= {
        "widgets": size,
        "rounds": comparison.rounds,
        "connections": workload.CONNECTIONS,
        "rows": comparison.results(),
        "against": others[0].checkout.name if others else None,
    }
    if options.is_full:
        results["compression"] = measure_compression(client, Rounds(5, COMPRESSION_END), log)
        results["peers"], results["skipped"] = measure_peers(size, client, log)
        if elapsed() + LARGE_IMPORTS * catalogs[0].import_seconds < GROWTH_END:
            catalogs = with_other_sizes(catalogs[0])
            results["growth"] = measure_growth(catalogs, client, Rounds(4, GROWTH_END), log)
        else:
            results["skipped"].append(f"Growth is skipped: {LARGE:,} widgets would take too long.")
    results |= {
        "catalogs": [catalog.facts() for catalog in (*catalogs, *others)],
        "command": options.command,
        "minutes": round(elapsed() / 60, 1),
    }
    report.write(results, ROOT / "bench" if options.is_full else WORK)
    print(report.summary(results))


def with_other_sizes(usual: Catalog) -> list[Catalog]:
    return [build(CURRENT, SMALL, log), usual, build(CURRENT, LARGE, log)]


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _stop(number: int, _: object) -> None:
    raise SystemExit(f"Stopped by {signal.Signals(number).name}.")


if __name__ == "__main__":
    main()
