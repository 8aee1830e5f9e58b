"""npm ranges as intervals of keys that sort as versions do, so that SQLite can compare with them.

A range is parsed when it is written. A search only compares text, however many ranges there are and
whatever is in them. The intervals are stored: a change of what they are for some range needs a new
schema version, whose migration stores them anew.

In one case the result is not that of satisfies(): node ignores the rest of two prereleases from
numbers on that have different digits and are the same double, as 2^53 and 2^53 + 1 are.
"""

from collections.abc import Iterable

from catalog.semver_ranges import Comparator, alternatives, precedence_key

# From the first key up to the second, which is not part of it.
Interval = tuple[str, str]

# Before and after every key that precedence_key() gives.
FIRST, LAST = "", "~"
# A range that admits a release need not admit the prereleases beside it: they have keys apart.
RELEASE, PRERELEASE = "r", "p"


def sdk_key(version: str) -> str:
    """The key of a valid version, to be looked for in the intervals of a range."""
    core, _, prerelease = version.partition("+")[0].partition("-")
    identifiers = prerelease.split(".") if prerelease else []
    kind = PRERELEASE if prerelease else RELEASE
    return kind + _key(map(int, core.split(".")), identifiers)


def sdk_intervals(range_: str) -> list[Interval]:
    """What the range admits: disjoint intervals in their order, none if the range is invalid."""
    found: list[Interval] = []
    for comparators in alternatives(range_) or ():
        bounds = [_bounds(comparator) for comparator in comparators]
        low = max((low for low, _ in bounds), default=FIRST)
        high = min((high for _, high in bounds), default=LAST)
        found.append((RELEASE + low, RELEASE + high))
        # A prerelease is admitted only beside one with the same three numbers in the comparators.
        for core in {core for _, (core, identifiers) in comparators if identifiers}:
            first, release = _key(core, ["0"]), _key(core, [])
            found.append((PRERELEASE + max(low, first), PRERELEASE + min(high, release)))
    return _merged(found)


def _bounds(comparator: Comparator) -> Interval:
    signs, (core, identifiers) = comparator
    key = _key(core, identifiers)
    # No key has a space: this is right after the key and before every longer one.
    after = f"{key} "
    low = FIRST if -1 in signs else key if 0 in signs else after
    high = LAST if 1 in signs else after if 0 in signs else key
    return low, high


def _key(core: Iterable[int], identifiers: Iterable[str]) -> str:
    # node reads numbers as doubles, so that different digits can be the same number.
    doubles = [str(int(float(text))) if text.isdigit() else text for text in identifiers]
    return precedence_key(core, doubles)


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        elif low < high:
            merged.append((low, high))
    return merged
