"""What people read about a listed widget: readme, links and the picture if its file is here."""

import sqlite3

from ...documents import ABOUT_KEYS, Json, about_json
from ...text import format_elapsed
from ..bundles import Bundles

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
    """Return from where and when a widget was copied, in words; None if it is no copy."""
    row = connection.execute(ORIGIN, {"scope": scope, "name": name}).fetchone()
    return row and f"{row['source']}, refreshed {format_elapsed(row['refreshed_at'])}"


def find_about(
    connection: sqlite3.Connection, bundles: Bundles, scope: str, name: str
) -> tuple[int, Json] | None:
    """Return the revision, and what the API says about a widget; None if it is not listed."""
    row = connection.execute(ABOUT_LISTED, {"scope": scope, "name": name}).fetchone()
    if row is None:
        return None
    about = about_json(row) or dict.fromkeys(ABOUT_KEYS)
    if about["picture"] and not bundles.holds(about["picture"]["sha256Hash"]):
        about["picture"] = None
    return row["content"], about
