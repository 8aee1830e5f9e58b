"""The geometry of drawings: the releases of a widget over time, and the sizes it supports."""

from collections.abc import Sequence
from typing import NamedTuple

from ..documents import Json
from ..text import shorten
from .formatting import MONTHS, format_count

MAX_BARS = 40
# The months that one bar of a chart may cover, and what such a time is called.
BAR_MONTHS = {
    1: "month",
    3: "quarter",
    12: "year",
    60: "5 years",
    120: "decade",
    600: "50 years",
    1200: "century",
    12_000: "millennium",
}
# Labels of major versions for which a narrow screen has room.
MAX_LABELS = 10
# A size is drawn up to this many cells in each direction.
MAX_CELLS = 24


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


class MonthReleases(NamedTuple):
    """The releases of a month such as 2026-08: all, the yanked ones, and the first names."""

    month: str
    releases: int
    yanked: int
    names: str


class Bar(NamedTuple):
    """The releases of some months: how many are available and yanked, and their names.

    majors are the major versions that begin here; major_label is empty if there is no room.
    """

    span: str
    available: int
    yanked: int
    names: str
    majors: str
    major_label: str

    @property
    def label(self) -> str:
        """The bar in words."""
        count = format_count(self.available + self.yanked, "release")
        return f"{self.span}: {count}" + (f" ({self.names})" if self.names else "")


class Chart(NamedTuple):
    """The releases of a widget over time, as bars from the oldest to the newest."""

    bars: Sequence[Bar]
    highest: int
    unit: str
    first: str
    last: str
    label: str


def releases_chart(
    months: Sequence[MonthReleases], majors: Sequence[tuple[str, int]] = ()
) -> Chart | None:
    """Return the chart of a widget's releases; None if all are from one month.

    majors has the month in which each major version was first released.
    """
    numbers = [_month_number(each.month) for each in months]
    if not months or min(numbers) == max(numbers):
        return None
    first, last = min(numbers), max(numbers)
    unit = next(unit for unit in BAR_MONTHS if last // unit - first // unit < MAX_BARS)
    in_bars: dict[int, list[MonthReleases]] = {}
    for number, month in sorted(zip(numbers, months, strict=True), reverse=True):
        in_bars.setdefault(number // unit, []).append(month)
    majors_in_bars: dict[int, list[int]] = {}
    for text, major in majors:
        majors_in_bars.setdefault(_month_number(text) // unit, []).append(major)

    bars: list[Bar] = []
    starts = range(first // unit, last // unit + 1)
    free_from = starts[0]
    for start in starts:
        begun = sorted(majors_in_bars.get(start, ()))
        has_label = bool(begun) and start >= free_from
        if has_label:
            free_from = start + -(-len(starts) // MAX_LABELS)
        bars.append(_bar(start * unit, unit, in_bars.get(start, []), begun, has_label))
    releases = format_count(sum(each.releases for each in months), "release")
    ends = _month_name(first), _month_name(last)
    return Chart(
        bars,
        highest=max(bar.available + bar.yanked for bar in bars),
        unit=BAR_MONTHS[unit],
        first=ends[0],
        last=ends[1],
        label=f"{releases} from {ends[0]} to {ends[1]}",
    )


def _bar(
    start: int, unit: int, months: Sequence[MonthReleases], majors: Sequence[int], has_label: bool
) -> Bar:
    end = _month_name(start + unit - 1)
    yanked = sum(each.yanked for each in months)
    return Bar(
        span=_month_name(start) + (f" to {end}" if unit > 1 else ""),
        available=sum(each.releases for each in months) - yanked,
        yanked=yanked,
        names=shorten(", ".join(each.names for each in months), 120),
        majors=shorten(", ".join(map(str, majors)), 60),
        major_label=shorten(str(majors[-1]), 4) if has_label else "",
    )


def _month_number(month: str) -> int:
    return int(month[:4]) * 12 + int(month[5:7]) - 1


def _month_name(number: int) -> str:
    return f"{MONTHS[number % 12]} {number // 12}"
