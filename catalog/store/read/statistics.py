"""The size of the catalog, for /api/stats and for metrics."""

import sqlite3

from ..connection.sqlite import fetch_one
from .lookup import Read

# The recursive part reads one index entry per scope. The sum of all counters can overflow SQLite's
# integers; total() does not overflow, and is exact up to 2^53.
STATISTICS = """
WITH RECURSIVE each_scope (scope) AS (
    SELECT min(scope) FROM listing
    UNION ALL
    SELECT (SELECT min(scope) FROM listing WHERE scope > each_scope.scope)
    FROM each_scope WHERE scope IS NOT NULL
)
SELECT (SELECT count(scope) FROM each_scope) AS scopes,
       (SELECT count(*) FROM listing) AS widgets,
       (SELECT count(*) FROM version JOIN listing USING (widget_id)) AS versions,
       CAST(total(downloads) AS INTEGER) AS downloads,
       (SELECT count(*) FROM listing WHERE official = 1) AS official
FROM listing WHERE downloads > 0
"""


def read_statistics(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many scopes, listed widgets, versions, installs and official widgets there are."""
    return dict(fetch_one(connection, STATISTICS))


# The unpack command compares these times to warn about a pack that is older than the catalog.
NEWEST_TIME = """
SELECT max(coalesce((SELECT max(published_at) FROM version), ''),
           coalesce((SELECT max(created_at) FROM widget), ''))
"""


def find_newest_time(connection: sqlite3.Connection) -> str:
    """Return when the newest version or widget was added; an empty string if there is none."""
    (time,) = fetch_one(connection, NEWEST_TIME)
    return str(time)


LAST_PUBLISHED = "SELECT max(published_at) FROM version"


def find_last_published(read: Read) -> str | None:
    """Return the latest publishedAt of any version; None if there are no versions."""
    ((time,),) = read(LAST_PUBLISHED, {})
    return time and str(time)
