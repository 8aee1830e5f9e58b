"""The detail of one listed widget, with all its versions."""

import sqlite3
from typing import NamedTuple

from catalog.store import json_sql
from catalog.store.sdk_intervals import sdk_key


class DetailRevision(NamedTuple):
    """The revision of the catalog that a detail shows."""

    content: int
    download_count: int | None


# The body of the response for a row of widget.
DETAIL_JSON = f"""CAST(
    '{{"widget":' || {json_sql.WIDGET} || ',"versions":' || {json_sql.VERSION_ENTRIES}
    || ',"latestVersion":' || {json_sql.LATEST_VERSION} || '}}' || char(10) AS BLOB)"""

DETAIL = f"""
SELECT content, download_count, {DETAIL_JSON}
FROM revision JOIN widget ON scope = :scope AND name = :name AND listed
WHERE revision.id = 1
"""


def find_detail(
    connection: sqlite3.Connection, scope: str, name: str
) -> tuple[DetailRevision, bytes] | None:
    """Return the JSON of the detail and the revision that it shows; None if it is not listed."""
    row = connection.execute(DETAIL, {"scope": scope, "name": name}).fetchone()
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


COMPATIBLE_VERSIONS = f"""
SELECT version FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name AND yanked = 0 AND {json_sql.VERSION_ADMITS}
"""


def compatible_versions(
    connection: sqlite3.Connection, scope: str, name: str, sdk: str
) -> set[str]:
    """Return the versions of a widget that run on the SDK and are not yanked."""
    values = {"scope": scope, "name": name, "sdk": sdk_key(sdk)}
    return {version for (version,) in connection.execute(COMPATIBLE_VERSIONS, values)}
