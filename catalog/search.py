"""A search of the catalog: which widgets it finds, in their order, and its answer."""

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

from catalog.parameters import Search
from catalog.shelf import Shelf
from catalog.sqlite_file import Connection, DeadlineExceeded, snapshot
from catalog.summaries import ChangedError, Summaries

FEW_WORDS = 8  # as people type them
MANY = 2000  # hits from which on they are not all sorted for one page

# What an answer was made of: the revisions, and the least count that a widget must have for its
# installs to change the answer.
Seen = tuple[int, int, int]


def find_widgets(connection: Connection, search: Search, shelf: Shelf) -> tuple[Seen, bytes]:
    """The answer to a search, one page of summaries, and what it was made of."""
    try:
        return _answer(connection, search, shelf)
    except ChangedError:  # it seldom is, and to hold on to one state costs statements
        with snapshot(connection):
            return _answer(connection, search, shelf)


def _answer(connection: Connection, search: Search, shelf: Shelf) -> tuple[Seen, bytes]:
    hits = _find_hits(connection, search, shelf)
    summaries = Summaries(connection, shelf, hits.content)
    texts = summaries.texts(hits.ids, hits.counts, search.compat_sdk)
    rest = f'],"total":{hits.total},"page":{search.page},"limit":{search.limit}}}\n'
    is_full = hits.total >= search.page * search.limit
    least = int(hits.counts[-1]) if hits.counts and is_full and not search.q else -1
    seen = hits.content, hits.downloads, least
    return seen, b"".join((b'{"widgets":[', *texts, rest.encode()))


class Hits(NamedTuple):
    """A page of what a search finds, and how much there is in all."""

    content: int  # and the next: the revisions
    downloads: int
    total: int
    ids: list[str]
    counts: list[str]  # of installs; -1 where nothing was said


# CROSS JOIN, here and below, is SQLite's word for: begin on the left. There the rows are few.
PAGE = """
SELECT content, revision.downloads, (SELECT total FROM total), ids, counts
FROM revision CROSS JOIN (
    SELECT group_concat(widget_id) AS ids, group_concat(downloads) AS counts FROM hit)
"""

# Without words, the order is that of an index, and the page is read off its beginning.
BROWSE = f"""
WITH total AS (SELECT count(*) AS total FROM listing WHERE {{conditions}}),
hit AS (
    SELECT widget_id, downloads FROM listing WHERE {{in_order}}
    ORDER BY downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
{PAGE}"""

# The name is q, begins with q, holds every word, or does not.
TIER = """
CASE WHEN NOT ({name_holds_words}) THEN 3
     WHEN folded_name = :q THEN 0
     WHEN substr(folded_name, 1, length(:q)) = :q THEN 1
     ELSE 2 END
"""

# With words, the hits are counted and sorted in one pass, if they are not too many.
WORDS = f"""
WITH found AS MATERIALIZED (
    SELECT widget_id, {TIER} AS tier, downloads, scope, name FROM {{source}}
    WHERE {{match}} AND {{conditions}} LIMIT :many
),
total AS (SELECT count(*) AS total FROM found),
hit AS (
    SELECT widget_id, downloads FROM found
    ORDER BY tier, downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
{PAGE}"""

# Where to begin: at the trigrams of the words, or at every text, for words that have none.
INDEXED = "listing_text CROSS JOIN listing ON listing.widget_id = listing_text.rowid"
SCANNED = "listing"

# How far one must read to find many.
REACH = """
SELECT coalesce(max(widget_id), 0) FROM (
    SELECT widget_id FROM {source} WHERE {match} AND {conditions} LIMIT :many)
"""

# Of many hits, those with the words in their names are told, the others only counted: their order
# is that of an index, off which a page is read.
TALLY = """
SELECT (SELECT content FROM revision), count(*),
       coalesce(group_concat(CASE WHEN {name_holds_words} THEN widget_id END), '')
FROM {source} WHERE {match} AND {conditions}
"""
NAMED = f"""
WITH total AS (SELECT :total AS total),
hit AS (
    SELECT widget_id, downloads FROM json_each(:named) CROSS JOIN listing ON widget_id = value
    ORDER BY {TIER}, downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
{PAGE}"""
OTHERS = f"""
WITH total AS (SELECT :total AS total),
hit AS (
    SELECT widget_id, downloads FROM listing WHERE {{in_order}} AND NOT ({{name_holds_words}})
    ORDER BY downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
{PAGE}"""


def _find_hits(connection: Connection, search: Search, shelf: Shelf) -> Hits:
    question = Question(connection, search)
    if not search.q:
        return question.page(BROWSE)
    hits = question.page(WORDS)
    return hits if hits.total < MANY else _find_among_many(question, shelf, hits.content)


