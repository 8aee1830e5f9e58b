"""The detail of one listed widget, with all its versions, and one of its versions alone."""

import sqlite3
from typing import NamedTuple

from ..schema.sdk_intervals import sdk_key
from . import json_sql


class DetailRevision(NamedTuple):
    """The revision of the catalog that a detail shows."""

    content: int
    download_count: int | None


DETAIL_MEMBERS = f"""
    '{{"widget":' || {json_sql.WIDGET} || ',"versions":' || {json_sql.VERSION_ENTRIES}
    || ',"latestVersion":' || {json_sql.LATEST_VERSION}
"""
NEWEST_FOR_SDK = json_sql.LATEST_COMPATIBLE_ENTRY.format(widget_id="widget.id")
SDK_MEMBER = f"""
    || ',"latestCompatibleVersion":' || coalesce({NEWEST_FOR_SDK}, 'null')
"""
BODY = "CAST({members} || '}}' || char(10) AS BLOB)"
# The body of the response for a row of widget.
DETAIL_JSON = BODY.format(members=DETAIL_MEMBERS)
_DETAIL = """
SELECT content, download_count, {body}
FROM revision JOIN widget ON scope = :scope AND name = :name AND listed
WHERE revision.id = 1
"""
DETAIL = _DETAIL.format(body=DETAIL_JSON)
DETAIL_WITH_SDK = _DETAIL.format(body=BODY.format(members=DETAIL_MEMBERS + SDK_MEMBER))


def find_detail(
    connection: sqlite3.Connection, scope: str, name: str, sdk: str | None = None
) -> tuple[DetailRevision, bytes] | None:
    """Return the JSON of the detail and the revision that it shows; None if it is not listed.

    With an SDK, the detail has the newest version that runs on it.
    """
    values = {"scope": scope, "name": name, "sdk": sdk and sdk_key(sdk)}
    row = connection.execute(DETAIL_WITH_SDK if sdk else DETAIL, values).fetchone()
    if row is None:
        return None
    content, download_count, body = row
    return DetailRevision(content, download_count), body


# An install of another widget changes neither.
REVALIDATE_DETAIL = """
SELECT 1 FROM revision JOIN widget ON scope = :scope AND name = :name
WHERE revision.id = 1 AND content = :content AND download_count IS :download_count
"""


def revalidate_detail(
    connection: sqlite3.Connection, scope: str, name: str, revision: DetailRevision
) -> DetailRevision | None:
    """Return the revision if the detail is still the same, else None."""
    values = {"scope": scope, "name": name, **revision._asdict()}
    return revision if connection.execute(REVALIDATE_DETAIL, values).fetchone() else None


_ENTRY = """
SELECT content, CAST({entry} || char(10) AS BLOB)
FROM revision JOIN widget ON scope = :scope AND name = :name AND listed
WHERE revision.id = 1
"""
NUMBERED_ENTRY = _ENTRY.format(
    entry="(SELECT entry FROM version_entry WHERE widget_id = widget.id AND version = :version)"
)
LATEST_ENTRY = _ENTRY.format(
    entry=f"""(
    SELECT entry FROM version_entry WHERE widget_id = widget.id AND yanked = 0
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT 1)"""
)
COMPATIBLE_ENTRY = _ENTRY.format(entry=NEWEST_FOR_SDK)
# The name that stands for the newest version. It is not a valid version number.
LATEST = "latest"


def find_version(
    connection: sqlite3.Connection, scope: str, name: str, version: str, sdk: str | None
) -> tuple[int, bytes | None] | None:
    """Return the revision, and the JSON of a version of a listed widget; None if it is not listed.

    LATEST is the newest version that is not yanked and, with an SDK, runs on it. The JSON is None
    if there is no such version.
    """
    statement = NUMBERED_ENTRY
    if version == LATEST:
        statement = COMPATIBLE_ENTRY if sdk else LATEST_ENTRY
    values = {"scope": scope, "name": name, "version": version, "sdk": sdk and sdk_key(sdk)}
    row = connection.execute(statement, values).fetchone()
    return tuple(row) if row else None


REVALIDATE_CONTENT = "SELECT 1 FROM revision WHERE content = :content"


def revalidate_content(connection: sqlite3.Connection, content: int) -> int | None:
    """Return the revision if nothing but counters changed since, else None."""
    row = connection.execute(REVALIDATE_CONTENT, {"content": content}).fetchone()
    return content if row else None
