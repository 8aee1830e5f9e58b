"""Finds and summarises the scopes of listed widgets."""

import sqlite3

from ..connection.sqlite import fetch_all, fetch_one

# Several scopes can match, because their names may differ only in case.
SCOPES_NAMED = """
SELECT scope, count(*) AS widgets FROM listing WHERE scope = :scope COLLATE NOCASE
GROUP BY scope ORDER BY widgets DESC, scope LIMIT 3
"""


def find_scopes(connection: sqlite3.Connection, scope: str) -> list[sqlite3.Row]:
    """Return the scopes with this name, ignoring case, each with its number of listed widgets."""
    return fetch_all(connection, SCOPES_NAMED, {"scope": scope}) if scope else []


# An unknown install count adds nothing to the sum.
SCOPE_TOTALS = """
SELECT count(*) AS widgets, coalesce(sum(max(downloads, 0)), 0) AS installs,
    sum(official) AS official, min(created) AS since, max(updated) AS updated,
    (SELECT count(*) FROM listing CROSS JOIN version USING (widget_id) WHERE scope = :scope)
        AS versions,
    (SELECT iif(count(DISTINCT homepage) = 1, min(homepage), NULL)
        FROM listing CROSS JOIN about USING (widget_id) WHERE scope = :scope) AS homepage
FROM listing WHERE scope = :scope
"""


def read_scope_totals(connection: sqlite3.Connection, scope: str) -> sqlite3.Row:
    """Return a summary of a scope, computed from its listed widgets.

    The summary counts widgets, official widgets, versions and installs. It also says when the first
    widget was created and the last version published. It includes a homepage if all widgets with a
    homepage have the same one.
    """
    totals: sqlite3.Row = fetch_one(connection, SCOPE_TOTALS, {"scope": scope})
    return totals
