"""Export: the catalog as widget documents. The same catalog gives the same bytes."""

import json
import sqlite3
from collections.abc import Iterator

from ...documents import Json, about_json
from . import json_sql
from .selection import IS_SELECTED

ABOUT = "SELECT * FROM about WHERE widget_id = :id"
EXPORT_WIDGETS = f"""
SELECT *, {json_sql.WIDGET} AS json FROM widget WHERE {IS_SELECTED} ORDER BY scope, name
"""


def catalog_lines(connection: sqlite3.Connection, paths: str | None = None) -> Iterator[str]:
    """Yield the lines of a catalog file, one widget document each; see IS_SELECTED for paths."""
    for row in connection.execute(EXPORT_WIDGETS, {"paths": paths}):
        yield json.dumps(read_document(connection, row), ensure_ascii=False) + "\n"


EXPORT_VERSIONS = f"""
SELECT {json_sql.DOCUMENT_VERSION} FROM version
WHERE widget_id = :id
ORDER BY {json_sql.NEWEST_FIRST}
"""


def read_document(connection: sqlite3.Connection, row: sqlite3.Row) -> Json:
    """Return the widget document for a row of EXPORT_WIDGETS."""
    versions = connection.execute(EXPORT_VERSIONS, {"id": row["id"]})
    about = connection.execute(ABOUT, {"id": row["id"]}).fetchone()
    said = about_json(about) if about else None
    return {
        "widget": {**json.loads(row["json"]), "listed": bool(row["listed"])},
        "versions": [json.loads(version) for (version,) in versions],
        **({"about": said} if said else {}),
    }
