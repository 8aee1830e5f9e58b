"""What the catalog holds as people read it: numbers, days, commands, and the shapes of drawings."""

import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from catalog.documents import Json

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MAX_BARS = 40
BAR_MONTHS = (1, 3, 12, 60, 120, 600, 1200)  # how much time a bar may stand for
MAX_CELLS = 24  # of a drawn size, each way


def number(value: int) -> str:
    """A number with its thousands apart, such as 301,482."""
    return f"{value:,}"


def short_number(value: int) -> str:
    """About how many, in at most four characters and a unit, such as 301k."""
    for unit, size in (("", 1), ("k", 10**3), ("M", 10**6), ("bn", 10**9)):
        scaled = value / size
        if scaled < 999.5 or unit == "bn":
            digits = 1 if unit and scaled < 9.95 else 0
            return f"{scaled:,.{digits}f}".removesuffix(".0") + unit
    raise AssertionError("the last unit takes every number")


def bytes_size(value: int) -> str:
    """A number of bytes, such as 20.3 kB."""
    for unit, size in (("kB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if size <= value < size * 1000 or (unit == "GB" and value >= size):
            return f"{value / size:,.1f}".removesuffix(".0") + f" {unit}"
    return "1 byte" if value == 1 else f"{value} bytes"


def day(timestamp: str) -> str:
    """The day of a timestamp in UTC, such as 4 Aug 2026."""
    year, month, date = timestamp[:10].split("-")
    return f"{int(date)} {MONTHS[int(month) - 1]} {year}"


def shortened(text: str, length: int) -> str:
    """The text, cut at a word where it is longer."""
    if len(text) <= length:
        return text
    cut = text[:length]
    words = cut.rsplit(None, 1) if " " in cut[length // 2 :] else []
    return (words[0] if words else cut) + "…"


def is_prerelease(version: str) -> bool:
    """Whether a version is one that comes before its release."""
    return "-" in version.partition("+")[0]


def integrity(sha256_hash: str) -> str:
    """A hash in the form that a script element takes as its integrity."""
    return "sha256-" + b64encode(bytes.fromhex(sha256_hash)).decode()


def fetch_command(entry: Json) -> str:
    """The line for a shell that fetches the bundle of a version into a file."""
    return f"curl -fgL -o {_file_name(entry)} {shlex.quote(entry['bundleUrl'])}"


def check_command(entry: Json) -> str:
    """The line for a shell that holds that file against the hash of the version."""
    return f"echo '{entry['sha256Hash']}  {_file_name(entry)}' | sha256sum -c"


def _file_name(entry: Json) -> str:
    # Only what no shell, file system or list of checksums reads in a way of its own.
    stem = f"{entry['name'][:80]}-{entry['version'][:80]}"
    return re.sub(r"[^A-Za-z0-9._+-]+|^[.-]", "_", stem) + ".js"


def page_numbers(page: int, last: int) -> list[int | None]:
    """The pages to offer: the first, the last, those beside this one; None for a gap."""
    near = sorted({1, last, *range(max(page - 1, 1), min(page + 1, last) + 1)})
    numbers: list[int | None] = []
    for before, after in zip([0, *near], near, strict=False):
        if after - before == 2:
            numbers.append(after - 1)  # a gap would take the same room
        elif after - before > 2:
            numbers.append(None)
        numbers.append(after)
    return numbers


class SizeDrawing(NamedTuple):
    """The least and the greatest size of a widget in cells, as far as they can be drawn."""

    min_w: int
    min_h: int
    max_w: int
    max_h: int
    is_cut: bool


def size_drawing(entry: Json) -> SizeDrawing:
    """How to draw the sizes that a version may have."""
    least, greatest = entry["minSize"], entry["maxSize"]
    return SizeDrawing(
        min_w=min(least["w"], MAX_CELLS),
        min_h=min(least["h"], MAX_CELLS),
        max_w=min(greatest["w"], MAX_CELLS),
        max_h=min(greatest["h"], MAX_CELLS),
        is_cut=max(greatest["w"], greatest["h"]) > MAX_CELLS,
    )


class Bar(NamedTuple):
    """The releases of some months: how many are offered and yanked, and what to say of them."""

    offered: int
    yanked: int
    label: str


class Chart(NamedTuple):
    """The releases of a widget over time, as bars from the oldest to the newest."""

    bars: Sequence[Bar]
    highest: int
    label: str


def releases_chart(versions: Sequence[Json]) -> Chart | None:
    """A chart of the versions of a widget; None where there is no time to show."""
    if not versions:
        return None
    months = [_month(version["publishedAt"]) for version in versions]
    first, last = min(months), max(months)
    if first == last:
        return None
    unit = next((unit for unit in BAR_MONTHS if last // unit - first // unit < MAX_BARS), 12_000)
    bars = []
    for start in range(first // unit, last // unit + 1):
        within = [
            version
            for month, version in zip(months, versions, strict=True)
            if month // unit == start
        ]
        yanked = sum(version["yanked"] for version in within)
        bars.append(Bar(len(within) - yanked, yanked, _bar_label(start * unit, unit, within)))
    dates = [version["publishedAt"] for version in versions]
    label = f"{counted(len(versions), 'release')} from {day(min(dates))} to {day(max(dates))}"
    return Chart(bars, max(bar.offered + bar.yanked for bar in bars), label)


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as 1 release or 60 releases."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def _month(timestamp: str) -> int:
    return int(timestamp[:4]) * 12 + int(timestamp[5:7]) - 1


def _bar_label(start: int, unit: int, within: Iterable[Json]) -> str:
    end = start + unit - 1
    span = f"{MONTHS[start % 12]} {start // 12}"
    if unit > 1:
        span += f" to {MONTHS[end % 12]} {end // 12}"
    names = [version["version"] for version in within]
    return f"{span}: {counted(len(names), 'release')}" + (
        f" ({shortened(', '.join(names), 120)})" if names else ""
    )
