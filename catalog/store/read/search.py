"""Search: one statement finds, ranks and counts the widgets, and renders the page as JSON.

The statement reads three tables with rows for every listed widget. Each transaction that changes a
widget rewrites that widget's rows (catalog/store/schema/derived.py):

- listing: the columns to filter and sort by, and the folded text to search for words.
- listing_text: an index of the trigrams (three characters in a row) in the folded text. The index
  finds candidates; instr() then decides whether they contain the words (see search_conditions.py).
- summary: the widget's rendered JSON, in two parts around the download count.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from ...domain.documents import Json
from ..connection.sqlite import Connection, fetch_one
from .candidates import ADMITS, Candidates, all_of
from .search_conditions import IN_SCOPE, count_words, find_conditions
from .search_params import SearchQuery

# The maximum number of entries in Connection.counts.
MAX_COUNTS = 100


class PageRevision(NamedTuple):
    """The catalog revision that a page of results shows."""

    content: int
    downloads: int
    # The page stays valid if a widget with fewer downloads than this is installed.
    least_downloads: int


# Without words, the page is read from an index that is in the order of the results. The results are
# counted unless a cached total is still valid. The page ends with the last result, so that SQLite
# reads no further widgets. CROSS JOIN, here and below, makes SQLite begin with the table on the
# left, which has fewer rows.
TOTAL = """
WITH total AS MATERIALIZED (
    SELECT iif(content = :counted_at, :counted, (
        SELECT count(*) FROM listing WHERE {conditions})) AS total
    FROM revision
),"""
PAGE = f"""{TOTAL}
page AS (
    SELECT widget_id, downloads FROM listing WHERE {{index_conditions}}
    ORDER BY {{key}}, scope, name
    LIMIT max(min(:limit, (SELECT total FROM total) - :offset), 0) OFFSET :offset
)
"""

# Sorts all widgets by when their newest candidate before a given time was published. An index on
# times finds these candidates. Widgets without a candidate are read only if the page reaches them.
PAGE_BEFORE = f"""{TOTAL}
dated AS MATERIALIZED (
    SELECT widget_id, downloads, published_at, scope, name
    FROM version CROSS JOIN listing USING (widget_id)
    WHERE {{is_candidate}} AND NOT EXISTS (
        SELECT 1 FROM version AS newer
        WHERE newer.widget_id = listing.widget_id AND {{is_candidate}}
          AND (newer.published_at, newer.precedence, newer.version)
            > (version.published_at, version.precedence, version.version))
    ORDER BY published_at DESC, scope, name LIMIT :offset + :limit
),
undated AS (
    SELECT widget_id, downloads, '', scope, name FROM listing WHERE NOT EXISTS (
        SELECT 1 FROM version WHERE version.widget_id = listing.widget_id AND {{is_candidate}})
    ORDER BY scope, name LIMIT max(:offset + :limit - (SELECT count(*) FROM dated), 0)
),
page AS (
    SELECT widget_id, downloads FROM (SELECT * FROM dated UNION ALL SELECT * FROM undated)
    ORDER BY published_at DESC, scope, name LIMIT :limit OFFSET :offset
)
"""

# A search with words first finds all results, reading only the columns needed for sorting.
PAGE_WITH_WORDS = """
WITH hit AS MATERIALIZED (
    SELECT widget_id, downloads, scope, name, {column} FROM {source} WHERE {conditions}
),
total AS (SELECT count(*) AS total FROM hit),
page AS (
    SELECT widget_id, downloads FROM hit
    ORDER BY {key}, scope, name LIMIT :limit OFFSET :offset
)
"""

# The order of results for each value of the sort parameter; without words, the default is installs.
# Widgets with an empty date come last.
SORT_KEYS = {
    "installs": "downloads DESC",
    "updated": "updated DESC",
    "created": "created DESC",
    "name": "folded_name",
}
# With words, widgets whose name equals q come first, then names that begin with q, then names that
# contain every word, then all others.
RANK = """CASE
    WHEN NOT ({in_name}) THEN 3
    WHEN folded_name = :q THEN 0
    WHEN substr(folded_name, 1, length(:q)) = :q THEN 1
    ELSE 2 END AS rank"""
# Pages compare names without their hyphens, and a widget also ranks first if its scope/name equals
# q. Widgets that match only by scope or keywords come last.
PAGE_RANK = """CASE
    WHEN replace(folded_name, '-', '') = :q
        OR instr('/' || listing.page_text, '/' || :q || char(10)) THEN 0
    WHEN NOT ({in_name}) THEN iif({in_text}, 3, 4)
    WHEN substr(replace(folded_name, '-', ''), 1, length(:q)) = :q THEN 1
    ELSE 2 END AS rank"""

# A download count of -1 stands for null.
RENDER_PAGE = """
SELECT content, revision.downloads, (SELECT total FROM total) AS total, least_downloads, widgets,
    pictures
