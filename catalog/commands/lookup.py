"""Rows of the widgets and versions that a command's arguments name."""

import sqlite3
from difflib import get_close_matches

from ..semver_ranges import is_version
from ..store.write import lookup
from ..store.write.lookup import MissingError, WidgetName
from ..text import quoted
from .base import CommandError, database, print_status

NAMES_OF_SCOPE = "SELECT name FROM widget WHERE scope = :scope ORDER BY name"
SCOPES_OF_NAME = "SELECT scope FROM widget WHERE name = :name ORDER BY scope"


def find_widget(scope: str, name: str) -> sqlite3.Row | None:
    """Return the row of a widget, or None."""
    return lookup.find_widget(database().fetch, scope, name)


def get_widget(target: WidgetName) -> sqlite3.Row:
    """Return the row of the widget; raise CommandError if there is none."""
    try:
        return lookup.get_widget(database().fetch, target)
    except MissingError as error:
        suggestion = _nearest_widget(target)
        advice = f" Did you mean {suggestion}?" if suggestion else ""
        raise CommandError(f"{error}{advice}") from error


def resolve_name(target: WidgetName) -> WidgetName:
    """Return the target without a version if the @ belongs to the name of an existing widget."""
    if target.version is None:
        return target
    whole_name = f"{target.name}@{target.version}"
    # No name has unprintable characters, and SQLite takes no lone surrogates.
    if whole_name.isprintable() and find_widget(target.scope, whole_name):
        return WidgetName(target.scope, whole_name)
    return target


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
    """Return the rows of one version, or of all in a range; raise if there is none."""
    get_widget(target)
    (selection,) = lookup.select_versions(database().fetch, [target])
    return list(selection.selected)


def get_version(target: WidgetName) -> sqlite3.Row:
    """Return the row of one version; raise CommandError if there is none."""
    if not is_version(target.version or ""):
        raise CommandError(f"{quoted(target.version)} is not a version such as 1.4.0.")
    (row,) = get_versions(target)
    return row


def print_latest(
    target: WidgetName, before: str | None, after: str | None, *, dry_run: bool = False
) -> None:
    """Print which version of the widget is the latest now, if it is another one than before."""
    if after != before:
        verb = "would be" if dry_run else "is now"
        print_status(
            f"The latest version of {target.scope}/{target.name} {verb} {after or 'none'}."
        )
