"""Widgets and versions by name, for everything that changes them."""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from catalog.semver_ranges import is_range, is_version, satisfies
from catalog.store.connection.database import Database
from catalog.store.read import json_sql
from catalog.text import quoted


class ChangeError(Exception):
    """A change that is refused; the message says why in one sentence."""


class MissingError(ChangeError):
    """There is no such widget or version."""


class ConflictError(ChangeError):
    """What is stored contradicts the change."""


class WidgetName(NamedTuple):
    """The name of a widget, optionally with a version or a range of versions after an @."""

    scope: str
    name: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}" + ("" if self.version is None else f"@{self.version}")


FIND_WIDGET = f"""
SELECT *, {json_sql.WIDGET} AS json FROM widget WHERE scope = :scope AND name = :name
"""

FIND_VERSIONS = f"""
SELECT version.*, scope, name FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name
ORDER BY {json_sql.NEWEST_FIRST}
"""


def find_widget(database: Database, scope: str, name: str) -> sqlite3.Row | None:
    """Return the row of a widget, or None."""
    with database.read() as connection:
        values = {"scope": scope, "name": name}
        row: sqlite3.Row | None = connection.execute(FIND_WIDGET, values).fetchone()
    return row


def get_widget(database: Database, target: WidgetName) -> sqlite3.Row:
    """Return the row of the widget; raise MissingError if there is none."""
    row = find_widget(database, target.scope, target.name)
    if row is None:
        raise MissingError(f"There is no widget {target.scope}/{target.name}.")
    return row


def find_versions(database: Database, target: WidgetName) -> list[sqlite3.Row]:
    """Return the rows of all versions of the widget, newest first."""
    with database.read() as connection:
        return connection.execute(FIND_VERSIONS, target._asdict()).fetchall()


def is_version_or_range(text: str) -> bool:
    """Return whether the text after an @ can name versions."""
    return bool(text) and (is_version(text) or is_range(text))


def check_version_or_range(text: str | None) -> str:
    """Return the text after an @; raise ChangeError if it cannot name versions."""
    if not text or not is_version_or_range(text):
        raise ChangeError(f"{quoted(text or '')} is neither a version nor a range of versions.")
    return text


def get_versions(database: Database, target: WidgetName) -> list[sqlite3.Row]:
    """Return the rows of one version, or of all in a range; raise ChangeError if there is none."""
    requested = check_version_or_range(target.version)
    rows = find_versions(database, target)
    if is_version(requested):
        matches = [row for row in rows if row["version"] == requested]
    else:
        matches = [row for row in rows if satisfies(row["version"], requested)]
    if not matches:
        raise MissingError(f"There is no version {target}.")
    return matches


def select_versions(database: Database, targets: Iterable[WidgetName]) -> list[sqlite3.Row]:
    """Return the rows of all versions that the targets name, each once; raise as get_versions()."""
    rows = {row["id"]: row for target in targets for row in get_versions(database, target)}
    return list(rows.values())


def find_latest(database: Database, target: WidgetName) -> str | None:
    """Return the latest version of the widget, or None."""
    return json_sql.latest_version(find_versions(database, target))
