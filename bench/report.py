"""The results as a page, as a chart and as plain data; and which of the targets are met."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import chart
from bench.workload import EARLIER_QUERIES

Json = dict[str, Any]

# The targets that are not a ratio to the limit; those are with the rows.
MOST_GROWTH = {"cold": 3.0, "detail": 1.2, "post": 1.2, "registry": 1.2}  # 1.2: none, and noise
MOST_MILLISECONDS = {"everywhere": 80.0}
MOST_MEMORY = 150e6
MOST_SECONDS_TO_FIRST_ANSWER = 1.5
MOST_IMPORT_SECONDS = 10.0
SMALLER, LARGER = "10000", "100000"
NOTES = Path(__file__).parent / "NOTES.md"  # written by hand: why a target is not met


@dataclass(frozen=True)
class Line:
    """A measured figure beside its target, if it has one."""

    title: str
    figures: tuple[str, ...]
    target: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = {True: "yes", False: "**no**", None: ""}[self.met]
        return (self.title, *self.figures, self.target, verdict)


def write(results: Json, directory: Path) -> None:
    """Put results.json, RESULTS.md and results.svg into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    data = json.dumps(results, indent=1, ensure_ascii=False)
    (directory / "results.json").write_text(data + "\n", encoding="utf-8")
    (directory / "RESULTS.md").write_text(page(results), encoding="utf-8")
    (directory / "results.svg").write_text(chart.draw(results), encoding="utf-8")


def row_lines(results: Json) -> list[Line]:
    lines = []
    for row in results["rows"]:
        ratio, target = median_ratio(row["ours"], row["limit"]), row["target"]
        figures = (f"{median(row['ours']):,.0f}", f"{median(row['limit']):,.0f}", f"{ratio:.2f}")
        wanted = f"≥ {target:.2f}" if target else ""
        lines.append(Line(row["title"], figures, wanted, ratio >= target if target else None))
    return lines


def growth_lines(results: Json) -> list[Line]:
    lines = []
    for row in results.get("growth", ()):
        sizes, key = row["sizes"], row["key"]
        growth = median_ratio(sizes[LARGER], sizes[SMALLER])
        figures = (*(f"{median(each):.2f}" for each in sizes.values()), f"{growth:.2f}")
        if key in MOST_GROWTH:
            wanted, met = f"growth ≤ {MOST_GROWTH[key]:.1f}", growth <= MOST_GROWTH[key]
        else:
            most = MOST_MILLISECONDS[key]
            wanted, met = f"< {most:.0f} ms", median(sizes[LARGER]) < most
        lines.append(Line(row["title"], figures, wanted, met))
    return lines


def size_lines(results: Json) -> list[Line]:
    """One line for each property of a catalog, one figure for each size."""
    sizes = results["sizes"]
    by_widgets = {size["widgets"]: size for size in sizes}
    slowest = max(size["slowest_first_answer_seconds"] for size in sizes)
    lines = [
        Line("versions", tuple(f"{size['versions']:,}" for size in sizes)),
        Line("database, MB", tuple(f"{size['database_bytes'] / 1e6:,.1f}" for size in sizes)),
        Line(
            "import, s",
            tuple(f"{size['import_seconds']:.1f}" for size in sizes),
            f"10,000: < {MOST_IMPORT_SECONDS:.0f}",
            _below(by_widgets, 10_000, "import_seconds", MOST_IMPORT_SECONDS),
        ),
        Line(
            "start to first answer, s (slowest)",
            tuple(
                f"{size['first_answer_seconds']:.2f} ({size['slowest_first_answer_seconds']:.2f})"
                for size in sizes
            ),
            f"≤ {MOST_SECONDS_TO_FIRST_ANSWER}",
            slowest <= MOST_SECONDS_TO_FIRST_ANSWER,
        ),
    ]
    if all(size["memory"] for size in sizes):
        memory = tuple(f"{size['memory'] / 1e6:.0f}" for size in sizes)
        met = _below(by_widgets, 100_000, "memory", MOST_MEMORY)
        lines.append(Line("memory after the run, MB", memory, "100,000: < 150", met))
    return lines


def _below(by_widgets: dict[int, Json], widgets: int, key: str, most: float) -> bool | None:
    return by_widgets[widgets][key] < most if widgets in by_widgets else None


