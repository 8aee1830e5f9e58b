"""Search: one statement finds, ranks and counts the widgets, and renders the page as JSON.

It reads three tables with rows for every listed widget, which each transaction that changes the
widget writes again (catalog/store/schema/derived.py):

- listing: the columns to filter and to sort by, and the folded text to find words in.
- listing_text: an index of the trigrams (three characters in a row) of the folded text. It gives
  candidates; instr() then decides whether the text contains the words: see search_conditions.py.
- summary: the rendered JSON of the widget, in two parts around the download count.
"""

from dataclasses import replace
from typing import NamedTuple

from ..connection.sqlite import Connection
from .json_sql import ADMITS, LATEST_COMPATIBLE_ENTRY
from .search_conditions import IN_SCOPE, all_of, find_conditions
from .search_params import SearchQuery

# Connection.counts has at most so many entries.
MAX_COUNTS = 100


class PageRevision(NamedTuple):
    """The revision of the catalog that a page of results shows."""

    content: int
    downloads: int
    # The page stays valid while only widgets with fewer downloads than this are installed.
    least_downloads: int


# Without words, the page is read from an index that is in the order of the results. The total is
# counted unless it is known for this content. The page ends with the last result, so that no widget
# after it is looked at.
# CROSS JOIN, here and below, makes SQLite begin with the table on the left, which has fewer rows.
PAGE = """
WITH total AS MATERIALIZED (
    SELECT iif(content = :counted_at, :counted, (
        SELECT count(*) FROM listing WHERE {conditions})) AS total
    FROM revision
),
page AS (
    SELECT widget_id, downloads FROM listing WHERE {index_conditions}
    ORDER BY {key}, scope, name
    LIMIT max(min(:limit, (SELECT total FROM total) - :offset), 0) OFFSET :offset
)
"""

# With words, all results are found first, with only what the order needs.
PAGE_WITH_WORDS = """
WITH hit AS MATERIALIZED (
    SELECT widget_id, downloads, scope, name, 1 AS place, {column}
    FROM {source} WHERE {conditions}
    {or_typed}
),
total AS (SELECT count(*) AS total FROM hit),
page AS (
    SELECT widget_id, downloads FROM hit
    ORDER BY {key}, scope, name LIMIT :limit OFFSET :offset
)
"""

# What is found by its typed name comes before what the words find, the rest of a typed scope after.
OR_TYPED = """
UNION ALL
SELECT widget_id, downloads, scope, name,
    iif(:typed_scope IS NULL AND name <> :typed COLLATE NOCASE, 2, 0), {column}
FROM listing WHERE {conditions}
"""

# The order of results without words, or by request. An empty date is before all others.
SORT_KEYS = {
    "installs": "downloads DESC",
    "updated": "updated DESC",
    "created": "created DESC",
    "name": "folded_name",
}
# With words, the order is: the name equals q, begins with q, contains every word, the others.
RANK = """CASE
    WHEN NOT ({in_name}) THEN 3
    WHEN folded_name = :q THEN 0
    WHEN substr(folded_name, 1, length(:q)) = :q THEN 1
    ELSE 2 END AS rank"""

# The stored download count is -1 for null.
RENDER_PAGE = """
SELECT content, revision.downloads, (SELECT total FROM total) AS total, least_downloads, widgets
FROM revision CROSS JOIN (
    SELECT coalesce(min(page.downloads), -1) AS least_downloads, CAST(group_concat(
        head || coalesce(nullif(page.downloads, -1), 'null') || ',"latestVersion":' || latest
        {latest_compatible} || '}}') AS BLOB) AS widgets
    FROM page CROSS JOIN summary USING (widget_id)
)
"""

# For most widgets it is the latest version, whose JSON is in the summary.
LATEST_COMPATIBLE = f"""
|| ',"latestCompatibleVersion":' || CASE
    WHEN {ADMITS.format(range_id="summary.sdk_range_id")} THEN latest
    ELSE coalesce({LATEST_COMPATIBLE_ENTRY.format(widget_id="summary.widget_id")}, 'null') END
"""


def find_widgets(connection: Connection, query: SearchQuery) -> tuple[PageRevision, bytes]:
    """Return one page of results as the JSON of the response, and the revision that it shows."""
    # Other searches are counted in an index alone, or find all results anyway.
    key = total_key(query) if query.reads_versions else None
    counted_at, counted = connection.counts.get(key, (None, None))
    values = {
        **find_conditions(query).values,
        "limit": query.limit,
        "offset": query.offset,
        "counted_at": counted_at,
        "counted": counted,
    }
    row = connection.execute(_build_statement(query), values).fetchone()
    if key and row["content"] != counted_at:
        remember_count(connection, key, row["content"], row["total"])
    revision = PageRevision(row["content"], row["downloads"], row["least_downloads"])
    end = f'],"total":{row["total"]},"page":{query.page},"limit":{query.limit}}}\n'
    return revision, b"".join((b'{"widgets":[', row["widgets"] or b"", end.encode()))


def _build_statement(query: SearchQuery) -> str:
    """Return the statement that finds, counts and renders the page."""
    found = find_conditions(query)
    filters = [*found.filters.values()]
    conditions = all_of([*found.matches, *filters])
    key = SORT_KEYS[query.sort or "installs"]
    if not query.q:
        # The plus keeps SQLite from using an index that is not in the order of the page.
        in_order = [each if each is IN_SCOPE else f"+({each})" for each in filters]
        indexed = all_of([*found.matches, *in_order])
        page = PAGE.format(conditions=conditions, index_conditions=indexed, key=key)
    else:
        column = key.split()[0] if query.sort else RANK.format(in_name=found.in_name)
        typed = OR_TYPED.format(column=column, conditions=all_of([*found.typed, *filters]))
        page = PAGE_WITH_WORDS.format(
            column=column,
            source=found.source,
            conditions=conditions,
            or_typed=typed if found.typed else "",
            key=key if query.sort else "place, rank, downloads DESC",
        )
    latest_compatible = LATEST_COMPATIBLE if query.compat_sdk else ""
    return page + RENDER_PAGE.format(latest_compatible=latest_compatible)


def total_key(query: SearchQuery) -> SearchQuery:
    """Return the key of the query's total in Connection.counts: the same for all of its pages."""
    return replace(query, page=1, limit=1, sort=None)


def remember_count(connection: Connection, key: object, content: int, count: object) -> None:
    """Keep what was counted at this revision of the content in Connection.counts."""
    if len(connection.counts) >= MAX_COUNTS:
        connection.counts.clear()
    connection.counts[key] = content, count


# An install can move its widget only forward in the results. So the page stays the same if the
# widget does not match the query, or still has fewer downloads than each one of the page.
REVALIDATE_SEARCH = """
SELECT content, downloads, :least_downloads FROM revision
WHERE content = :content AND (
    downloads = :downloads
    OR downloads - :downloads <= 100 AND NOT EXISTS (
        SELECT 1 FROM recent_install CROSS JOIN listing USING (widget_id)
        WHERE revision > :downloads AND listing.downloads >= :least_downloads AND {conditions}))
"""


def revalidate_search(
    connection: Connection, query: SearchQuery, revision: PageRevision
) -> PageRevision | None:
    """Return the current revision if the page is the same at it, else None."""
    found = find_conditions(query)
    conditions = all_of([*found.matches, *found.filters.values()])
    statement = REVALIDATE_SEARCH.format(conditions=conditions)
    row = connection.execute(statement, {**found.values, **revision._asdict()}).fetchone()
    return PageRevision(*row) if row else None
