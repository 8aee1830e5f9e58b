"""Search: one statement finds, ranks and counts the widgets, and renders the page as JSON.

It reads three tables, which the triggers of schema.sql maintain for every listed widget:

- listing: the columns to filter and to sort by, and the folded text to find words in.
- listing_text: an index of the trigrams (three characters in a row) of the folded text. It gives
  candidates; instr() then decides whether the text contains the words.
- summary: the rendered JSON of the widget, in two parts around the download count.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from catalog.store.json_sql import ADMITS, LATEST_COMPATIBLE_ENTRY, VERSION_ADMITS
from catalog.store.sdk_intervals import sdk_key
from catalog.store.search_params import SearchQuery
from catalog.store.sqlite import Connection

# The index reads one more list for each trigram, and this many leave few candidates.
MAX_TRIGRAMS = 12


class PageRevision(NamedTuple):
    """The revision of the catalog that a page of results shows."""

    content: int
    downloads: int
    # The page stays valid while only widgets with fewer downloads than this are installed.
    least_downloads: int


# The sets of SDKs that have this SDK. The list is read once for each statement.
SUPPORTS = "SELECT support_id FROM sdk_support_interval WHERE low <= :sdk AND :sdk < high"
HAS_COMPATIBLE_VERSION = f"""EXISTS (
    SELECT 1 FROM version
    WHERE version.widget_id = listing.widget_id AND yanked = 0 AND {VERSION_ADMITS})"""
IS_COMPATIBLE = f"""
iif(support_id IS NULL, {HAS_COMPATIBLE_VERSION}, support_id IN ({SUPPORTS}))
"""

# Without words, the page is read from an index that is in the order of the results.
# CROSS JOIN, here and below, makes SQLite begin with the table on the left, which has fewer rows.
UNRANKED_PAGE = """
WITH total AS ({count}),
page AS (
    SELECT widget_id, downloads FROM listing WHERE {index_conditions}
    ORDER BY {key}, scope, name LIMIT :limit OFFSET :offset
)
{render_page}"""

COUNT = "SELECT count(*) AS total FROM listing WHERE {conditions}"
# Without other filters, the widgets of each set are counted already.
COUNT_COMPATIBLE = f"""
SELECT coalesce(sum(widgets), 0) + (
    SELECT count(*) FROM listing INDEXED BY listing_without_support
    WHERE support_id IS NULL AND {HAS_COMPATIBLE_VERSION}) AS total
