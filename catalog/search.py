"""A search of the catalog: its parameters, its SQL, its page of summaries."""

import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from catalog.documents import shown
from catalog.folding import fold
from catalog.resources import COMPATIBLE_WIDGET_SUMMARY, WIDGET_SUMMARY
from catalog.semver_ranges import is_version

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_Q_LENGTH = 1000  # what a person types; the work grows with each word
MAX_OFFSET = 2**63 - 1  # SQLite's greatest integer


class ParameterError(ValueError):
    """A parameter that cannot be used; the message names it and what is allowed."""


@dataclass(frozen=True)
class Search:
    """What a caller asked for; None where nothing was asked."""

    q: str
    scope: str | None
    official: bool | None
    compat_sdk: str | None
    page: int
    limit: int
    public_url: str | None  # how the caller reaches what is held here


def parse_search(arguments: Mapping[str, str], public_url: str | None = None) -> Search:
    """The search that a query string asks for; raises ParameterError."""
    return Search(
        q=_words(arguments.get("q", "")),
        scope=arguments.get("scope") or None,
        official=_official(arguments.get("official")),
        compat_sdk=_compat_sdk(arguments.get("compatSdk")),
        page=_positive("page", arguments.get("page", "1")),
        limit=min(_positive("limit", arguments.get("limit", str(DEFAULT_LIMIT))), MAX_LIMIT),
        public_url=public_url,
    )


def _words(value: str) -> str:
    words = " ".join(fold(value).split())
    length = max(len(value), len(words))  # one character can stand for many, as a ligature does
    if length > MAX_Q_LENGTH:
        raise ParameterError(f"q must be at most {MAX_Q_LENGTH} characters, not {length}.")
    return words


def _official(value: str | None) -> bool | None:
    if value not in (None, "true", "false"):
        raise ParameterError(f"official must be true or false, not {shown(value)}.")
    return None if value is None else value == "true"


def _compat_sdk(value: str | None) -> str | None:
    if value is not None and not is_version(value):
        raise ParameterError(
            f"compatSdk must be a valid semver string such as 1.4.0, not {shown(value)}; "
            "a + in it must be sent as %2B."
        )
    return value


def _positive(name: str, value: str) -> int:
    if not re.fullmatch("[0-9]+", value) or not value.strip("0"):
        raise ParameterError(f"{name} must be a whole number from 1, not {shown(value)}.")
    # int() refuses more than 4,300 digits; a number cut before that is as far past the end.
    return int(value.lstrip("0")[:4000])


# Without words, the order is that of an index, and the page is read off its beginning.
BROWSE = """
WITH total AS (SELECT count(*) AS total FROM listing {where}),
hit AS (
    SELECT widget_id, 0 AS tier, downloads, scope, name FROM listing {where_in_order}
    ORDER BY downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
"""

# CROSS JOIN, here and below, is SQLite's word for: begin on the left. There the rows are few.

# With words, the hits are counted and sorted in one pass: the name is q, begins with q, holds every
# word, or does not. INDEXED begins at the trigrams of the words; SCANNED at every text, for words
# that have none.
WORDS = """
WITH found AS MATERIALIZED (
    SELECT listing.widget_id,
           CASE WHEN NOT ({name_holds_words}) THEN 3
                WHEN folded_name = :q THEN 0
                WHEN substr(folded_name, 1, length(:q)) = :q THEN 1
                ELSE 2 END AS tier,
           downloads, scope, name
    FROM {source} {where}
),
total AS (SELECT count(*) AS total FROM found),
hit AS (
    SELECT * FROM found ORDER BY tier, downloads DESC, scope, name LIMIT :limit OFFSET :offset
)
"""
INDEXED = "listing_text CROSS JOIN listing ON listing.widget_id = listing_text.rowid"
SCANNED = "listing"

PAGE = """
SELECT content, revision.downloads, least, (SELECT total FROM total), page
FROM revision CROSS JOIN (
    SELECT CAST(group_concat(text) AS BLOB) AS page, min(downloads) AS least FROM (
        SELECT {summary} AS text, hit.downloads
        FROM hit CROSS JOIN widget ON widget.id = hit.widget_id
        ORDER BY tier, hit.downloads DESC, hit.scope, hit.name))
"""

# What an answer was made of: the revisions, and the least count that a widget must have for its
# installs to change the answer.
Seen = tuple[int, int, int]


