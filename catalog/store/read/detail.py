"""A listed widget's detail with all its versions, and the JSON of a single version."""

import sqlite3
from typing import NamedTuple

from ..connection.revision import read_revision
from ..connection.sqlite import fetch_one
from . import json_sql
from .candidates import AVAILABLE, Candidates


class DetailRevision(NamedTuple):
    """The catalog revision that a detail shows."""

    content: int
    download_count: int | None


def _detail_json(candidates: Candidates) -> str:
    """Return the SQL expression that renders a widget row's detail."""
    latest = candidates._replace(sdk=None).newest("version", "widget.id")
    compatible = ""
    if candidates.sdk:
        entry = candidates.newest_entry("widget.id")
        compatible = f""" || ',"latestCompatibleVersion":' || coalesce({entry}, 'null')"""
    return f"""CAST(
    '{{"widget":' || {json_sql.WIDGET} || ',"versions":' || {json_sql.VERSION_ENTRIES}
    || ',"latestVersion":' || json_quote({latest}){compatible} || '}}' || char(10) AS BLOB)"""


DETAIL_JSON = _detail_json(AVAILABLE)
DETAIL = """
SELECT content, download_count, {body}
FROM revision JOIN widget ON scope = :scope AND name = :name AND listed
WHERE revision.id = 1
"""


def find_detail(
    connection: sqlite3.Connection, scope: str, name: str, candidates: Candidates = AVAILABLE
) -> tuple[DetailRevision, bytes] | None:
    """Return the revision and a widget's detail as JSON; None if the widget is not listed.

    The candidates decide which version is the latest. With an SDK, the detail also includes the
    newest version that runs on it.
    """
    statement = DETAIL.format(body=_detail_json(candidates))
    values = {"scope": scope, "name": name, **candidates.values}
    row = fetch_one(connection, statement, values)
    if row is None:
        return None
    content, download_count, body = row
    return DetailRevision(content, download_count), body


# Installing another widget changes neither the content nor this download count.
REVALIDATE_DETAIL = """
SELECT 1 FROM revision JOIN widget ON scope = :scope AND name = :name
WHERE revision.id = 1 AND content = :content AND download_count IS :download_count
"""


def revalidate_detail(
    connection: sqlite3.Connection, scope: str, name: str, revision: DetailRevision
) -> DetailRevision | None:
    """Return the revision if the detail is still the same, else None."""
    values = {"scope": scope, "name": name, **revision._asdict()}
    return revision if fetch_one(connection, REVALIDATE_DETAIL, values) else None


ONE_VERSION = """
SELECT content, CAST({entry} || char(10) AS BLOB)
FROM revision JOIN widget ON scope = :scope AND name = :name AND listed
WHERE revision.id = 1
"""
NUMBERED_ENTRY = """
(SELECT entry FROM version_entry WHERE widget_id = widget.id AND version = :version)
"""
# This name stands for the newest version. It is not a valid version number.
LATEST = "latest"


def find_version(
    connection: sqlite3.Connection,
    scope: str,
    name: str,
    version: str,
    candidates: Candidates = AVAILABLE,
) -> tuple[int, bytes | None] | None:
    """Return the revision and a version's JSON; None if the widget is not listed.

    LATEST stands for the newest candidate. A version given by its number need not be a candidate.
    The JSON is None if there is no such version.
    """
    is_latest = version == LATEST
    entry = candidates.newest_entry("widget.id") if is_latest else NUMBERED_ENTRY
    values = {"scope": scope, "name": name, "version": version, **candidates.values}
    row = fetch_one(connection, ONE_VERSION.format(entry=entry), values)
    return tuple(row) if row else None


def revalidate_content(connection: sqlite3.Connection, content: int) -> int | None:
    """Return the content revision if it is still current, else None."""
    return content if read_revision(connection).content == content else None
