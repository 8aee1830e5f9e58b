"""Formats the results as one page of Markdown, with the targets that were met or missed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from bench import flood
from bench.catalogs import CURRENT, Catalog
from bench.comparison import BASELINE, SLICES, Comparison
from bench.growth import Growth
from bench.load import Sample
from bench.machine import find_doubts
from bench.workload import CONNECTIONS, EARLIER_QUERIES

# Targets that do not belong to a row in bench/workload.py. Growth up to 1.2 counts as noise.
MAX_GROWTH = {"cold": 4.0, "detail": 1.2, "post": 1.2, "registry": 1.2}
MAX_MILLISECONDS = {"everywhere": 250.0}
MAX_FLOODED_MILLISECONDS = 50.0
MAX_MEMORY = 150e6
MAX_START_SECONDS = 1.5
MAX_IMPORT_SECONDS = 10.0
USUAL, LARGE = 10_000, 100_000


@dataclass
class Results:
    """The measurements of one run."""

    command: str
    date: str
    commit: str
    load_average: float
    machine: str
    comparison: Comparison
    catalogs: list[Catalog]
    minutes: float = 0
    flooded: list[float] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)


@dataclass(frozen=True)
class Line:
    """A table line: its figures and, optionally, a target."""

    title: str
    figures: tuple[str, ...]
    target: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = {True: "yes", False: "**no**", None: ""}[self.met]
        return (self.title, *self.figures, self.target, verdict)


def cpu(samples: Sequence[Sample]) -> float:
    return median(sample.cpu for sample in samples)


def rate(samples: Sequence[Sample]) -> float:
    return median(sample.rate for sample in samples)


def rate_ratio(samples: Sequence[Sample], others: Sequence[Sample]) -> float:
    """Return the median of the rate ratios in each turn: a disturbance affects both rates alike."""
    return median(each.rate / other.rate for each, other in zip(samples, others, strict=True))


def cpu_ratio(samples: Sequence[Sample], others: Sequence[Sample]) -> float:
    """Return the median of the CPU time ratios in each turn; above 1, the others are slower."""
    return median(other.cpu / each.cpu for each, other in zip(samples, others, strict=True))


def row_lines(comparison: Comparison, other: str = BASELINE) -> list[Line]:
    """Return a line for each row, compared with the baseline or another commit."""
    lines = []
    for row in comparison.rows:
        current, others = (comparison.samples[row.key][name] for name in (CURRENT.name, other))
        ratio, goal, met, limit = rate_ratio(current, others), "", None, row.max_milliseconds
        if row.target and other == BASELINE:
            goal, met = f"≥ {row.target:.2f}", ratio >= row.target
        elif row.min_rate and other == BASELINE:
            goal, met = f"≥ {row.min_rate}/s", rate(current) >= row.min_rate
        elif limit and other == BASELINE:
            goal, met = f"< {limit} ms CPU", cpu(current) < limit * 1e3
        elif row.max_cpu_ratio and row.compared_with in comparison.samples:
            base = comparison.samples[row.compared_with][CURRENT.name]
            growth = cpu(current) / cpu(base)
            goal = f"≤ {row.max_cpu_ratio:.1f} × CPU of {row.compared_with} ({growth:.2f})"
            met = growth <= row.max_cpu_ratio
        figures = (f"{ratio:.2f}", f"{cpu_ratio(current, others):.2f}")
        lines.append(Line(row.title, (*_cpu_and_rate(current), *figures), goal, met))
    return lines


def constant_lines(comparison: Comparison) -> list[Line]:
    """Return a line for each size of the constant response."""
    baselines: dict[int, list[Sample]] = {}
    for row in comparison.rows:
        samples = comparison.samples[row.key][BASELINE]
        baselines.setdefault(row.baseline_bytes, []).extend(samples)
    return [
        Line(f"constant response, {size / 1e3:.0f} kB", (*_cpu_and_rate(samples), "", ""))
        for size, samples in baselines.items()
    ]


def _cpu_and_rate(samples: Sequence[Sample]) -> tuple[str, str]:
    return f"{cpu(samples):,.0f}", f"{rate(samples):,.0f}"


def flood_lines(seconds: Sequence[float]) -> list[Line]:
    if not seconds:
        return []
    milliseconds = [each * 1e3 for each in seconds]
    p99 = quantiles(milliseconds, n=100, method="inclusive")[-1]
    figures = tuple(f"{each:.1f}" for each in (median(milliseconds), p99, max(milliseconds)))
    title = f"hot search while {flood.CONNECTIONS} connections send distinct slow requests"
    goal = f"p99 ≤ {MAX_FLOODED_MILLISECONDS:.0f} ms"
    return [Line(title, figures, goal, p99 <= MAX_FLOODED_MILLISECONDS)]


def growth_lines(table: Sequence[Growth]) -> list[Line]:
    lines = []
    for row, sizes in table:
        growth = rate_ratio(sizes[USUAL], sizes[LARGE])
        figures = tuple(
            f"{1e3 / rate(samples):.2f} ({cpu(samples) / 1e3:.2f})" for samples in sizes.values()
        )
        if row.key in MAX_GROWTH:
            goal, met = f"growth ≤ {MAX_GROWTH[row.key]:.1f}", growth <= MAX_GROWTH[row.key]
        else:
            maximum = MAX_MILLISECONDS[row.key]
            goal, met = f"< {maximum:.0f} ms", 1e3 / rate(sizes[LARGE]) < maximum
        lines.append(Line(row.title, (*figures, f"{growth:.2f}"), goal, met))
    return lines


def catalog_lines(catalogs: Sequence[Catalog]) -> list[Line]:
    """Return one line for each property, with one figure for each catalog."""
    by_size = {each.widgets: each for each in catalogs if each.checkout == CURRENT}

    def figures(text: Callable[[Catalog], str]) -> tuple[str, ...]:
        return tuple(map(text, catalogs))

    usual, large = by_size.get(USUAL), by_size.get(LARGE)
    return [
        Line("versions", figures(lambda each: f"{each.versions:,}")),
        Line("database, MB", figures(lambda each: f"{each.database.stat().st_size / 1e6:,.1f}")),
        Line(
            "import, s",
            figures(lambda each: f"{each.import_seconds:.1f}"),
            f"{USUAL:,}: < {MAX_IMPORT_SECONDS:.0f}",
            None if usual is None else usual.import_seconds < MAX_IMPORT_SECONDS,
        ),
        Line(
            "start to first response, s (slowest)",
            figures(lambda e: f"{median(e.start_seconds):.2f} ({max(e.start_seconds):.2f})"),
            f"≤ {MAX_START_SECONDS}",
            max(max(each.start_seconds) for each in by_size.values()) <= MAX_START_SECONDS,
        ),
        Line(
            "memory after the run, MB",
            figures(lambda each: f"{each.memory / 1e6:.0f}"),
            f"{LARGE:,}: < {MAX_MEMORY / 1e6:.0f}",
            None if large is None else large.memory < MAX_MEMORY,
        ),
    ]


def page(results: Results) -> str:
    """Return the results as Markdown."""
    comparison, catalogs = results.comparison, results.catalogs
    columns = ("CPU µs", "requests/s", "ratio", "CPU ratio")
    parts = ["# Results of the benchmark", _introduction(results)]
    parts += [
        f"## Compared with a constant response, at {comparison.catalogs[0].widgets:,} widgets",
        "The server's CPU time per request, and requests per second. The baseline is a constant "
        "response from the same Flask app on the same I/O thread: 20 kB, like a page of search "
        "results, or 800 kB, like the registry. The ratio is the row's rate divided by the "
        "baseline's rate. The CPU ratio is the baseline's CPU time divided by the row's. Above 1, "
        "the row is faster. A cold row sends each query once, to a new process that has served "
        f"{EARLIER_QUERIES:,} other searches. The servers take turns, {SLICES} in each round, and "
        "figures are medians over all turns.",
        _table(columns, [*constant_lines(comparison), *row_lines(comparison)]),
    ]
    for other in (each.checkout.name for each in catalogs if each.checkout != CURRENT):
        text = f"The same rows, with {other} as the baseline. Above 1, this version is faster."
        parts += [f"## Compared with {other}", text, _table(columns, row_lines(comparison, other))]
    if results.flooded:
        parts += [
            "## Under a flood",
            f"Latency of {len(results.flooded)} searches by another client, in milliseconds.",
            _table(("median", "p99", "worst"), flood_lines(results.flooded)),
        ]
    sizes = [
        f"{each.widgets:,}" + ("" if each.checkout == CURRENT else f", {each.checkout.name}")
        for each in catalogs
    ]
    if results.growth:
        parts += [
            "## Growth of the catalog",
            "Milliseconds per request with one connection, for each number of widgets; the CPU "
            f"time is in parentheses. Growth is from {USUAL:,} to {LARGE:,} widgets.",
            _table((*sizes, "growth"), growth_lines(results.growth)),
        ]
    else:
        parts.append("Growth was not measured: only a full run measures it, if it has enough time.")
    parts += ["## Catalogs", _table(tuple(sizes), catalog_lines(catalogs), "widgets")]
    return "\n\n".join(parts) + "\n"


def _introduction(results: Results) -> str:
    missed = missed_targets(results)
    names = "; ".join(f"“{title}”" for title in missed)
    verdict = f"Not met: {names}." if missed else "Every target is met."
    facts = (
        f"Written by `{results.command}` on {results.date} in {results.minutes:.1f} minutes, at "
        f"commit {results.commit}, load average {results.load_average:.2f} at the start. The "
        f"machine: {results.machine}. {results.comparison.rounds} rounds, {CONNECTIONS} "
        "connections. Absolute figures depend on the machine; ratios are comparable between "
        "machines."
    )
    return "\n\n".join([*find_doubts(results.commit, results.load_average), facts, verdict])


def missed_targets(results: Results) -> list[str]:
    lines = (
        *row_lines(results.comparison),
        *flood_lines(results.flooded),
        *growth_lines(results.growth),
        *catalog_lines(results.catalogs),
    )
    return list(dict.fromkeys(line.title for line in lines if line.met is False))


def _table(head: tuple[str, ...], lines: Sequence[Line], corner: str = "") -> str:
    """Return a Markdown table with aligned columns."""
    rows = [(corner, *head, "target", "met"), *(line.cells() for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = [f"{'-' * (width - 1)}{':' if at else '-'}" for at, width in enumerate(widths)]
    padded = [
        [cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in row]
        for row in (enumerate(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [padded[0], rule, *padded[1:]])
