"""What the pages of a widget read: only as many versions as a page shows."""

import json
from typing import Any

from flask import abort

from ..documents import Json
from ..semver_ranges import is_version
from ..store.connection.sqlite import Connection
from ..store.read import json_sql
from ..store.read.detail import find_version
from ..text import quoted
from .pages import parse_body

# What a row of the table and a comparison show of a text; the page of a version has all of it.
MAX_REASON = 300  # characters
MAX_NOTE = 2_000  # characters
MAX_NOTES = 50


WIDGET = f"""
SELECT id, {json_sql.WIDGET} FROM widget WHERE scope = :scope AND name = :name AND listed
"""


def find_widget(connection: Connection, scope: str, name: str) -> tuple[int, Json]:
    """Return the id and the JSON of a listed widget, without versions; 404 if there is none."""
    row = connection.execute(WIDGET, {"scope": scope, "name": name}).fetchone()
    if row is None:
        abort(404, f"There is no widget {quoted(f'{scope}/{name}')}.")
    return row[0], json.loads(row[1])


def load_version(connection: Connection, widget: Json, number: str, sdk: str = "") -> Json | None:
    """Return a version as the API does, LATEST included; None if there is no such version."""
    found = find_version(connection, widget["scope"], widget["name"], number, sdk or None)
    if found is None or found[1] is None:
        return None
    version: Json = parse_body(found[1])
    return version


def load_numbered(connection: Connection, widget: Json, number: str) -> Json | None:
    """Return the version with this number; None if there is none."""
    # LATEST is no number.
    return load_version(connection, widget, number) if is_version(number) else None


HISTORY = """
SELECT count(*) AS total, min(published_at) AS first FROM version WHERE widget_id = :widget_id
"""


def load_history(connection: Connection, widget_id: int) -> Any:
    """Return how many versions a widget has, and when the first one was published."""
    return connection.execute(HISTORY, {"widget_id": widget_id}).fetchone()


IS_SUPPORTED = """
SELECT EXISTS (
    SELECT 1 FROM version
    WHERE widget_id = :widget_id AND yanked = 0 AND deprecation_message IS NULL)
"""


def is_supported(connection: Connection, widget_id: int) -> bool:
    """Return whether a widget has a version that is neither yanked nor deprecated."""
    return bool(connection.execute(IS_SUPPORTED, {"widget_id": widget_id}).fetchone()[0])


# Which versions the table shows: sdk is the key of an SDK, or NULL.
_FILTER = f"""
widget_id = :widget_id
AND (NOT :only_stable OR yanked = 0 AND instr(precedence, '-') = 0)
AND (NOT :only_compatible OR yanked = 0 AND {json_sql.VERSION_ADMITS})
"""
COUNT = f"SELECT count(*) FROM version WHERE {_FILTER}"


def count_versions(connection: Connection, shown: Json) -> int:
    """Return how many versions the filter admits."""
    (count,) = connection.execute(COUNT, shown).fetchone()
    return int(count)


VERSION_ROWS = f"""
SELECT json_group_array(json(text)) FROM (
    SELECT json_object(
        'version', version, 'publishedAt', published_at,
        'yanked', json(iif(yanked, 'true', 'false')),
        'yankedReason', substr(yanked_reason, 1, :max_text),
        'deprecationMessage', substr(deprecation_message, 1, :max_text),
        'sdkVersion', sdk_version,
        'isCompatible', json(iif(yanked = 0 AND {json_sql.VERSION_ADMITS}, 'true', 'false'))
    ) AS text
    FROM version WHERE {_FILTER}
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT :limit OFFSET :offset)
"""


def load_versions(connection: Connection, shown: Json, *, limit: int, offset: int) -> list[Json]:
    """Return a page of the versions that the filter admits, newest first."""
    values = {**shown, "limit": limit, "offset": offset, "max_text": MAX_REASON}
    (text,) = connection.execute(VERSION_ROWS, values).fetchone()
    rows: list[Json] = json.loads(text)
    return rows


NUMBERS = f"""
SELECT json_group_array(version) FROM (
    SELECT version FROM version WHERE widget_id = :widget_id
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT :limit)
"""


def load_numbers(connection: Connection, widget_id: int, limit: int) -> list[str]:
    """Return the numbers of the newest versions of a widget."""
    values = {"widget_id": widget_id, "limit": limit}
    numbers: list[str] = json.loads(connection.execute(NUMBERS, values).fetchone()[0])
    return numbers


_KEY = """(
    SELECT published_at, precedence, version FROM version
    WHERE widget_id = :widget_id AND version = :{number})
"""
_NEIGHBOUR = f"""
SELECT json_object('version', version, 'permissions', json(permissions)) FROM version
WHERE widget_id = :widget_id {{condition}}
    AND (published_at, precedence, version) {{comparison}} {_KEY.format(number="version")}
ORDER BY {{order}} LIMIT 1
"""
OLDER = _NEIGHBOUR.format(condition="", comparison="<", order=json_sql.NEWEST_FIRST)
OLDER_AVAILABLE = _NEIGHBOUR.format(
    condition="AND yanked = 0", comparison="<", order=json_sql.NEWEST_FIRST
)
NEWER = _NEIGHBOUR.format(
    condition="", comparison=">", order=json_sql.NEWEST_FIRST.replace(" DESC", "")
)


def find_neighbour(
    connection: Connection, statement: str, widget_id: int, version: str
) -> Json | None:
    """Return the number and permissions of the version next to this one: OLDER, NEWER and so on."""
    values = {"widget_id": widget_id, "version": version}
    row = connection.execute(statement, values).fetchone()
    return json.loads(row[0]) if row else None


NOTES_AFTER = f"""
SELECT json_group_array(json(text)) FROM (
    SELECT json_object('version', version, 'publishedAt', published_at,
        'yanked', json(iif(yanked, 'true', 'false')), 'deprecationMessage', deprecation_message,
        'releaseNotes', substr(release_notes, 1, :max_text),
        'hasMoreNotes', json(iif(length(release_notes) > :max_text, 'true', 'false'))) AS text
    FROM version WHERE widget_id = :widget_id
        AND (published_at, precedence, version) > {_KEY.format(number="older")}
        AND (published_at, precedence, version) <= {_KEY.format(number="newer")}
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT :limit)
"""


def load_notes(connection: Connection, widget_id: int, older: str, newer: str) -> list[Json]:
    """Return the notes of the newest versions after the older one, up to the newer one.

    If there are more than MAX_NOTES, there is one more in the list.
    """
    values = {"widget_id": widget_id, "older": older, "newer": newer}
    values |= {"limit": MAX_NOTES + 1, "max_text": MAX_NOTE}
    notes: list[Json] = json.loads(connection.execute(NOTES_AFTER, values).fetchone()[0])
    return notes
