"""Looks up widgets and versions by name, for every operation that changes them."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from ...domain.changes import (
    ChangeError,
    ConflictError,
    MissingError,
    MissingWidgetError,
    WidgetName,
    check_version_or_range,
)
from ...domain.semver_ranges import is_version, satisfies
from ..connection.transaction import Values
from . import json_sql
from .candidates import NEWEST_FIRST

# The maximum number of versions and ranges in one change.
MAX_TARGETS = 100
# Each range is compared with all versions of a widget; one comparison takes up to 70 microseconds.
MAX_COMPARISONS = 50_000

# A row or an object with the key "version".
T = TypeVar("T", bound=Any)
# Transaction.read() or Database.fetch().
Read = Callable[[str, Values], list[sqlite3.Row]]


FIND_WIDGET = f"""
SELECT *, {json_sql.WIDGET} AS json,
    (SELECT source FROM mirrored WHERE widget_id = widget.id) AS source
FROM widget WHERE scope = :scope AND name = :name
"""


def find_widget(read: Read, scope: str, name: str) -> sqlite3.Row | None:
    """Return a widget's row with its JSON and, for a copy, its upstream; None if it is missing."""
    return next(iter(read(FIND_WIDGET, {"scope": scope, "name": name})), None)


def get_widget(read: Read, target: WidgetName) -> sqlite3.Row:
    """Return the widget's row; raise MissingWidgetError if there is none."""
    row = find_widget(read, target.scope, target.name)
    if row is None:
        raise MissingWidgetError(target.widget)
    return row


def check_is_local(widget: sqlite3.Row) -> None:
    """Raise ConflictError if the widget is a copy: its next refresh could undo a change."""
    if widget["source"]:
        name = WidgetName(widget["scope"], widget["name"])
        raise ConflictError(
            f"{name} is a copy from {widget['source']}; exclude it first, and repeat the "
            f"mirror's other options: widget-catalog mirror {widget['source']} --exclude {name}"
        )


# The versions' long text fields are left out.
FIND_VERSIONS = f"""
SELECT version.id, widget_id, published_at, precedence, version, yanked, yanked_reason,
    deprecation_message, sha256_hash, sdk_version
FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name
ORDER BY {NEWEST_FIRST}
"""


def find_versions(read: Read, target: WidgetName) -> list[sqlite3.Row]:
    """Return the number and state of each version of the widget, newest first."""
    return read(FIND_VERSIONS, target._asdict())


class SelectedVersions(NamedTuple):
    """All versions of a widget, newest first, and the versions selected for a change."""

    widget: WidgetName
    versions: Sequence[sqlite3.Row]
    selected: Sequence[sqlite3.Row]


def select_versions(read: Read, targets: Iterable[WidgetName]) -> list[SelectedVersions]:
    """Return the distinct versions that match the targets; raise ChangeError if one is missing."""
    requests: dict[WidgetName, list[WidgetName]] = {}
    for target in dict.fromkeys(targets):
        requests.setdefault(target.widget, []).append(target)
    if sum(map(len, requests.values())) > MAX_TARGETS:
        raise ChangeError(f"At most {MAX_TARGETS} versions and ranges can be named at once.")
    selections = []
    for widget, named in requests.items():
        get_widget(read, widget)
        versions = find_versions(read, widget)
        ranges = sum(not is_version(target.version or "") for target in named)
        if ranges > 1 and ranges * len(versions) > MAX_COMPARISONS:
            raise ChangeError(
                f"{widget} has {len(versions)} versions; name fewer than {ranges} ranges at once."
            )
        selected = {row["id"]: row for target in named for row in match_versions(versions, target)}
        selections.append(SelectedVersions(widget, versions, list(selected.values())))
    return selections


def match_versions(versions: Iterable[T], target: WidgetName) -> list[T]:
    """Return the versions that match the target's number or range; raise ChangeError if none do."""
    requested = check_version_or_range(target.version)
    if is_version(requested):
        matches = [row for row in versions if row["version"] == requested]
    else:
        matches = [row for row in versions if satisfies(row["version"], requested)]
    if not matches:
        raise MissingError(f"There is no version {target}.")
    return matches
