"""Formatting for the pages: numbers, dates, shell commands, and the geometry of drawings."""

import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from catalog.documents import Json
from catalog.text import shorten

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MAX_BARS = 40
# The months that one bar of a chart may cover.
BAR_MONTHS = (1, 3, 12, 60, 120, 600, 1200)
# A size is drawn up to this many cells in each direction.
MAX_CELLS = 24


def format_number(value: int) -> str:
    """Return a number with thousands separators, such as 301,482."""
    return f"{value:,}"


def format_short_number(value: int) -> str:
    """Return a rounded number with a unit, such as 301k."""
    for unit, size in (("", 1), ("k", 10**3), ("M", 10**6), ("bn", 10**9)):
        scaled = value / size
        if scaled < 999.5 or unit == "bn":
            digits = 1 if unit and scaled < 9.95 else 0
            return f"{scaled:,.{digits}f}".removesuffix(".0") + unit
    raise AssertionError("the last unit has no upper bound")


def format_bytes(value: int) -> str:
    """Return a number of bytes with a unit, such as 20.3 kB."""
    for unit, size in (("kB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if size <= value < size * 1000 or (unit == "GB" and value >= size):
            return f"{value / size:,.1f}".removesuffix(".0") + f" {unit}"
    return "1 byte" if value == 1 else f"{value} bytes"


def format_day(timestamp: str) -> str:
    """Return the date of a UTC timestamp, such as 4 Aug 2026."""
    year, month, day = timestamp[:10].split("-")
    return f"{int(day)} {MONTHS[int(month) - 1]} {year}"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, such as 1 release or 1,060 releases."""
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'}"


def is_prerelease(version: str) -> bool:
    """Return whether a semver version is a prerelease."""
    return "-" in version.partition("+")[0]


def sri_hash(sha256_hash: str) -> str:
    """Return a hexadecimal SHA-256 as the integrity attribute of a script element has it."""
    return "sha256-" + b64encode(bytes.fromhex(sha256_hash)).decode()


def fetch_command(entry: Json) -> str:
    """Return the shell command that downloads the bundle of a version."""
    return f"curl -fgL -o {_file_name(entry)} {shlex.quote(entry['bundleUrl'])}"


def check_command(entry: Json) -> str:
    """Return the shell command that compares that file with the hash of the version."""
    return f"echo '{entry['sha256Hash']}  {_file_name(entry)}' | sha256sum -c"


def _file_name(entry: Json) -> str:
    # Only characters that are not special to a shell, a file system or sha256sum.
    stem = f"{entry['name'][:80]}-{entry['version'][:80]}"
    return re.sub(r"[^A-Za-z0-9._+-]+|^[.-]", "_", stem) + ".js"


def page_numbers(page: int, last: int) -> list[int | None]:
    """Return the pages of the pager: first, last, current and its neighbours; None for a gap."""
    near = sorted({1, last, *range(max(page - 1, 1), min(page + 1, last) + 1)})
    numbers: list[int | None] = []
    for before, after in zip([0, *near], near, strict=False):
        if after - before == 2:
            # A gap would take as much space as the page it hides.
            numbers.append(after - 1)
        elif after - before > 2:
            numbers.append(None)
        numbers.append(after)
    return numbers


class SizeDrawing(NamedTuple):
    """The minimum and maximum size of a widget in cells, each at most MAX_CELLS."""

    min_w: int
    min_h: int
    max_w: int
    max_h: int
    is_clipped: bool


def size_drawing(entry: Json) -> SizeDrawing:
    """Return the drawing of the sizes that a version supports."""
    minimum, maximum = entry["minSize"], entry["maxSize"]
    return SizeDrawing(
        min_w=min(minimum["w"], MAX_CELLS),
        min_h=min(minimum["h"], MAX_CELLS),
        max_w=min(maximum["w"], MAX_CELLS),
        max_h=min(maximum["h"], MAX_CELLS),
        is_clipped=max(maximum["w"], maximum["h"]) > MAX_CELLS,
    )


class Bar(NamedTuple):
    """The releases of some months: how many are available and yanked, and a label."""

    available: int
    yanked: int
    label: str


class Chart(NamedTuple):
    """The releases of a widget over time, as bars from the oldest to the newest."""

    bars: Sequence[Bar]
    highest: int
    label: str


def releases_chart(versions: Sequence[Json]) -> Chart | None:
    """Return a chart of the versions of a widget; None if all are from one month."""
    if not versions:
        return None
    months = [_month(version["publishedAt"]) for version in versions]
    first, last = min(months), max(months)
    if first == last:
        return None
    unit = next((unit for unit in BAR_MONTHS if last // unit - first // unit < MAX_BARS), 12_000)
    bars = []
    for start in range(first // unit, last // unit + 1):
        releases = [
            version
            for month, version in zip(months, versions, strict=True)
            if month // unit == start
        ]
        yanked = sum(version["yanked"] for version in releases)
        bars.append(Bar(len(releases) - yanked, yanked, _bar_label(start * unit, unit, releases)))
    dates = [version["publishedAt"] for version in versions]
    count = format_count(len(versions), "release")
    label = f"{count} from {format_day(min(dates))} to {format_day(max(dates))}"
    return Chart(bars, max(bar.available + bar.yanked for bar in bars), label)


def _month(timestamp: str) -> int:
    return int(timestamp[:4]) * 12 + int(timestamp[5:7]) - 1


def _bar_label(start: int, unit: int, releases: Iterable[Json]) -> str:
    end = start + unit - 1
    span = f"{MONTHS[start % 12]} {start // 12}"
    if unit > 1:
        span += f" to {MONTHS[end % 12]} {end // 12}"
    names = [version["version"] for version in releases]
    return f"{span}: {format_count(len(names), 'release')}" + (
        f" ({shorten(', '.join(names), 120)})" if names else ""
    )
