"""One listed widget with its whole history."""

import sqlite3

from catalog.store import json_sql
from catalog.store.sdk_intervals import sdk_key

DETAIL = f"""
SELECT content, download_count, CAST(
    '{{"widget":' || {json_sql.WIDGET} || ',"versions":' || {json_sql.VERSION_ENTRIES}
    || ',"latestVersion":' || {json_sql.LATEST_VERSION} || '}}' || char(10) AS BLOB)
FROM revision JOIN widget ON scope = :scope AND name = :name AND listed
WHERE revision.id = 1
"""

DetailRevision = dict[str, int | None]  # what an answer was made of


def find_detail(
    connection: sqlite3.Connection, scope: str, name: str
) -> tuple[DetailRevision, bytes] | None:
    """The detail of a widget, and what it was made of; None if it is not listed."""
    named = {"scope": scope, "name": name}
    row = connection.execute(DETAIL, named).fetchone()
    if row is None:
        return None
    content, download_count, body = row
    return {"content": content, "download_count": download_count}, body


# A detail holds until the catalog or this one counter changes.
UNCHANGED = """
SELECT 1 FROM revision JOIN widget ON scope = :scope AND name = :name
WHERE revision.id = 1 AND content = :content AND download_count IS :download_count
"""


def revalidate(
    connection: sqlite3.Connection, scope: str, name: str, seen: DetailRevision
) -> DetailRevision | None:
    """What the answer was made of, if it is still the same."""
    row = connection.execute(UNCHANGED, {"scope": scope, "name": name, **seen}).fetchone()
    return seen if row else None


COMPATIBLE = f"""
SELECT version FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name AND yanked = 0 AND {json_sql.VERSION_ADMITS}
"""


def compatible_versions(
    connection: sqlite3.Connection, scope: str, name: str, sdk: str
) -> set[str]:
    """The versions of a widget that run on the SDK and are not yanked."""
    values = {"scope": scope, "name": name, "sdk": sdk_key(sdk)}
    return {version for (version,) in connection.execute(COMPATIBLE, values)}
