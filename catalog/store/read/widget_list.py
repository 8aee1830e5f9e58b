"""All widgets, listed or not, for the list and show commands and for shell completion."""

import json
import sqlite3

from ...domain.documents import ABOUT_KEYS, Json, about_json
from ...domain.pictures import picture_url
from ..bundles.bundles import Bundles
from ..connection.sqlite import fetch_all, fetch_one
from . import json_sql

LIST_WIDGETS = f"""
SELECT json_set(json_remove({json_sql.WIDGET}, '$.createdAt'),
        '$.listed', json(iif(listed, 'true', 'false')),
        '$.latestVersion', latest.version,
        '$.deprecationMessage', latest.deprecation_message,
        '$.updatedAt', latest.published_at) AS json
FROM widget JOIN latest_version ON latest_version.widget_id = widget.id
LEFT JOIN version AS latest ON latest.id = latest_id
WHERE (:scope IS NULL OR scope = :scope) AND (NOT :unlisted OR NOT listed)
ORDER BY CASE :sort WHEN 'created' THEN widget.created_at END DESC, scope, name
"""


def list_widgets(
    connection: sqlite3.Connection, scope: str | None, *, unlisted: bool, sort: str
) -> list[Json]:
    """Return the widgets in one scope, or in all scopes; if unlisted is true, only unlisted ones.

    Each widget has the fields of a search result. The widgets are sorted by name, or by creation
    time with the newest first if sort is "created".
    """
    values = {"scope": scope, "unlisted": unlisted, "sort": sort}
    return [json.loads(row["json"]) for row in fetch_all(connection, LIST_WIDGETS, values)]


SHOWN_WIDGET = f"""
SELECT listed, {json_sql.WIDGET} AS json, CAST({json_sql.VERSION_ENTRIES} AS BLOB) AS versions,
    about.*
FROM widget LEFT JOIN about ON widget_id = widget.id
WHERE scope = :scope AND name = :name
"""


def read_shown(
    connection: sqlite3.Connection, bundles: Bundles, scope: str, name: str, base_url: str
) -> Json | None:
    """Return a widget, listed or not, with its versions and its about; None if it is missing.

    The values are the same as those that a service at the base URL returns.
    """
    row = fetch_one(connection, SHOWN_WIDGET, {"scope": scope, "name": name})
    if row is None:
        return None
    about = about_json(row) or {**dict.fromkeys(ABOUT_KEYS), "keywords": []}
    if picture := about["picture"]:
        url = picture_url(base_url, scope, name, picture["sha256Hash"])
        about["picture"] = {"url": url, **picture} if bundles.has_picture(picture) else None
    return {
        "widget": {**json.loads(row["json"]), "listed": bool(row["listed"])},
        "versions": json.loads(json_sql.with_bundle_urls(row["versions"], base_url)),
        "about": about,
    }


FIND_NAMES = """
SELECT scope || '/' || name AS path, display_name FROM widget
WHERE substr(scope || '/' || name, 1, length(:prefix)) = :prefix
ORDER BY scope, name LIMIT :limit
"""


def find_names(connection: sqlite3.Connection, prefix: str, limit: int) -> list[sqlite3.Row]:
    """Return the scope/name and display name of widgets whose scope/name begins with the prefix."""
    return fetch_all(connection, FIND_NAMES, {"prefix": prefix, "limit": limit})
