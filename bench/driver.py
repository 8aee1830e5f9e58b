"""Measure requests per second and CPU time per request, compared with a constant response.

Without options, the benchmark measures every row, the flood and the growth, and writes the results
to bench/RESULTS.md. With options, it measures only rows, and writes to bench/.work/RESULTS.md.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from bench import machine, workload
from bench.catalogs import CURRENT, build, extract
from bench.comparison import Comparison
from bench.flood import measure_flood
from bench.growth import measure_growth
from bench.load import LoadError
from bench.processes import ROOT, WORK, StartError
from bench.report import LARGE, USUAL, Results, page
from bench.rounds import Rounds, elapsed, log
from bench.workload import Row

SMALL = 1_000
# The time limit for each part, in seconds since the start of the run. A round that would
# probably exceed it is not started.
QUICK_END, ROWS_END, FLOOD_END, GROWTH_END = 45, 200, 225, 540
# Generating and importing the large catalog and measuring one round with it takes as long as
# importing the usual catalog this many times.
LARGE_IMPORTS = 18
# A run that hangs is stopped after this many seconds; a normal run is much shorter.
TIMEOUT = 15 * 60


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
    parser.add_argument("--quick", action="store_true", help="use 1,000 widgets and few rows")
    parser.add_argument("--rows", metavar="KEY,…", type=lambda keys: keys.split(","))
    parser.add_argument("--against", metavar="COMMIT", help="also measure this commit")
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
    commit, load_average = machine.commit(), os.getloadavg()[0]
    for doubt in machine.find_doubts(commit, load_average):
        log(doubt)
    size = SMALL if options.quick else USUAL
    usual = build(CURRENT, size)
    others = [build(extract(options.against), size)] if options.against else []
    comparison = Comparison(selected_rows(options, size), [usual, *others])
    results = Results(
        command=options.command,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit,
        load_average=load_average,
        machine=machine.describe(),
        comparison=comparison,
        catalogs=[usual, *others],
    )
    end = QUICK_END if options.quick else ROWS_END if options.is_full else GROWTH_END
    comparison.run(Rounds("Rows", 2 if options.quick else 9, end))
    if options.is_full:
        results.flooded = measure_flood(usual, Rounds("Flood", 3, FLOOD_END))
        if elapsed() + LARGE_IMPORTS * usual.import_seconds < GROWTH_END:
            results.catalogs = [build(CURRENT, SMALL), usual, build(CURRENT, LARGE)]
            results.growth = measure_growth(results.catalogs, Rounds("Growth", 4, GROWTH_END))
    results.minutes = elapsed() / 60
    text = page(results)
    file = (ROOT / "bench" if options.is_full else WORK) / "RESULTS.md"
    file.write_text(text, encoding="utf-8")
    print(text)


def _stop(number: int, _: object) -> None:
    raise SystemExit(f"Stopped by {signal.Signals(number).name}.")
