"""The results as Markdown, as a chart and as JSON, with the targets that are met or missed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import chart
from bench.load import Sample
from bench.workload import EARLIER_QUERIES

Json = dict[str, Any]

# Targets that are not a ratio to the baseline; bench/workload.py has those. A growth of 1.2 is no
# growth, with some noise.
MAX_GROWTH = {"cold": 4.0, "detail": 1.2, "post": 1.2, "registry": 1.2}
MAX_MILLISECONDS = {"everywhere": 250.0}
MAX_MEMORY = 150e6
MAX_START_SECONDS = 1.5
MAX_IMPORT_SECONDS = 10.0
SMALLER, LARGER = "10000", "100000"
# Written by hand: where the time goes.
NOTES = Path(__file__).parent / "NOTES.md"


@dataclass(frozen=True)
class Line:
    """A line of a table: figures, and perhaps a target."""

    title: str
    figures: tuple[str, ...]
    target: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = {True: "yes", False: "**no**", None: ""}[self.met]
        return (self.title, *self.figures, self.target, verdict)


def write(results: Json, directory: Path) -> None:
    """Write results.json, RESULTS.md and results.svg to the directory."""
    data = json.dumps(results, indent=1, ensure_ascii=False)
    (directory / "results.json").write_text(data + "\n", encoding="utf-8")
    (directory / "RESULTS.md").write_text(page(results), encoding="utf-8")
    (directory / "results.svg").write_text(draw_chart(results), encoding="utf-8")


def typical(samples: Sequence[Sample], figure: str) -> float:
    return median(sample[figure] for sample in samples)


def ratio(samples: Sequence[Sample], others: Sequence[Sample], figure: str) -> float:
    """The median of the ratios of each turn: a disturbance affects both sides of a turn."""
    pairs = zip(samples, others, strict=True)
    return median(sample[figure] / other[figure] for sample, other in pairs)


def row_lines(results: Json) -> list[Line]:
    rows = results["rows"]
    baselines: dict[int, list[Sample]] = {}
    for row in rows:
        if row["baseline_bytes"]:
            baselines.setdefault(row["baseline_bytes"], []).extend(row["samples"]["baseline"])
    lines = [
        Line(f"constant response, {size / 1e3:.0f} kB", (*_cpu_and_rate(samples), "", ""))
        for size, samples in baselines.items()
    ]
    for row in rows:
        current, baseline = row["samples"]["current"], row["samples"]["baseline"]
        value, target = ratio(baseline, current, "cpu"), row["target"]
        figures = (f"{value:.2f}", f"{ratio(current, baseline, 'rate'):.2f}")
        goal, met = (f"≥ {target:.2f}", value >= target) if target else ("", None)
        if maximum := row.get("max_milliseconds"):
            goal, met = f"< {maximum:.0f} ms", typical(current, "cpu") < maximum * 1e3
        if min_rate := row.get("min_rate"):
            goal, met = f"≥ {min_rate:.0f}/s", typical(current, "rate") >= min_rate
        lines.append(Line(row["title"], (*_cpu_and_rate(current), *figures), goal, met))
    return lines


def _cpu_and_rate(samples: Sequence[Sample]) -> tuple[str, str]:
    return f"{typical(samples, 'cpu'):,.0f}", f"{typical(samples, 'rate'):,.0f}"


def commit_rows(results: Json, commit: str) -> list[tuple[str, ...]]:
    """The head and the rows of a table that compares this version with another commit."""
    rows: list[tuple[str, ...]] = [
        ("", "CPU µs", commit, "CPU ratio", "requests/s", commit, "rate ratio")
    ]
    for row in results["rows"]:
        current, other = row["samples"]["current"], row["samples"][commit]
        cpu, rate = _cpu_and_rate(current)
        other_cpu, other_rate = _cpu_and_rate(other)
        cpu_ratio = f"{ratio(other, current, 'cpu'):.2f}"
        rate_ratio = f"{ratio(current, other, 'rate'):.2f}"
        rows.append((row["title"], cpu, other_cpu, cpu_ratio, rate, other_rate, rate_ratio))
    return rows


def compression_rows(results: Json) -> list[tuple[str, ...]]:
    """The head and the rows of the table of registries with gzip and without."""
    rows: list[tuple[str, ...]] = [("", "kB", "CPU µs", "requests/s")]
    for each in results["compression"]:
        suffix = ", gzip" if each["encoding"] == "gzip" else ""
        title = f"registry, {each['widgets']:,} widgets{suffix}"
        rows.append((title, f"{each['bytes'] / 1e3:,.0f}", *_cpu_and_rate(each["samples"])))
    return rows


def growth_lines(results: Json) -> list[Line]:
    lines = []
    for row in results.get("growth", ()):
        sizes, key = row["sizes"], row["key"]
        growth = ratio(sizes[SMALLER], sizes[LARGER], "rate")
        figures = tuple(
            f"{1e3 / typical(samples, 'rate'):.2f} ({typical(samples, 'cpu') / 1e3:.2f})"
            for samples in sizes.values()
        )
        if key in MAX_GROWTH:
            target, met = f"growth ≤ {MAX_GROWTH[key]:.1f}", growth <= MAX_GROWTH[key]
        else:
            maximum = MAX_MILLISECONDS[key]
            target = f"< {maximum:.0f} ms"
            met = 1e3 / typical(sizes[LARGER], "rate") < maximum
        lines.append(Line(row["title"], (*figures, f"{growth:.2f}"), target, met))
    return lines


def catalog_lines(results: Json) -> list[Line]:
    """One line for each property, with one figure for each catalog."""
    catalogs = results["catalogs"]
    by_size = {each["widgets"]: each for each in catalogs if each["checkout"] == "current"}
    slowest = max(each["slowest_start_seconds"] for each in by_size.values())

    def is_below(widgets: int, key: str, maximum: float) -> bool | None:
        return by_size[widgets][key] < maximum if widgets in by_size else None

    return [
        Line("versions", tuple(f"{each['versions']:,}" for each in catalogs)),
        Line("database, MB", tuple(f"{each['database_bytes'] / 1e6:,.1f}" for each in catalogs)),
        Line(
            "import, s",
            tuple(f"{each['import_seconds']:.1f}" for each in catalogs),
            f"10,000: < {MAX_IMPORT_SECONDS:.0f}",
            is_below(10_000, "import_seconds", MAX_IMPORT_SECONDS),
        ),
        Line(
            "start to first response, s (slowest)",
            tuple(
                f"{each['start_seconds']:.2f} ({each['slowest_start_seconds']:.2f})"
                for each in catalogs
            ),
            f"≤ {MAX_START_SECONDS}",
            slowest <= MAX_START_SECONDS,
        ),
        Line(
            "memory after the run, MB",
            tuple(f"{each['memory'] / 1e6:.0f}" for each in catalogs),
            f"100,000: < {MAX_MEMORY / 1e6:.0f}",
            is_below(100_000, "memory", MAX_MEMORY),
        ),
    ]


def peer_lines(results: Json) -> list[Line]:
    lines = []
    for peer in results.get("peers", ()):
        (ours,) = [row["samples"]["current"] for row in results["rows"] if row["key"] == "cold"]
        times, target = typical(ours, "rate") / typical(peer["samples"], "rate"), peer["target"]
        figures = (*_cpu_and_rate(peer["samples"]), f"{times:,.1f} times")
        lines.append(
            Line(
                peer["name"],
                (*figures, f"{peer['memory'] / 1e6:.0f}"),
                f"≥ {target:.0f} times" if target else "",
                times >= target if target else None,
            )
        )
    return lines


def draw_chart(results: Json) -> str:
    ratios = [
        chart.Ratio(
            row["title"],
            ratio(row["samples"]["baseline"], row["samples"]["current"], "cpu"),
            row["target"],
        )
        for row in results["rows"]
    ]
    return chart.draw(
        ratios,
        f"CPU time of a constant response / CPU time of the row, at {results['widgets']:,} widgets",
        "A bar at 1.0 would cost no more than a constant response; a mark is a target",
        f"{results['date']}, {results['machine']['processor']}, {results['client']}",
    )


def page(results: Json) -> str:
    """The results as Markdown."""
    parts = [
        "# Results of the benchmark",
        _introduction(results),
        f"## Compared with a constant response, at {results['widgets']:,} widgets",
        "CPU time of the server process per request, and requests per second. The baseline is a "
        "constant response from the same Flask app on the same I/O thread: 20 kB, as a page of "
        "search results, or 800 kB for the registry. Servers take turns after at most 80 "
        "requests. The CPU ratio is the CPU time of the baseline divided by that of the row, the "
        "rate ratio is the rate of the row divided by that of the baseline; both are medians of "
        "all turns. Targets are for the CPU ratio, which varies less, or for the CPU time of a "
        "page. A cold row sends each query "
        f"once, to a new process that has served {EARLIER_QUERIES:,} other searches; “just "
        "started” to a process that has not. The baseline of the row with metrics is the same "
        "service without them, and that of the rows with compatible=true the same searches "
        "without it.",
        "![CPU ratio of each row](results.svg)",
        *_row_tables(results),
    ]
    if "growth" in results:
        parts += [
            "## Growth of the catalog",
            "Milliseconds per request with one connection, in parentheses the CPU time. Growth is "
            "from 10,000 to 100,000 widgets.",
            _line_table(("", *_sizes(results), "growth", "target", "met"), growth_lines(results)),
        ]
    if "compression" in results:
        parts += [
            "## Compression",
            "Registries for clients that accept gzip and for others, in turn: the size of the "
            "body, CPU time of the server process per request, and requests per second.",
            table(compression_rows(results)),
        ]
    parts += ["## Catalogs", _catalog_table(results)]
    if results.get("peers"):
        parts += [
            f"## Compared with other servers, at {results['widgets']:,} widgets",
            "The first searches of the row “search, q, cold”, sent to servers with the same "
            "widgets and their latest version, most installs first, configured as in their own "
            "documentation.",
            _line_table(
                ("", "CPU µs", "requests/s", "ours is", "memory, MB", "target", "met"),
                peer_lines(results),
            ),
        ]
    parts += results.get("skipped", ())
    versions = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    parts += ["## Versions", f"{versions}.", NOTES.read_text(encoding="utf-8").strip()]
    return "\n\n".join(parts) + "\n"


def _row_tables(results: Json) -> list[str]:
    """The table of the rows, and one that compares them with another commit."""
    head = ("", "CPU µs", "requests/s", "CPU ratio", "rate ratio", "target", "met")
    parts = [_line_table(head, row_lines(results))]
    if commit := results["against"]:
        parts += [
            f"## Compared with {commit}",
            f"CPU ratio: CPU time at {commit} / CPU time now. Rate ratio: rate now / rate at "
            f"{commit}. Above 1, this version is faster.",
            table(commit_rows(results, commit)),
        ]
    return parts


def _catalog_table(results: Json) -> str:
    return _line_table(("widgets", *_sizes(results), "target", "met"), catalog_lines(results))


def _sizes(results: Json) -> list[str]:
    return [
        f"{each['widgets']:,}" + ("" if each["checkout"] == "current" else f", {each['checkout']}")
        for each in results["catalogs"]
    ]


def _introduction(results: Json) -> str:
    machine = results["machine"]
    missed = missed_targets(results)
    verdict = f"Not met: {'; '.join(missed)}." if missed else "Every target is met."
    return (
        f"Written by `{results['command']}` on {results['date']} in {results['minutes']} minutes, "
        f"at commit {results['commit'] or 'unknown'}. The machine: {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB, {machine['system']}, "
        f"load average {machine['load_average']} at the start. {results['rounds']} rounds, "
        f"{results['connections']} connections, load from {results['client']}. Absolute figures "
        f"depend on the machine; ratios are comparable between machines.\n\n{verdict}"
    )


def missed_targets(results: Json) -> list[str]:
    sections = (
        ("compared with a constant response", row_lines(results)),
        ("growth", growth_lines(results)),
        ("catalogs", catalog_lines(results)),
        ("compared with other servers", peer_lines(results)),
    )
    return [
        f"{section}: {', '.join(f'“{title}”' for title in titles)}"
        for section, lines in sections
        if (titles := [line.title for line in lines if line.met is False])
    ]


def _line_table(head: tuple[str, ...], lines: Sequence[Line]) -> str:
    return table([head, *(line.cells() for line in lines)])


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table with aligned columns; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = [f"{'-' * (width - 1)}{':' if at else '-'}" for at, width in enumerate(widths)]
    padded = [
        [cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in row]
        for row in (enumerate(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [padded[0], rule, *padded[1:]])


def summary(results: Json) -> str:
    """The part of the page that is printed at the end."""
    return "\n\n".join([*_row_tables(results), _catalog_table(results), _introduction(results)])
