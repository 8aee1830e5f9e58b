"""The geometry of the chart of a widget's releases over time."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from ..text import shorten
from .formatting import MONTHS, format_count

MAX_BARS = 40
# The months that one bar may cover, and what such a time is called.
BAR_MONTHS = {1: "month", 3: "quarter", 12: "year", 120: "decade", 12_000: "millennium"}


class MonthReleases(NamedTuple):
    """The releases of a month such as 2026-08: all, the yanked ones, and the first names."""

    month: str
    releases: int
    yanked: int
    names: str


class Bar(NamedTuple):
    """The releases of some months: how many are available and yanked, and all in words."""

    available: int
    yanked: int
    label: str


class Chart(NamedTuple):
    """The releases of a widget over time, as bars from the oldest to the newest."""

    bars: Sequence[Bar]
    highest: int
    unit: str
    first: str
    last: str
    label: str


def releases_chart(months: Sequence[MonthReleases], today: date) -> Chart | None:
    """Return the chart of a widget's releases up to today; None if that is a single month."""
    numbers = [_month_number(each.month) for each in months]
    first, last = min(numbers), max(*numbers, today.year * 12 + today.month - 1)
    if first == last:
        return None
    unit = next(unit for unit in BAR_MONTHS if last // unit - first // unit < MAX_BARS)
    in_bars: dict[int, list[MonthReleases]] = {}
    for number, month in sorted(zip(numbers, months, strict=True), reverse=True):
        in_bars.setdefault(number // unit, []).append(month)
    starts = range(first // unit, last // unit + 1)
    bars = [_bar(start * unit, unit, in_bars.get(start, [])) for start in starts]
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


def _bar(start: int, unit: int, months: Sequence[MonthReleases]) -> Bar:
    span = _month_name(start) + (f" to {_month_name(start + unit - 1)}" if unit > 1 else "")
    releases, yanked = sum(each.releases for each in months), sum(each.yanked for each in months)
    names = shorten(", ".join(each.names for each in months), 120)
    label = f"{span}: {format_count(releases, 'release')}" + (f" ({names})" if names else "")
    return Bar(releases - yanked, yanked, label)


def _month_number(month: str) -> int:
    return int(month[:4]) * 12 + int(month[5:7]) - 1


def _month_name(number: int) -> str:
    return f"{MONTHS[number % 12]} {number // 12}"
