"""The installs of a widget by day and by version."""

import sqlite3
from collections.abc import Mapping

from ..connection.sqlite import DAY, today
from . import json_sql
from .search_params import parse_positive

DEFAULT_DAYS = 90
# At least so many days are stored before they become part of a month: see schema.sql.
MAX_DAYS = 400


def parse_days(parameters: Mapping[str, str]) -> int:
    """Return the number of days to show; raise ParameterError."""
    return min(parse_positive("days", parameters.get("days"), DEFAULT_DAYS), MAX_DAYS)


# What the installs of a widget depend on: the content, the count, those counted here, and the day.
InstallsRevision = tuple[int, int | None, int, int]

# A day in the future is one that a wrong clock has set.
DAYS = f"""json((
    SELECT json_group_array(json_object('day', date, 'installs', installs))
    FROM (
        SELECT date(day * {DAY}, 'unixepoch') AS date, installs FROM install_day
        WHERE widget_id = widget.id AND day > :today - :days AND day <= :today ORDER BY day)))"""
INSTALLED_VERSIONS = f"""json((
    SELECT json_group_array(json_object('version', version, 'installs', installs))
    FROM (
        SELECT version, installs FROM install_version CROSS JOIN version USING (widget_id, version)
        WHERE widget_id = widget.id ORDER BY {json_sql.NEWEST_FIRST})))"""
INSTALLS = f"""
SELECT content, download_count, counted, json_object(
    'total', coalesce(download_count, 0), 'days', {DAYS}, 'versions', {INSTALLED_VERSIONS})
FROM revision JOIN widget ON scope = :scope AND name = :name AND (listed OR :unlisted)
"""


def find_installs(
    connection: sqlite3.Connection,
    scope: str,
    name: str,
    days: int,
    today: int,
    *,
    unlisted: bool = False,
) -> tuple[InstallsRevision, bytes] | None:
    """Return the JSON of the installs up to today, and what it depends on; None if not listed."""
    values = {"scope": scope, "name": name, "days": days, "today": today, "unlisted": unlisted}
    row = connection.execute(INSTALLS, values).fetchone()
    if row is None:
        return None
    *counts, text = row
    return (*counts, today), f"{text}\n".encode()


INSTALLS_REVISION = """
SELECT content, download_count, counted FROM revision JOIN widget ON scope = :scope AND name = :name
"""


def revalidate_installs(
    connection: sqlite3.Connection, scope: str, name: str, revision: InstallsRevision
) -> InstallsRevision | None:
    """Return the revision if the installs are still the same, else None."""
    row = connection.execute(INSTALLS_REVISION, {"scope": scope, "name": name}).fetchone()
    return revision if row and (*row, today()) == revision else None


TRENDS = """
SELECT scope, name, sum(iif(day > :today - :days, installs, 0)) AS recent,
    sum(iif(day <= :today - :days, installs, 0)) AS before
FROM widget CROSS JOIN install_day ON widget_id = widget.id
    AND day > :today - 2 * :days AND day <= :today
GROUP BY widget.id ORDER BY abs(recent - before) DESC, scope, name
"""


def find_trends(connection: sqlite3.Connection, days: int, today: int) -> list[sqlite3.Row]:
    """Return the installs of each widget in the last days and as many before, if it has any.

    The widget with the largest change is the first.
    """
    return connection.execute(TRENDS, {"days": days, "today": today}).fetchall()
