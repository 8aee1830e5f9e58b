"""The newest releases of listed widgets, for the feed."""

import sqlite3

from ..connection.sqlite import fetch_all, fetch_one

_RELEASES = """
SELECT listing.scope, listing.name, version.version, published_at AS publishedAt,
    coalesce(version.display_name, widget.display_name) AS displayName,
    coalesce(release_notes, version.description, widget.description, '') AS text
FROM {tables} CROSS JOIN widget ON widget.id = listing.widget_id
WHERE yanked = 0 AND {condition}
ORDER BY published_at DESC, listing.scope, listing.name, precedence DESC, version.version
LIMIT :limit
"""
# The version_published index is in the order of the feed. The releases in a single scope are sorted
# instead, because they may be rare in that index.
NEWEST_RELEASES = _RELEASES.format(
    tables="version INDEXED BY version_published CROSS JOIN listing USING (widget_id)",
    condition="true",
)
_IS_NAMED = "listing.scope = :scope AND (:name = '' OR listing.name = :name)"
NEWEST_RELEASES_IN_SCOPE = _RELEASES.format(
    tables="listing CROSS JOIN version USING (widget_id)", condition=_IS_NAMED
)
HAS_WIDGET = f"SELECT 1 FROM listing WHERE {_IS_NAMED} LIMIT 1"


def find_releases(
    connection: sqlite3.Connection, scope: str, name: str, limit: int
) -> list[sqlite3.Row] | None:
    """Return the newest releases in the catalog or a scope, or of a widget.

    An empty scope or name does not restrict the releases. Return None if there is no such scope or
    widget.
    """
    values = {"scope": scope, "name": name, "limit": limit}
    if scope and not fetch_one(connection, HAS_WIDGET, values):
        return None
    statement = NEWEST_RELEASES_IN_SCOPE if scope else NEWEST_RELEASES
    return fetch_all(connection, statement, values)