def _find_among_many(question: "Question", shelf: Shelf, content: int) -> Hits:
    search = question.search
    tallies = shelf.things((question.connection.generation, content), TALLY)
    key = (*search.words, search.scope, search.official)
    tally = tallies.get(key)
    if tally is None:
        (reach,) = question.ask(REACH)
        if reach < 2 * MANY:  # every other text has the words, as far as was seen
            if question.connection.is_hurried:
                raise DeadlineExceeded  # before it turns out
            question.is_indexed = False  # to read all texts is quicker than to look up so many
        counted, total, named = question.ask(TALLY)
        if counted != content:
            raise ChangedError
        tally = tallies[key] = total, named.split(",") if named else []
        shelf.count(len(named) * 10 + len(repr(key)))
    total, named = tally
    hits = question.page(NAMED, total=total, named=f"[{','.join(named)}]")
    if hits.content != content:
        raise ChangedError
    wanting = search.limit - len(hits.ids)
    if not wanting:
        return hits
    others = question.page(
        OTHERS, total=total, limit=wanting, offset=max(search.offset - len(named), 0)
    )
    if (others.content, others.downloads) != (content, hits.downloads):
        raise ChangedError
    return hits._replace(ids=hits.ids + others.ids, counts=hits.counts + others.counts)


# An install moves its widget forward. One that does not match, or is still behind the last of a
# full page, changes nothing there.
STILL_HOLDS = """
SELECT content, downloads, :least FROM revision
WHERE content = :content AND (
    downloads = :downloads
    OR downloads - :downloads <= 100 AND NOT EXISTS (
        SELECT 1 FROM installed CROSS JOIN listing USING (widget_id)
        WHERE revision > :downloads AND listing.downloads >= :least AND {conditions}))
"""


def still_holds(connection: Connection, search: Search, seen: Seen) -> Seen | None:
    """What the answer is as good as made of now; None where it is no longer the same."""
    content, downloads, least = seen
    made_of = {"content": content, "downloads": downloads, "least": least}
    row = Question(connection, search).ask(STILL_HOLDS, **made_of)
    return row and tuple(row)


# The index reads two non-characters as U+FFFD, and no text has a NUL in it.
UNINDEXED = re.compile("[\0\ufffd\ufffe\uffff]")


def _trigrams(word: str) -> list[str]:
    """Trigrams that every text with the word has; none where the index cannot tell.

    For each there is a list to be read: three tell nearly as much as all of them.
    """
    if len(word) < 3 or UNINDEXED.search(word):
        return []
    last = len(word) - 3
    return [word[at : at + 3] for at in {0, last // 2, last}]


class Question:
    """A search as SQLite is asked it."""

    def __init__(self, connection: Connection, search: Search) -> None:
        self.connection = connection
        self.search = search
        words = search.words
        trigrams = [trigram for word in words for trigram in _trigrams(word)]
        self._values: dict[str, object] = {
            **{f"word{number}": word for number, word in enumerate(words[:FEW_WORDS])},
            "words": json.dumps(words),
            # Each is a quoted string, in which no sign of the index's language has a meaning.
            "match": " ".join('"' + each.replace('"', '""') + '"' for each in trigrams),
            "many": MANY,
            "q": search.q,
            "scope": search.scope,
            "official": search.official,
            "limit": search.limit,
            "offset": search.offset,
        }
        has_scope, has_official = search.scope is not None, search.official is not None
        self.is_indexed = bool(trigrams)
        self._shape = min(len(words), FEW_WORDS + 1), has_scope, has_official

    def ask(self, template: str, **values: object) -> Any:
        """The first row of the answer to a statement, made for this search."""
        statement = _made_for(template, self.is_indexed, *self._shape)
        return self.connection.execute(statement, {**self._values, **values}).fetchone()

    def page(self, template: str, **values: object) -> Hits:
        content, downloads, total, ids, counts = self.ask(template, **values)
        ids, counts = (ids.split(","), counts.split(",")) if ids else ([], [])
        return Hits(content, downloads, total, ids, counts)


@lru_cache(maxsize=64)  # a usual search is of one of a few shapes
def _made_for(template: str, indexed: bool, words: int, has_scope: bool, has_official: bool) -> str:
    holds = _holds("listing.folded_text", words)
    scope = ["scope = :scope"] if has_scope else []
    official = "official = :official"
    return template.format(
        source=INDEXED if indexed else SCANNED,
        match="listing_text MATCH :match" if indexed else "true",
        conditions=" AND ".join([*holds, *scope, *([official] if has_official else [])]) or "true",
        # A plus keeps SQLite from an index that counts well but is in no order.
        in_order=" AND ".join([*holds, *scope, *([f"+{official}"] if has_official else [])])
        or "true",
        name_holds_words=" AND ".join(_holds("folded_name", words)),
    )


def _holds(column: str, words: int) -> list[str]:
    """The conditions that a text holds the words; of more than a few, one for all of them.

    SQLite prepares each statement once and keeps it: there must not be one for each number.
    """
    if words > FEW_WORDS:
        return [f"NOT EXISTS (SELECT 1 FROM json_each(:words) WHERE NOT instr({column}, value))"]
    return [f"instr({column}, :word{number})" for number in range(words)]