FROM revision CROSS JOIN (
    SELECT coalesce(min(page.downloads), -1) AS least_downloads, {pictures} AS pictures,
        CAST(group_concat(
            head || coalesce(nullif(page.downloads, -1), 'null') || ',"latestVersion":' || {latest}
            {latest_compatible} {picture} || '}}') AS BLOB) AS widgets
    FROM page CROSS JOIN summary USING (widget_id)
)
"""

LATEST_COMPATIBLE = """
|| ',"latestCompatibleVersion":' || {entry}
"""
# For most widgets, the newest candidate is the latest version, whose JSON is in the summary.
IF_LATEST = "CASE WHEN {is_latest} THEN {latest} ELSE coalesce({entry}, 'null') END"
IS_LATEST_COMPATIBLE = ADMITS.format(range_id="summary.sdk_range_id")


# SQLite cannot percent-encode a widget's name in its picture's URL, so this character marks where
# each picture goes. JSON escapes the character, so it cannot occur in a string.
PICTURE_MARK = b"\x1f"
MARK_PICTURE = """|| ',"picture":' || char(31)"""
# The scope, name and picture of each widget on the page, or null for a widget without a picture.
PICTURES = """json_group_array(json((
    SELECT json_array(scope, name, json(picture))
    FROM about JOIN widget ON widget.id = about.widget_id
    WHERE about.widget_id = summary.widget_id AND picture IS NOT NULL)))"""
# Takes the scope, name and stored picture of a widget, and returns the picture for the results.
RenderPicture = Callable[[str, str, Json], Json | None]


def find_widgets(
    connection: Connection, query: SearchQuery, render_picture: RenderPicture
) -> tuple[PageRevision, bytes]:
    """Return the response with one page of results as JSON, and the revision that it shows."""
    # Totals are cached only for searches that read versions. Other searches count quickly in an
    # index, or find all results anyway.
    key = total_key(query) if query.reads_versions else None
    counted_at, counted = connection.counts.get(key, (None, None))
    values = {
        **find_conditions(query).values,
        "limit": query.limit,
        "offset": query.offset,
        "counted_at": counted_at,
        "counted": counted,
    }
    row = fetch_one(connection, _build_statement(query), values)
    if key and row["content"] != counted_at:
        remember_count(connection, key, row["content"], row["total"])
    revision = PageRevision(row["content"], row["downloads"], row["least_downloads"])
    end = f'],"total":{row["total"]},"page":{query.page},"limit":{query.limit}}}\n'
    widgets = row["widgets"] or b""
    if query.pictures:
        widgets = _insert_pictures(widgets, json.loads(row["pictures"]), render_picture)
    return revision, b"".join((b'{"widgets":[', widgets, end.encode()))


def _insert_pictures(
    widgets: bytes, pictures: Iterable[tuple[str, str, Json] | None], render: RenderPicture
) -> bytes:
    """Replace each widget's placeholder in the JSON with the widget's picture."""
    before, *after = widgets.split(PICTURE_MARK)
    parts = [before]
    for picture, text in zip(pictures, after, strict=True):
        shown = render(*picture) if picture else None
        parts += [json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode(), text]
    return b"".join(parts)


# A search with more words than this does not look for close matches.
MAX_CLOSE_WORDS = 10
MOST_WORDS = "SELECT coalesce(max({count}), 0) FROM listing WHERE {conditions}"


def find_close_query(connection: Connection, query: SearchQuery) -> SearchQuery | None:
    """Return a search for the widgets that match the most words; None if no widget matches any."""
    found, count = find_conditions(query), len(query.words)
    if not 2 <= count <= MAX_CLOSE_WORDS:
        return None
    words, others = found.matches[:count], found.matches[count:]
    statement = MOST_WORDS.format(
        count=count_words(words), conditions=all_of([*others, *found.filters.values()])
    )
    (most,) = fetch_one(connection, statement, found.values)
    return replace(query, least_words=most) if most else None


def _build_statement(query: SearchQuery) -> str:
    """Return the statement that finds and counts the results, and renders one page of them."""
    found = find_conditions(query)
    filters = [*found.filters.values()]
    conditions = all_of([*found.matches, *filters])
    key = SORT_KEYS[query.sort or "installs"]
    column = key.split()[0]
    expression = found.updated if column == "updated" else column
    if not query.q:
        # The unary plus prevents SQLite from using an index that is not in the order of the page.
        in_order = [each if each is IN_SCOPE else f"+({each})" for each in filters]
        indexed = all_of([*found.matches, *in_order])
        order = key.replace(column, expression)
        page = PAGE.format(conditions=conditions, index_conditions=indexed, key=order)
        if query.sort == "updated" and query.candidates.before and not [*found.matches, *filters]:
            is_candidate = query.latest.condition()
            page = PAGE_BEFORE.format(conditions=conditions, is_candidate=is_candidate)
    else:
        rank = PAGE_RANK if query.for_pages else RANK
        ranked = rank.format(in_name=found.in_name, in_text=found.in_text)
        if query.least_words is not None:
            # Close matches with the most words in their name come first.
            ranked = f"-({found.words_in_name}) AS rank"
        page = PAGE_WITH_WORDS.format(
            column=f"{expression} AS {column}" if query.sort else ranked,
            source=found.source,
            conditions=conditions,
            key=key if query.sort else "rank, downloads DESC",
        )
    latest = _render_newest(query.latest)
    compatible = ""
    if query.candidates.sdk:
        compatible = LATEST_COMPATIBLE.format(entry=_render_newest(query.candidates))
    return page + RENDER_PAGE.format(
        latest=latest,
        latest_compatible=compatible,
        picture=MARK_PICTURE if query.pictures else "",
        pictures=PICTURES if query.pictures else "NULL",
    )


def _render_newest(candidates: Candidates) -> str:
    """Return the SQL expression for the JSON of a summary row's newest candidate, or null."""
    latest, published = "latest", "published_at"
    conditions = []
    if candidates.stable and candidates.sdk is None:
        latest, published = "coalesce(stable, latest)", "stable_at"
    elif candidates.stable:
        conditions.append("stable IS NULL")
    if candidates.sdk is not None:
        conditions.append(IS_LATEST_COMPATIBLE)
    if candidates.before is not None:
        conditions.append(f"summary.{published} < :before")
    if not conditions:
        return latest
    entry = candidates.newest_entry("summary.widget_id")
    return IF_LATEST.format(is_latest=all_of(conditions), latest=latest, entry=entry)


def total_key(query: SearchQuery) -> SearchQuery:
    """Return the key for a query's total in Connection.counts; all pages share the total."""
    return replace(query, page=1, limit=1, sort=None, pictures=False)


def remember_count(connection: Connection, key: object, content: int, count: object) -> None:
    """Store a count in Connection.counts, with the content revision that it is valid for."""
    if len(connection.counts) >= MAX_COUNTS:
        connection.counts.clear()
    connection.counts[key] = content, count


# An install can only move its widget up in the results. So the page stays the same if the widget
# does not match the query, or still has fewer downloads than every widget on the page.
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
    """Return the current revision if the page has not changed, else None."""
    found = find_conditions(query)
    conditions = all_of([*found.matches, *found.filters.values()])
    statement = REVALIDATE_SEARCH.format(conditions=conditions)
    row = fetch_one(connection, statement, {**found.values, **revision._asdict()})
    return PageRevision(*row) if row else None
