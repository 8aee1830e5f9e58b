"""Search: one statement finds, ranks and counts the widgets, and renders the page as JSON.

It reads the tables listing, listing_text and summary, which the triggers of schema.sql maintain.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from catalog.store.json_sql import ADMITS, NEWEST_FIRST, VERSION_ADMITS
from catalog.store.sdk_intervals import sdk_key
from catalog.store.search_params import SearchQuery
from catalog.store.sqlite import Connection

# Each trigram is one more list to read, and so many leave few candidates.
MAX_TRIGRAMS = 12


class PageRevision(NamedTuple):
    """The revision of the catalog that a page shows."""

    content: int
    downloads: int
    # An install of a widget that still has fewer downloads does not change the page.
    least_downloads: int


# Without words, the page is read from an index that is in the right order.
# CROSS JOIN, here and below, makes SQLite begin with the table on the left, which has fewer rows.
PAGE = """
WITH total AS (SELECT count(*) AS total FROM listing WHERE {conditions}),
page AS (
    SELECT widget_id, downloads FROM listing WHERE {ordered_conditions}
    ORDER BY downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
{rendered}"""

# With words, the order is: the name equals q, begins with q, contains every word, the others.
RANKED_PAGE = """
WITH hit AS MATERIALIZED (
    SELECT widget_id, downloads, scope, name, CASE
        WHEN NOT ({name_conditions}) THEN 3
        WHEN folded_name = :q THEN 0
        WHEN substr(folded_name, 1, length(:q)) = :q THEN 1
        ELSE 2 END AS tier
    FROM {candidates} AND {conditions}
),
total AS (SELECT count(*) AS total FROM hit),
page AS (
    SELECT widget_id, downloads FROM hit
    ORDER BY tier, downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
{rendered}"""

# The widgets that have all trigrams; or, if the words have no trigrams, every widget.
INDEXED = """listing_text CROSS JOIN listing ON listing.widget_id = listing_text.rowid
    WHERE listing_text MATCH :trigrams"""
SCANNED = "listing WHERE true"

RENDERED = """
SELECT content, revision.downloads, (SELECT total FROM total) AS total, least_downloads, widgets
FROM revision CROSS JOIN (
    SELECT min(page.downloads) AS least_downloads, CAST(group_concat(
        head || coalesce(nullif(page.downloads, -1), 'null') || ',"latestVersion":' || latest
        {compatible} || '}}') AS BLOB) AS widgets
    FROM page CROSS JOIN summary USING (widget_id)
)
"""

# The JSON of the latest version is at hand, and for most widgets that is the version.
COMPATIBLE = f"""
|| ',"latestCompatibleVersion":' || CASE
    WHEN {ADMITS.format(range_id="summary.sdk_range_id")} THEN latest
    ELSE coalesce((
        SELECT entry FROM version_entry WHERE id = (
            SELECT id FROM version WHERE widget_id = summary.widget_id AND yanked = 0
            AND {VERSION_ADMITS}
            ORDER BY {NEWEST_FIRST} LIMIT 1)
    ), 'null') END
"""

NAMED = "(name = :name COLLATE NOCASE OR scope || '/' || name = :name COLLATE NOCASE)"


def find_widgets(connection: Connection, search: SearchQuery) -> tuple[PageRevision, bytes]:
    """One page of summaries, as the JSON of the response, and the revision that it shows."""
    is_ranked = search.q and search.name is None
    row = _first_row(connection, RANKED_PAGE if is_ranked else PAGE, search)
    is_full = row["total"] >= search.page * search.limit
    # With words, a widget with few downloads can be on a page before one with many.
    least_downloads = row["least_downloads"] if is_full and not search.q else -1
    revision = PageRevision(row["content"], row["downloads"], least_downloads)
    end = f'],"total":{row["total"]},"page":{search.page},"limit":{search.limit}}}\n'
    return revision, b"".join((b'{"widgets":[', row["widgets"] or b"", end.encode()))


# An install moves its widget forward. If the widget does not match, or is still behind the last one
# of a full page, the page stays as it is.
VALID_REVISION = """
SELECT content, downloads, :least_downloads FROM revision
WHERE content = :content AND (
    downloads = :downloads
    OR downloads - :downloads <= 100 AND NOT EXISTS (
        SELECT 1 FROM recent_install CROSS JOIN listing USING (widget_id)
        WHERE revision > :downloads AND listing.downloads >= :least_downloads AND {conditions}))
"""


def revalidate(
    connection: Connection, search: SearchQuery, revision: PageRevision
) -> PageRevision | None:
    """The current revision, if the page is still the same at it; else None."""
    row = _first_row(connection, VALID_REVISION, search, **revision._asdict())
    return PageRevision(*row) if row else None


def _first_row(connection: Connection, template: str, search: SearchQuery, **values: object) -> Any:
    words = _needed_words(search.words)
    trigrams = [trigram for word in words for trigram in _trigrams(word)]
    trigrams = list(dict.fromkeys(trigrams))[:MAX_TRIGRAMS]
    statement = _statement(
        template,
        words=len(words),
        is_indexed=bool(trigrams),
        has_name=search.name is not None,
        has_scope=search.scope is not None,
        has_official=search.official is not None,
        has_sdk=search.compat_sdk is not None,
    )
    values |= {f"word{number}": word for number, word in enumerate(words)}
    values |= {
        "q": search.q,
        # In quotes, no character has a meaning of its own.
        "trigrams": " ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams),
        "name": search.name,
        "scope": search.scope,
        "official": search.official,
        "sdk": search.compat_sdk and sdk_key(search.compat_sdk),
        "limit": search.limit,
        "offset": search.offset,
    }
    return connection.execute(statement, values).fetchone()


def _needed_words(words: list[str]) -> list[str]:
    """The words that a text is searched for: without those that are part of another word.

    Each number of words has a statement of its own, and prepared statements are cached: more than
    eight words are filled up to a power of two with the last one.
    """
    text = " ".join(words)
    needed = [word for word in words if text.count(word) == 1]
    if len(needed) > 8:
        count = 1 << (len(needed) - 1).bit_length()
        needed += needed[-1:] * (count - len(needed))
    return needed


# The index stores two noncharacters as U+FFFD. No text contains a NUL.
UNINDEXED = re.compile("[\0\ufffd\ufffe\uffff]")


def _trigrams(word: str) -> list[str]:
    """Up to three trigrams of the word, nearly as selective as all; none if the index has none."""
    if len(word) < 3 or UNINDEXED.search(word):
        return []
    last = len(word) - 3
    return [word[start : start + 3] for start in {0, last // 2, last}]


@lru_cache(maxsize=128)
def _statement(
    template: str,
    *,
    words: int,
    is_indexed: bool,
    has_name: bool,
    has_scope: bool,
    has_official: bool,
    has_sdk: bool,
) -> str:
    """The statement for searches of one shape."""
    matches = [f"instr(listing.folded_text, :word{number})" for number in range(words)]
    if has_name:
        matches = [NAMED, f"NOT ({' AND '.join(matches)})"]
    in_scope = ["scope = :scope"] if has_scope else []
    official = "official = :official"
    conditions = [*matches, *in_scope, *([official] if has_official else [])]
    # The plus keeps SQLite from using an index that is not in the order of the page.
    ordered_conditions = [*matches, *in_scope, *([f"+{official}"] if has_official else [])]
    return template.format(
        candidates=INDEXED if is_indexed else SCANNED,
        conditions=" AND ".join(conditions) or "true",
        ordered_conditions=" AND ".join(ordered_conditions) or "true",
        name_conditions=" AND ".join(f"instr(folded_name, :word{n})" for n in range(words)),
        rendered=RENDERED.format(compatible=COMPATIBLE if has_sdk else ""),
    )
