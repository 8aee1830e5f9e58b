"""Exports the catalog as widget documents; the same catalog always produces the same bytes."""

import json
import sqlite3
from collections.abc import Iterator

from ...domain.documents import Json, about_json
from ..connection.sqlite import fetch_all, fetch_one
from . import json_sql
from .candidates import NEWEST_FIRST
from .selection import IS_SELECTED

# The number of widgets to read at once.
PAGE_SIZE = 200

EXPORT_WIDGETS = f"""
SELECT *, {json_sql.WIDGET} AS json FROM widget LEFT JOIN about ON widget_id = id
WHERE {IS_SELECTED} AND (scope, name) > (:scope, :name)
ORDER BY scope, name LIMIT {PAGE_SIZE}
"""


def catalog_lines(connection: sqlite3.Connection, paths: str | None = None) -> Iterator[str]:
    """Yield the lines of a catalog file, one document each; for paths, see IS_SELECTED."""
    for row in widget_rows(connection, paths):
        yield json.dumps(read_document(connection, row), ensure_ascii=False) + "\n"


def widget_rows(connection: sqlite3.Connection, paths: str | None = None) -> Iterator[sqlite3.Row]:
    """Yield the selected widgets' rows for read_document(), ordered by scope and name."""
    values = {"paths": paths, "scope": "", "name": ""}
    while page := fetch_all(connection, EXPORT_WIDGETS, values):
        yield from page
        values |= {"scope": page[-1]["scope"], "name": page[-1]["name"]}


# In a document, a version's JSON is the same as in the API, with three exceptions: it lacks the
# scope and name, fields that the manifest omits are null, and bundleUrl is the original URL.
EXPORT_VERSIONS = f"""
SELECT json_set(json_remove(entry, '$.scope', '$.name'), '$.bundleUrl', bundle_url,
    '$.displayName', display_name, '$.description', description, '$.icon', icon)
FROM version_entry
JOIN (SELECT id, bundle_url, display_name, description, icon FROM version) USING (id)
WHERE widget_id = :id ORDER BY {NEWEST_FIRST}
"""


def read_document(connection: sqlite3.Connection, row: sqlite3.Row) -> Json:
    """Return the widget document for a row from widget_rows()."""
    versions = fetch_all(connection, EXPORT_VERSIONS, {"id": row["id"]})
    about = about_json(row)
    return {
        "widget": {**json.loads(row["json"]), "listed": bool(row["listed"])},
        "versions": [json.loads(version) for (version,) in versions],
        **({"about": about} if about else {}),
    }


COUNT_SELECTED = f"""
SELECT count(*), (
    SELECT count(*) FROM version JOIN widget ON widget.id = widget_id WHERE {IS_SELECTED})
FROM widget WHERE {IS_SELECTED}
"""


def count_selected(connection: sqlite3.Connection, paths: str | None = None) -> tuple[int, int]:
    """Return how many widgets are selected, and how many versions they have.

    If paths is None, all widgets are selected.
    """
    widgets, versions = fetch_one(connection, COUNT_SELECTED, {"paths": paths})
    return widgets, versions