def peer_lines(results: Json) -> list[Line]:
    ours = [median(row["ours"]) for row in results["rows"] if row["key"] == "cold"]
    lines = []
    for peer in results["peers"]:
        rate = median(peer["rate"])
        memory = f"{results['memory'].get(peer['name'], 0) / 1e6:.0f}"
        times, target = ours[0] / rate, peer["target"]
        figures = (f"{rate:,.1f}", f"{times:,.1f} times", memory)
        wanted = f"≥ {target:.0f} times" if target else ""
        lines.append(Line(peer["name"], figures, wanted, times >= target if target else None))
    return lines


def median_ratio(ours: list[float], other: list[float]) -> float:
    """The median of the rounds' own ratios: what disturbs a round disturbs both sides of it."""
    return median(a / b for a, b in zip(ours, other, strict=True))


def page(results: Json) -> str:
    """The results as Markdown."""
    widgets = [f"{size['widgets']:,}" for size in results["sizes"]]
    parts = [
        "# Results of the benchmark",
        _introduction(results),
        f"## Beside the limit, at {results['widgets']:,} widgets",
        "Requests a second. The limit is the same stack (Flask, flask-cors, waitress, as many "
        "threads) giving the same bytes as a constant; the ratio is the median of the rounds. A "
        f"cold row sends each query once, to a process that has answered {EARLIER_QUERIES:,} other "
        "searches before; “just started” to one that has not.",
        table(("", "ours", "the limit", "ratio", "target", "met"), row_lines(results)),
        "![Ratio of each row to the limit](results.svg)",
    ]
    if results.get("growth"):
        parts += [
            "## As the catalog grows",
            "Milliseconds for each request, one caller. Growth is from 10,000 to 100,000 widgets.",
            table(("", *widgets, "growth", "target", "met"), growth_lines(results)),
        ]
    parts += [
        "## Catalogs",
        table(("widgets", *widgets, "target", "met"), size_lines(results)),
    ]
    if results["peers"]:
        parts += [
            f"## Beside what else there is, at {results['widgets']:,} widgets",
            "The searches of the row “search, q, cold”, sent to each: the same widgets with their "
            "latest version, most installs first, set up as its own documentation says.",
            table(
                ("", "requests/s", "ours is", "memory, MB", "target", "met"), peer_lines(results)
            ),
        ]
    parts += results["skipped"]
    parts += ["## Versions", _listed(results["versions"])]
    if NOTES.exists():
        parts.append(NOTES.read_text(encoding="utf-8").strip())
    return "\n\n".join(parts) + "\n"


def _introduction(results: Json) -> str:
    machine = results["machine"]
    missed = missed_targets(results)
    verdict = f"Not met: {'; '.join(missed)}." if missed else "Every target is met."
    return (
        f"Written by `{results['command']}` on {results['date']} in {results['minutes']} minutes, "
        f"at commit {results['commit'] or 'unknown'}. The machine: {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB, {machine['system']}, "
        f"load average {machine['load at the start']} at the start. {results['rounds']} rounds, "
        f"{results['connections']} connections, load from {results['client']}. Absolute figures "
        f"are this machine's; the ratios are what holds elsewhere.\n\n{verdict}"
    )


def missed_targets(results: Json) -> list[str]:
    sections = (
        ("beside the limit", row_lines(results)),
        ("as the catalog grows", growth_lines(results)),
        ("of a catalog", size_lines(results)),
        ("beside what else there is", peer_lines(results)),
    )
    return [
        f"{where}: {', '.join(f'“{title}”' for title in titles)}"
        for where, lines in sections
        if (titles := [line.title for line in lines if line.met is False])
    ]


def _listed(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items()) + "."


def table(head: tuple[str, ...], lines: list[Line]) -> str:
    """A Markdown table, aligned so that it can be read as it is."""
    cells = [head, *(line.cells() for line in lines)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    rule = [f"{'-' * (width - 1)}{':' if at else '-'}" for at, width in enumerate(widths)]
    padded = [
        [cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in row]
        for row in (enumerate(zip(row, widths, strict=True)) for row in cells)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [padded[0], rule, *padded[1:]])


def summary(results: Json) -> str:
    """What is printed at the end: the table of rows, and what is not met."""
    head = ("", "ours", "the limit", "ratio", "target", "met")
    return f"{table(head, row_lines(results))}\n\n{_introduction(results)}"
