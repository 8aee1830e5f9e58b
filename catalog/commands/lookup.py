"""What a command is about: the widget and versions that its arguments name."""

import sqlite3

from catalog.commands.base import CommandError, WidgetName, database, say
from catalog.semver_ranges import is_range, is_version, satisfies
from catalog.store import json_sql
from catalog.text import quoted

FIND_WIDGET = f"""
SELECT *, {json_sql.WIDGET} AS json FROM widget WHERE scope = :scope AND name = :name
"""

FIND_VERSIONS = f"""
SELECT version.*, scope, name FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name
ORDER BY {json_sql.NEWEST_FIRST}
"""


def has_widget(named: WidgetName) -> bool:
    with database().read() as connection:
        return connection.execute(FIND_WIDGET, named._asdict()).fetchone() is not None


def find_widget(named: WidgetName) -> sqlite3.Row:
    with database().read() as connection:
        widget: sqlite3.Row | None = connection.execute(FIND_WIDGET, named._asdict()).fetchone()
    if widget is None:
        raise CommandError(f"There is no widget {named.scope}/{named.name}.")
    return widget


def find_versions(named: WidgetName) -> list[sqlite3.Row]:
    """The versions that are named, by their own text or by a range that admits them."""
    find_widget(named)
    wanted = named.version or ""
    if not wanted or not (is_version(wanted) or is_range(wanted)):
        raise CommandError(f"{quoted(wanted)} is neither a version nor a range of versions.")
    with database().read() as connection:
        versions = connection.execute(FIND_VERSIONS, named._asdict()).fetchall()
    if is_version(wanted):
        found = [row for row in versions if row["version"] == wanted]
    else:
        found = [row for row in versions if satisfies(row["version"], wanted)]
    if not found:
        raise CommandError(f"There is no version {named}.")
    return found


def find_version(named: WidgetName) -> sqlite3.Row:
    if not is_version(named.version or ""):
        raise CommandError(f"{quoted(named.version)} is not a version such as 1.4.0.")
    (version,) = find_versions(named)
    return version


def say_latest(named: WidgetName) -> None:
    with database().read() as connection:
        rows = connection.execute(FIND_VERSIONS, named._asdict()).fetchall()
    latest = json_sql.latest_version(rows)
    say(f"The latest version of {named.scope}/{named.name} is now {latest or 'none'}.")
