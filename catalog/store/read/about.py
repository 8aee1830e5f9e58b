"""A listed widget's about; the picture is included only if its file is stored."""

import sqlite3

from ...domain.documents import ABOUT_KEYS, Json, about_json
from ...domain.timestamps import format_elapsed
from ..bundles.bundles import Bundles
from ..connection.sqlite import fetch_one

ABOUT_LISTED = """
SELECT content, about.* FROM revision
JOIN widget ON scope = :scope AND name = :name AND listed LEFT JOIN about ON widget_id = widget.id
WHERE revision.id = 1
"""


ORIGIN = """
SELECT source, refreshed_at FROM mirrored LEFT JOIN upstream USING (source)
WHERE widget_id = (SELECT id FROM widget WHERE scope = :scope AND name = :name)
"""


def find_origin(connection: sqlite3.Connection, scope: str, name: str) -> str | None:
    """Describe a copy's upstream and its last refresh; return None for a local widget."""
    row = fetch_one(connection, ORIGIN, {"scope": scope, "name": name})
    return row and f"{row['source']}, refreshed {format_elapsed(row['refreshed_at'])}"


def find_about(
    connection: sqlite3.Connection, bundles: Bundles, scope: str, name: str
) -> tuple[int | None, Json] | None:
    """Return the revision and a widget's about as JSON; None if the widget is not listed.

    The revision is None while the picture's file is missing: the file can arrive at any time
    without a write to the database.
    """
    row = fetch_one(connection, ABOUT_LISTED, {"scope": scope, "name": name})
    if row is None:
        return None
    about = about_json(row) or {**dict.fromkeys(ABOUT_KEYS), "keywords": []}
    # An import can claim any hash for a picture, even the hash of a bundle that is stored later.
    if about["picture"] and not bundles.has_picture(about["picture"]):
        return None, {**about, "picture": None}
    return row["content"], about
