"""npm ranges as intervals of keys that sort like versions, so that SQLite can compare them.

A range is parsed once, when it is written, and its intervals are stored, so a search only compares
keys. A change to this code that alters the intervals of any range needs a new schema version, whose
migration stores the intervals again.

The result differs from satisfies() in one case. If two prerelease numbers have different digits but
are the same double, such as 2^53 and 2^53 + 1, satisfies() ignores the identifiers after them.
"""

from collections.abc import Iterable

from .semver_ranges import Comparator, parse_alternatives, precedence_key

# The first key is inclusive, the second is exclusive.
Interval = tuple[str, str]

# Keys that sort before and after every key that precedence_key() returns.
FIRST, LAST = "", "~"
# A range may match a release but not its prereleases, so their keys have different prefixes.
RELEASE, PRERELEASE = "r", "p"


def sdk_key(version: str) -> str:
    """Return the key of a valid version, for comparison with the intervals of a range."""
    core, _, prerelease = version.partition("+")[0].partition("-")
    identifiers = prerelease.split(".") if prerelease else []
    kind = PRERELEASE if prerelease else RELEASE
    return kind + _key(map(int, core.split(".")), identifiers)


def sdk_intervals(range_: str) -> list[Interval]:
    """Return the sorted, disjoint intervals that match the range; [] if the range is invalid."""
    intervals: list[Interval] = []
    for comparators in parse_alternatives(range_) or ():
        bounds = [_bounds(comparator) for comparator in comparators]
        low = max((low for low, _ in bounds), default=FIRST)
        high = min((high for _, high in bounds), default=LAST)
        intervals.append((RELEASE + low, RELEASE + high))
        # A prerelease matches only if a comparator has a prerelease with the same three numbers.
        for core in {core for _, (core, identifiers) in comparators if identifiers}:
            first, release = _key(core, ["0"]), _key(core, [])
            intervals.append((PRERELEASE + max(low, first), PRERELEASE + min(high, release)))
    return _merge(intervals)


def _bounds(comparator: Comparator) -> Interval:
    signs, (core, identifiers) = comparator
    key = _key(core, identifiers)
    # No key contains a space, so the result sorts right after the key and before every longer key.
    after = f"{key} "
    low = FIRST if -1 in signs else key if 0 in signs else after
    high = LAST if 1 in signs else after if 0 in signs else key
    return low, high


def _key(core: Iterable[int], identifiers: Iterable[str]) -> str:
    # node parses numbers as doubles, so different digits can form the same number.
    doubles = [str(int(float(text))) if text.isdigit() else text for text in identifiers]
    return precedence_key(core, doubles)


def _merge(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        elif low < high:
            merged.append((low, high))
    return merged
