"""Listed widgets as the pages show them."""

import json
import sqlite3

from ...domain.documents import Json
from ..connection.sqlite import fetch_all, fetch_one
from . import json_sql

LISTED_WIDGET = f"""
SELECT id, {json_sql.WIDGET} FROM widget WHERE scope = :scope AND name = :name AND listed
"""


def find_listed_widget(
    connection: sqlite3.Connection, scope: str, name: str
) -> tuple[int, Json] | None:
    """Return a widget's id and JSON, without its versions; None if the widget is not listed."""
    row = fetch_one(connection, LISTED_WIDGET, {"scope": scope, "name": name})
    return (row[0], json.loads(row[1])) if row else None


# The maximum number of widgets with the same keyword, or with the same permissions, that are
# compared to find similar ones.
MAX_COMPARED = 100
# Widgets without permissions do not count as similar. The listing_filters index finds the widgets
# with the same permissions, because permissions is its first column.
SIMILAR = """
WITH own AS (SELECT permissions, scope FROM listing WHERE widget_id = :widget_id),
candidate (widget_id, shared) AS (
    SELECT listing.widget_id, 1 FROM listing_keyword AS given CROSS JOIN listing
    ON listing.widget_id IN (
        SELECT widget_id FROM listing_keyword WHERE keyword = given.keyword LIMIT :max_compared)
    WHERE given.widget_id = :widget_id
    UNION ALL
    SELECT * FROM (
        SELECT widget_id, 0 FROM listing INDEXED BY listing_filters
        WHERE permissions = (SELECT permissions FROM own) AND permissions NOT IN ('[]', 'null')
            AND scope <> (SELECT scope FROM own)
        LIMIT :max_compared)
)
SELECT widget.scope, widget.name, display_name AS displayName, icon, description
FROM candidate CROSS JOIN listing USING (widget_id)
CROSS JOIN widget ON widget.id = listing.widget_id
WHERE listing.scope <> (SELECT scope FROM own)
GROUP BY listing.widget_id
ORDER BY sum(shared) DESC, downloads DESC, listing.scope, listing.name LIMIT :limit
"""


def find_similar_widgets(
    connection: sqlite3.Connection, widget_id: int, limit: int
) -> list[sqlite3.Row]:
    """Return widgets in other scopes with the same keywords, then with the same permissions."""
    values = {"widget_id": widget_id, "max_compared": MAX_COMPARED, "limit": limit}
    return fetch_all(connection, SIMILAR, values)
