"""A widget's versions, one page at a time: a widget can have thousands of versions."""

import json
import sqlite3

from ...domain.documents import Json
from ..connection.sqlite import fetch_one
from .candidates import IS_STABLE, NEWEST_FIRST, RUNS_ON_SDK, Candidates

# The maximum lengths of reasons in the version table and of notes in a comparison. A version's own
# page shows them in full.
MAX_REASON = 300  # characters
MAX_NOTE = 2_000  # characters
MAX_NOTES = 50

HISTORY = """
SELECT count(*) AS total, min(published_at) AS first, EXISTS (
    SELECT 1 FROM version
    WHERE widget_id = :widget_id AND yanked = 0 AND deprecation_message IS NULL) AS is_supported
FROM version WHERE widget_id = :widget_id
"""


def read_history(connection: sqlite3.Connection, widget_id: int) -> sqlite3.Row:
    """Return how many versions a widget has, and when the first one was published.

    The widget is supported if any version is neither yanked nor deprecated.
    """
    history: sqlite3.Row = fetch_one(connection, HISTORY, {"widget_id": widget_id})
    return history


VERSION_TABLE = f"""
SELECT (SELECT count(*) FROM version WHERE widget_id = :widget_id AND {{condition}}), (
    SELECT json_group_array(json(text)) FROM (
        SELECT json_object(
            'version', version, 'publishedAt', published_at,
            'yanked', json(iif(yanked, 'true', 'false')),
            'yankedReason', substr(yanked_reason, 1, :max_text),
            'deprecationMessage', substr(deprecation_message, 1, :max_text),
            'sdkVersion', sdk_version,
            'isCompatible', json(iif(yanked = 0 AND {RUNS_ON_SDK}, 'true', 'false'))
        ) AS text
        FROM version WHERE widget_id = :widget_id AND {{condition}}
        ORDER BY {NEWEST_FIRST} LIMIT :limit OFFSET :offset))
"""


def list_versions(
    connection: sqlite3.Connection,
    widget_id: int,
    sdk: str | None = None,
    shown: Candidates | None = None,
    *,
    limit: int,
    offset: int = 0,
) -> tuple[int, list[Json]]:
    """Return how many versions are shown, and one page of them, newest first.

    If shown is None, all versions are shown. Each version says whether it runs on the SDK.
    """
    statement = VERSION_TABLE.format(condition=shown.condition() if shown else "true")
    values = {"widget_id": widget_id, **Candidates(sdk).values}
    values |= {"limit": limit, "offset": offset, "max_text": MAX_REASON}
    count, text = fetch_one(connection, statement, values)
    return count, json.loads(text)


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
OLDER = _NEIGHBOUR.format(condition="", comparison="<", order=NEWEST_FIRST)
OLDER_AVAILABLE = _NEIGHBOUR.format(condition="AND yanked = 0", comparison="<", order=NEWEST_FIRST)
NEWER = _NEIGHBOUR.format(condition="", comparison=">", order=NEWEST_FIRST.replace(" DESC", ""))


def find_neighbour(
    connection: sqlite3.Connection, statement: str, widget_id: int, version: str
) -> Json | None:
    """Return the version number and permissions of the version next to this one, or None.

    The statement is OLDER, OLDER_AVAILABLE or NEWER.
    """
    values = {"widget_id": widget_id, "version": version}
    row = fetch_one(connection, statement, values)
    return json.loads(row[0]) if row else None


NEWER_PRERELEASE = f"""
SELECT version FROM version
WHERE widget_id = :widget_id AND {{is_candidate}} AND NOT {IS_STABLE} AND precedence > (
    SELECT precedence FROM version WHERE widget_id = :widget_id AND version = :version)
ORDER BY {NEWEST_FIRST} LIMIT 1
"""


def find_newer_prerelease(
    connection: sqlite3.Connection, widget_id: int, version: str, sdk: str | None
) -> str | None:
    """Return the version number of the newest prerelease with a higher precedence than a version.

    Yanked prereleases are ignored, and so are prereleases that do not run on a given SDK.
    """
    candidates = Candidates(sdk)
    statement = NEWER_PRERELEASE.format(is_candidate=candidates.condition())
    values = {"widget_id": widget_id, "version": version, **candidates.values}
    row = fetch_one(connection, statement, values)
    return row["version"] if row else None


NOTES_AFTER = f"""
SELECT json_group_array(json(text)) FROM (
    SELECT json_object('version', version, 'publishedAt', published_at,
        'yanked', json(iif(yanked, 'true', 'false')), 'deprecationMessage', deprecation_message,
        'releaseNotes', substr(release_notes, 1, :max_text),
        'hasMoreNotes', json(iif(length(release_notes) > :max_text, 'true', 'false'))) AS text
    FROM version WHERE widget_id = :widget_id
        AND (published_at, precedence, version) > {_KEY.format(number="older")}
        AND (published_at, precedence, version) <= {_KEY.format(number="newer")}
    ORDER BY {NEWEST_FIRST} LIMIT :limit)
"""


def list_notes(
    connection: sqlite3.Connection, widget_id: int, older: str, newer: str
) -> list[Json]:
    """Return the notes for all versions newer than `older`, up to and including `newer`.

    The newest notes come first. An extra entry beyond MAX_NOTES means that there are more versions.
    """
    values = {"widget_id": widget_id, "older": older, "newer": newer}
    values |= {"limit": MAX_NOTES + 1, "max_text": MAX_NOTE}
    notes: list[Json] = json.loads(fetch_one(connection, NOTES_AFTER, values)[0])
    return notes
