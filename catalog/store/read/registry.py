"""A scope's registry: all of its listed widgets with all their versions."""

import sqlite3
from collections.abc import Iterator

from ..connection.sqlite import fetch_one
from . import json_sql

# The number of widgets that one statement renders. A body can be as large as the catalog; if it
# were rendered in one piece, SQLite and Python would each keep a copy of it.
WIDGETS_PER_PIECE = 250
REGISTRY_PIECE = f"""
SELECT count(*), max(name), CAST(group_concat(text) AS BLOB) FROM (
    SELECT name, {json_sql.REGISTRY_WIDGET} AS text FROM widget
    WHERE scope = :scope AND name > :after AND listed
    ORDER BY name LIMIT :limit)
"""


def render_pieces(connection: sqlite3.Connection, scope: str) -> Iterator[bytes]:
    """Yield the widgets as JSON, sorted by name; every piece but the first begins with a comma."""
    values: dict[str, object] = {"scope": scope, "after": "", "limit": WIDGETS_PER_PIECE}
    comma, count = b"", WIDGETS_PER_PIECE
    while count == WIDGETS_PER_PIECE:
        count, values["after"], text = fetch_one(connection, REGISTRY_PIECE, values)
        if count:
            yield comma + text
        comma = b","