FROM sdk_support WHERE id IN ({SUPPORTS})
"""

# The order of results without words, or by request. An empty date is before all others.
SORT_KEYS = {
    "installs": "downloads DESC",
    "updated": "updated DESC",
    "created": "created DESC",
    "name": "folded_name",
}

# With words, the order is: the name equals q, begins with q, contains every word, the others.
RANKED_PAGE = """
WITH hit AS MATERIALIZED (
    SELECT widget_id, downloads, scope, name, CASE
        WHEN NOT ({name_conditions}) THEN 3
        WHEN folded_name = :q THEN 0
        WHEN substr(folded_name, 1, length(:q)) = :q THEN 1
        ELSE 2 END AS tier
    FROM {candidates} WHERE {conditions}
),
total AS (SELECT count(*) AS total FROM hit),
page AS (
    SELECT widget_id, downloads FROM hit
    ORDER BY tier, downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
{render_page}"""

SORTED_PAGE = """
WITH hit AS MATERIALIZED (
    SELECT widget_id, downloads, updated, created, folded_name, scope, name
    FROM {candidates} WHERE {conditions}
),
total AS (SELECT count(*) AS total FROM hit),
page AS (
    SELECT widget_id, downloads FROM hit
    ORDER BY {key}, scope, name LIMIT :limit OFFSET :offset
)
{render_page}"""

# The widgets with all trigrams of the words; every widget if the words have no trigram.
WITH_TRIGRAMS = """listing_text CROSS JOIN listing
    ON listing.widget_id = listing_text.rowid AND listing_text MATCH :trigrams"""
EVERY_WIDGET = "listing"

# The stored download count is -1 for null.
RENDER_PAGE = """
SELECT content, revision.downloads, (SELECT total FROM total) AS total, least_downloads, widgets
FROM revision CROSS JOIN (
    SELECT min(page.downloads) AS least_downloads, CAST(group_concat(
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

HAS_NAME = "(name = :name COLLATE NOCASE OR scope || '/' || name = :name COLLATE NOCASE)"


def find_widgets(connection: Connection, query: SearchQuery) -> tuple[PageRevision, bytes]:
    """Return one page of results as the JSON of the response, and the revision that it shows."""
    template = UNRANKED_PAGE
    if query.q and query.name is None:
        template = SORTED_PAGE if query.sort else RANKED_PAGE
    row = _fetch_row(connection, template, query)
    revision = PageRevision(row["content"], row["downloads"], _least_downloads(query, row))
    end = f'],"total":{row["total"]},"page":{query.page},"limit":{query.limit}}}\n'
    return revision, b"".join((b'{"widgets":[', row["widgets"] or b"", end.encode()))


def _least_downloads(query: SearchQuery, row: Any) -> int:
    """Return the downloads below which an installed widget does not belong on the page."""
    least: int | None = row["least_downloads"]
    if least is None:
        return -1
    # In the other orders an install changes only the count that the page shows.
    if query.sort in (None, "installs"):
        is_full = row["total"] >= query.page * query.limit
        # With words, a widget with few downloads can be on a page before one with many.
        return least if is_full and not query.q else -1
    return least


# An install can move its widget only forward in the results. So the page stays the same if the
# widget does not match the query, or still has fewer downloads than the last one of a full page.
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
    row = _fetch_row(connection, REVALIDATE_SEARCH, query, **revision._asdict())
    return PageRevision(*row) if row else None


def _fetch_row(connection: Connection, template: str, query: SearchQuery, **values: object) -> Any:
    """Return the first row of the template's statement for the query."""
    words = _pad_words(_needed_words(query.words))
    trigrams = [trigram for word in words for trigram in _trigrams(word)]
    trigrams = list(dict.fromkeys(trigrams))[:MAX_TRIGRAMS]
    statement = _build_statement(
        template,
        words=len(words),
        has_trigrams=bool(trigrams),
        has_name=query.name is not None,
        has_scope=query.scope is not None,
        has_official=query.official is not None,
        has_sdk=query.compat_sdk is not None,
        compatible=query.compatible,
        sort=query.sort or "installs",
    )
    values |= {f"word{number}": word for number, word in enumerate(words)}
    values |= {
        "q": query.q,
        # In quotes, FTS5 takes every character literally.
        "trigrams": " ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams),
        "name": query.name,
        "scope": query.scope,
        "official": query.official,
        "sdk": query.compat_sdk and sdk_key(query.compat_sdk),
        "limit": query.limit,
        "offset": query.offset,
    }
    return connection.execute(statement, values).fetchone()


@lru_cache(maxsize=128)
def _build_statement(
    template: str,
    *,
    words: int,
    has_trigrams: bool,
    has_name: bool,
    has_scope: bool,
    has_official: bool,
    has_sdk: bool,
    compatible: bool,
    sort: str,
) -> str:
    """Return the statement for queries that have these parameters and this number of words."""
    matches = [f"instr(listing.folded_text, :word{number})" for number in range(words)]
    if has_name:
        matches = [HAS_NAME, f"NOT ({' AND '.join(matches)})"]
    in_scope = ["scope = :scope"] if has_scope else []
    official = "official = :official"
    compatible_only = [IS_COMPATIBLE] if compatible else []
    conditions = [*matches, *in_scope, *([official] if has_official else []), *compatible_only]
    # The plus keeps SQLite from using an index that is not in the order of the page.
    in_order = [f"+{official}"] if has_official else []
    index_conditions = [*matches, *in_scope, *in_order, *compatible_only]
    joined_conditions = " AND ".join(conditions) or "true"
    count = COUNT_COMPATIBLE if conditions == [IS_COMPATIBLE] else COUNT
    return template.format(
        candidates=WITH_TRIGRAMS if has_trigrams else EVERY_WIDGET,
        conditions=joined_conditions,
        count=count.format(conditions=joined_conditions),
        index_conditions=" AND ".join(index_conditions) or "true",
        key=SORT_KEYS[sort],
        name_conditions=" AND ".join(f"instr(folded_name, :word{n})" for n in range(words)),
        render_page=RENDER_PAGE.format(latest_compatible=LATEST_COMPATIBLE if has_sdk else ""),
    )


def _needed_words(words: list[str]) -> list[str]:
    """Return the words that are not part of another word, which is searched for anyway."""
    text = " ".join(words)
    return [word for word in words if text.count(word) == 1]


def _pad_words(words: list[str]) -> list[str]:
    """Repeat the last word so that more than eight words become a power of two.

    Each number of words has its own statement, and the cache of prepared statements is small.
    """
    if len(words) <= 8:
        return words
    count = 1 << (len(words) - 1).bit_length()
    return words + words[-1:] * (count - len(words))


# The index stores the noncharacters U+FFFE and U+FFFF as U+FFFD. No text contains a NUL.
NOT_INDEXED = re.compile("[\0\ufffd\ufffe\uffff]")


def _trigrams(word: str) -> list[str]:
    """Return up to three trigrams of the word, nearly as selective as all; none if not indexed."""
    if len(word) < 3 or NOT_INDEXED.search(word):
        return []
    last = len(word) - 3
    return [word[start : start + 3] for start in {0, last // 2, last}]
