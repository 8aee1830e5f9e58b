"""A widget's installs by day and by version."""

import sqlite3
from collections.abc import Mapping

from ..connection.sqlite import DAY, fetch_one
from .candidates import NEWEST_FIRST
from .parameters import parse_positive

DEFAULT_DAYS = 90
# The database stores more days than this; see schema.sql.
MAX_DAYS = 400


def parse_days(parameters: Mapping[str, str]) -> int:
    """Return the number of days to show; raise ParameterError if it is invalid."""
    return min(parse_positive("days", parameters.get("days"), DEFAULT_DAYS), MAX_DAYS)


# Days in the future result from a wrong clock and are left out.
DAYS = f"""json((
    SELECT json_group_array(json_object('day', date, 'installs', installs))
    FROM (
        SELECT date(day * {DAY}, 'unixepoch') AS date, installs FROM install_day
        WHERE widget_id = widget.id AND day > :today - :days AND day <= :today ORDER BY day)))"""
INSTALLED_VERSIONS = f"""json((
    SELECT json_group_array(json_object('version', version, 'installs', installs))
    FROM (
        SELECT version, installs FROM install_version CROSS JOIN version USING (widget_id, version)
        WHERE widget_id = widget.id ORDER BY {NEWEST_FIRST})))"""
INSTALLS = f"""
SELECT json_object(
    'total', coalesce(download_count, 0), 'days', {DAYS}, 'versions', {INSTALLED_VERSIONS})
FROM widget WHERE scope = :scope AND name = :name AND (listed OR :unlisted)
"""


def find_installs(
    connection: sqlite3.Connection,
    scope: str,
    name: str,
    days: int,
    today: int,
    *,
    unlisted: bool = False,
) -> bytes | None:
    """Return the installs up to today as JSON; None if no widget is found."""
    values = {"scope": scope, "name": name, "days": days, "today": today, "unlisted": unlisted}
    row = fetch_one(connection, INSTALLS, values)
    return f"{row[0]}\n".encode() if row else None
