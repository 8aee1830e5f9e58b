"""Warns publishers about the order of versions and about names that look alike."""

import sqlite3
from collections.abc import Iterator, Sequence
from operator import itemgetter

from ...domain.changes import WidgetName
from ...domain.documents import Row
from ...domain.folding import is_mistakable, without_separators
from ...domain.messages import quoted
from ...domain.sdk_intervals import sdk_intervals
from ..read.lookup import Read, find_widget


def find_order_warnings(
    target: WidgetName, version: Row, available: Sequence[sqlite3.Row]
) -> Iterator[str]:
    """Return warnings for people who expect the highest version to be the latest.

    `available` contains the versions that are not yanked, newest first.
    """
    if not available:
        return
    latest = available[0]
    if latest["published_at"] > version["published_at"]:
        yield (
            f"{target.widget}@{latest['version']} has a publishedAt in the future, "
            f"{latest['published_at']}, and stays the latest version until then"
        )
        return
    highest = max(available, key=itemgetter("precedence"))
    if highest["precedence"] <= version["precedence"]:
        return
    yield (
        f"{highest['version']} is higher, but dashboards now get {target.version}, because the "
        "latest version is the one published last"
    )
    if highest is latest and _admits_more(highest["sdk_version"], version["sdk_version"]):
        yield (
            f"dashboards whose compatSdk is in {highest['sdk_version']} still get "
            f"{highest['version']}"
        )


def _admits_more(range_: str, other: str) -> bool:
    """Return whether some SDK satisfies the range but not the other one."""
    intervals = sdk_intervals(other)
    return any(
        not any(begin <= low and high <= end for begin, end in intervals)
        for low, high in sdk_intervals(range_)
    )


# Folding can change the length of names that contain non-ASCII characters.
SIMILAR_NAMES = """
SELECT scope, name FROM listing
WHERE scope <> :scope AND (
    length(CAST(name AS BLOB)) > length(name)
    OR length(replace(replace(replace(replace(name, '-', ''), '_', ''), '.', ''), ' ', ''))
        BETWEEN :length - 1 AND :length + 1)
ORDER BY scope, name
"""


def find_mistakable_names(read: Read, new: WidgetName) -> list[str]:
    """Return a warning if a new widget's name resembles names in other scopes."""
    if find_widget(read, new.scope, new.name):
        return []
    rows = read(SIMILAR_NAMES, {"scope": new.scope, "length": len(without_separators(new.name))})
    names = [WidgetName(*row) for row in rows if is_mistakable(row["name"], new.name)]
    shown = ", ".join(map(str, names[:3]))
    return [f"name {quoted(new.name)} can be mistaken for {shown}"] if names else []