def find_widgets(connection: sqlite3.Connection, search: Search) -> tuple[Seen, bytes]:
    """The answer to a search, one page of summaries, and what it was made of."""
    statement, values = _statement(search)
    content, downloads, least, total, page = connection.execute(statement, values).fetchone()
    rest = f'],"total":{total},"page":{search.page},"limit":{search.limit}}}'
    body = b"".join((b'{"widgets":[', page or b"", rest.encode()))
    full = total >= search.page * search.limit
    return (content, downloads, least if full and not search.q else -1), body


# An install moves its widget forward. One that does not match, or is still behind the last of a
# full page, changes nothing there.
STILL_HOLDS = """
SELECT content, downloads, :least FROM revision
WHERE content = :content AND (
    downloads = :downloads
    OR downloads - :downloads <= 100 AND NOT EXISTS (
        SELECT 1 FROM installed CROSS JOIN listing USING (widget_id)
        WHERE revision > :downloads AND listing.downloads >= :least {and_conditions}))
"""


def still_holds(connection: sqlite3.Connection, search: Search, seen: Seen) -> Seen | None:
    """What the answer is as good as made of now; None where it is no longer the same."""
    words = _words_of(search)
    conditions = [_text_holds(words)] if words else []
    if search.scope is not None:
        conditions.append("scope = :scope")
    if search.official is not None:
        conditions.append("official = :official")
    statement = STILL_HOLDS.format(and_conditions="".join(f"AND {each} " for each in conditions))
    content, downloads, least = seen
    values = {
        **words,
        "scope": search.scope,
        "official": search.official,
        "content": content,
        "downloads": downloads,
        "least": least,
    }
    row = connection.execute(statement, values).fetchone()
    return row and tuple(row)


# A word is sought in the index by its beginning: a phrase of a thousand trigrams takes a second
# on a text that repeats itself.
MAX_INDEXED = 24
# The index reads two non-characters as U+FFFD, and no text has a NUL in it.
UNINDEXED = re.compile("[\0\ufffd\ufffe\uffff]")


def _statement(search: Search) -> tuple[str, dict[str, object]]:
    """The statement that answers a search, and its values."""
    words = _words_of(search)
    unindexed = {key for key, word in words.items() if len(word) < 3 or UNINDEXED.search(word)}
    indexed = [word[:MAX_INDEXED] for key, word in words.items() if key not in unindexed]
    scanned = [key for key, word in words.items() if key in unindexed or len(word) > MAX_INDEXED]
    conditions = []
    if indexed:
        conditions.append("listing_text MATCH :match")
    if scanned:
        conditions.append(_text_holds(scanned))
    if search.scope is not None:
        conditions.append("scope = :scope")
    in_order = list(conditions)
    if search.official is not None:
        conditions.append("official = :official")
        # A plus keeps SQLite from an index that counts well but is in no order.
        in_order.append("+official = :official")
    values: dict[str, object] = {
        **words,
        "q": search.q,
        # Each word is a quoted string, in which no sign of the index's language has a meaning.
        "match": " ".join('"' + word.replace('"', '""') + '"' for word in indexed),
        "scope": search.scope,
        "official": search.official,
        "compat_sdk": search.compat_sdk,
        "public_url": search.public_url,
        "limit": search.limit,
        "offset": min((search.page - 1) * search.limit, MAX_OFFSET),
    }
    hits = BROWSE.format(where=_where(conditions), where_in_order=_where(in_order))
    if words:
        source = INDEXED if indexed else SCANNED
        in_name = _holds("folded_name", words)
        hits = WORDS.format(source=source, where=_where(conditions), name_holds_words=in_name)
    summary = COMPATIBLE_WIDGET_SUMMARY if search.compat_sdk else WIDGET_SUMMARY
    return hits + PAGE.format(summary=summary), values


def _words_of(search: Search) -> dict[str, str]:
    """The words of a search, each once, by the name that its value has in a statement."""
    return {f"word{number}": word for number, word in enumerate(dict.fromkeys(search.q.split()))}


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _text_holds(keys: Iterable[str]) -> str:
    """The condition that the whole text of a listed widget holds the words with these keys."""
    return f"(SELECT {_holds('folded_text', keys)} FROM widget WHERE id = listing.widget_id)"


def _holds(column: str, keys: Iterable[str]) -> str:
    """The condition that a text holds each of the words with these keys."""
    return " AND ".join(f"instr({column}, :{key})" for key in keys)
