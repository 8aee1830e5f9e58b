"""A table that shows which SDKs each version of a widget runs on."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from ..domain.documents import Json
from ..domain.sdk_intervals import LAST, RELEASE, Interval, sdk_intervals, sdk_key
from ..domain.semver_ranges import parse_alternatives

# A phone shows this many columns and rows without scrolling.
MAX_COLUMNS = 7
MAX_ROWS = 8
# Longer ranges are skipped: they take milliseconds to parse, and list single SDKs.
MAX_RANGE_LENGTH = 200  # characters
# The column for all SDKs before the first one that a range names.
FIRST_SDK = (0, 0, 0)


class Row(NamedTuple):
    """Consecutive versions that run on the same SDKs, with a mark for each SDK in the table."""

    newest: str
    oldest: str
    marks: tuple[bool, ...]


class Support(NamedTuple):
    """A table with a column for each SDK where support for some version begins or ends."""

    sdks: list[str]
    rows: list[Row]


def support_table(versions: Sequence[Json]) -> Support:
    """Return which SDKs these versions run on; skip yanked versions and unreadable ranges."""
    offered = [entry for entry in versions if not entry["yanked"]]
    ranges = {entry["sdkVersion"]: _parse(entry["sdkVersion"]) for entry in offered}
    cores = sorted({FIRST_SDK, *(core for cores, _ in ranges.values() for core in cores)})
    keys = [*(sdk_key(_number(core)) for core in cores), RELEASE + LAST]
    rows: list[Row] = []
    # Consecutive versions often share a range, so their marks are computed together.
    for range_, entries in groupby(offered, key=itemgetter("sdkVersion")):
        numbers = [entry["version"] for entry in entries]
        _, intervals = ranges[range_]
        marks = tuple(_overlaps(intervals, low, high) for low, high in pairwise(keys))
        if rows and rows[-1].marks == marks:
            rows[-1] = rows[-1]._replace(oldest=numbers[-1])
        elif any(marks):
            if len(rows) == MAX_ROWS:
                break
            rows.append(Row(numbers[0], numbers[-1], marks))
    # Remove empty columns at the beginning and at the end: no version runs on those SDKs.
    used = [index for index in range(len(cores)) if any(row.marks[index] for row in rows)]
    if not used:
        return Support([], [])
    shown = slice(max(used[0], used[-1] + 1 - MAX_COLUMNS), used[-1] + 1)
    labels = [_number(core).removesuffix(".0") for core in cores[shown]]
    return Support(labels, [row._replace(marks=row.marks[shown]) for row in rows])


@lru_cache(maxsize=512)
def _parse(range_: str) -> tuple[tuple[tuple[int, ...], ...], tuple[Interval, ...]]:
    """Return the SDKs that a range names, and the intervals of SDKs that satisfy it."""
    if len(range_) > MAX_RANGE_LENGTH:
        return (), ()
    comparators = [each for group in parse_alternatives(range_) or () for each in group]
    return tuple(tuple(core) for _, (core, _) in comparators), tuple(sdk_intervals(range_))


def _overlaps(intervals: Sequence[Interval], low: str, high: str) -> bool:
    return any(first < high and low < last for first, last in intervals)


def _number(core: Sequence[int]) -> str:
    return ".".join(map(str, core))
