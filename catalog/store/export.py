"""Export: the widget documents of a catalog, the same for the same catalog."""

import json
import sqlite3
from collections.abc import Iterator

from catalog.documents import Json
from catalog.store import json_sql

WIDGETS = f"SELECT *, {json_sql.WIDGET} AS json FROM widget ORDER BY scope, name"

VERSIONS = f"""
SELECT {json_sql.DOCUMENT_VERSION} FROM version
WHERE widget_id = :id
ORDER BY {json_sql.NEWEST_FIRST}
"""


def catalog_lines(connection: sqlite3.Connection) -> Iterator[str]:
    """The whole catalog as lines, the same for the same catalog."""
    for row in connection.execute(WIDGETS):
        yield json.dumps(document(connection, row), ensure_ascii=False) + "\n"


def document(connection: sqlite3.Connection, row: sqlite3.Row) -> Json:
    """The widget document of a row of widget."""
    versions = connection.execute(VERSIONS, {"id": row["id"]})
    return {
        "widget": {**json.loads(row["json"]), "listed": bool(row["listed"])},
        "versions": [json.loads(version) for (version,) in versions],
    }
