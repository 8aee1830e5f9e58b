"""Rows of the widgets and versions that a command's arguments name."""

import sqlite3
from difflib import get_close_matches

from catalog.commands.base import CommandError, WidgetName, database, print_status
from catalog.semver_ranges import is_range, is_version, satisfies
from catalog.store import json_sql
from catalog.text import quoted

FIND_WIDGET = f"""
SELECT *, {json_sql.WIDGET} AS json FROM widget WHERE scope = :scope AND name = :name
"""

NAMES_OF_SCOPE = "SELECT name FROM widget WHERE scope = :scope ORDER BY name"
SCOPES_OF_NAME = "SELECT scope FROM widget WHERE name = :name ORDER BY scope"

FIND_VERSIONS = f"""
SELECT version.*, scope, name FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name
ORDER BY {json_sql.NEWEST_FIRST}
"""


def find_widget(scope: str, name: str) -> sqlite3.Row | None:
    """Return the row of a widget, or None."""
    with database().read() as connection:
        values = {"scope": scope, "name": name}
        row: sqlite3.Row | None = connection.execute(FIND_WIDGET, values).fetchone()
    return row


def get_widget(target: WidgetName) -> sqlite3.Row:
    """Return the row of the widget; raise CommandError if there is none."""
    row = find_widget(target.scope, target.name)
    if row is None:
        message = f"There is no widget {target.scope}/{target.name}."
        suggestion = _nearest_widget(target)
        raise CommandError(f"{message} Did you mean {suggestion}?" if suggestion else message)
    return row


def resolve_name(target: WidgetName) -> WidgetName:
    """Return the target without a version if the @ belongs to the name of an existing widget."""
    if target.version is None:
        return target
    whole_name = f"{target.name}@{target.version}"
    # No name has unprintable characters, and SQLite takes no lone surrogates.
    if whole_name.isprintable() and find_widget(target.scope, whole_name):
        return WidgetName(target.scope, whole_name)
    return target


def is_version_or_range(text: str) -> bool:
    """Return whether the text after an @ can name versions."""
    return bool(text) and (is_version(text) or is_range(text))


def _nearest_widget(target: WidgetName) -> str | None:
    """Return the widget that differs a little in its name, or else in its scope; or None."""
    with database().read() as connection:
        names = [row[0] for row in connection.execute(NAMES_OF_SCOPE, target._asdict())]
        scopes = [row[0] for row in connection.execute(SCOPES_OF_NAME, target._asdict())]
    for name in get_close_matches(target.name, names, n=1, cutoff=0.7):
        return f"{target.scope}/{name}"
    for scope in get_close_matches(target.scope, scopes, n=1, cutoff=0.7):
        return f"{scope}/{target.name}"
    return None


def get_versions(target: WidgetName) -> list[sqlite3.Row]:
    """Return the rows of one version, or of all in a range; raise CommandError if there is none."""
    get_widget(target)
    requested = target.version or ""
    if not is_version_or_range(requested):
        raise CommandError(f"{quoted(requested)} is neither a version nor a range of versions.")
    rows = find_versions(target)
    if is_version(requested):
        matches = [row for row in rows if row["version"] == requested]
    else:
        matches = [row for row in rows if satisfies(row["version"], requested)]
    if not matches:
        raise CommandError(f"There is no version {target}.")
    return matches


def get_version(target: WidgetName) -> sqlite3.Row:
    """Return the row of one version; raise CommandError if there is none."""
    if not is_version(target.version or ""):
        raise CommandError(f"{quoted(target.version)} is not a version such as 1.4.0.")
    (row,) = get_versions(target)
    return row


def find_latest(target: WidgetName) -> str | None:
    """Return the latest version of the widget, or None."""
    return json_sql.latest_version(find_versions(target))


def print_latest(
    target: WidgetName, before: str | None, after: str | None, *, dry_run: bool = False
) -> None:
    """Print which version of the widget is the latest now, if it is another one than before."""
    if after != before:
        verb = "would be" if dry_run else "is now"
        print_status(
            f"The latest version of {target.scope}/{target.name} {verb} {after or 'none'}."
        )


def find_versions(target: WidgetName) -> list[sqlite3.Row]:
    """Return the rows of all versions of the widget, newest first."""
    with database().read() as connection:
        return connection.execute(FIND_VERSIONS, target._asdict()).fetchall()
