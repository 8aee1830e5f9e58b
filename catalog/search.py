"""A search of the catalog: its parameters, its SQL, its page of summaries."""

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from catalog.documents import shown
from catalog.folding import fold
from catalog.resources import VERSION_ENTRY_COLUMNS, Json, version_entry, widget_summary
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


def parse_search(arguments: Mapping[str, str]) -> Search:
    """The search that a query string asks for; raises ParameterError."""
    return Search(
        q=_words(arguments.get("q", "")),
        scope=arguments.get("scope") or None,
        official=_official(arguments.get("official")),
        compat_sdk=_compat_sdk(arguments.get("compatSdk")),
        page=_positive("page", arguments.get("page", "1")),
        limit=min(_positive("limit", arguments.get("limit", str(DEFAULT_LIMIT))), MAX_LIMIT),
    )


def _words(value: str) -> str:
    words = " ".join(fold(value).split())
    if len(words) > MAX_Q_LENGTH:
        raise ParameterError(f"q must be at most {MAX_Q_LENGTH} characters, not {len(words)}.")
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


# What a search finds, in three ways that differ in where they begin: at the order that needs no
# sorting, at the trigrams of the words, or, for words that the index cannot find, at every text.
ALL_HITS = """
FROM listing
WHERE (:official IS NULL OR official = :official)
"""

SCOPE_HITS = """
FROM listing
WHERE scope = :scope AND (:official IS NULL OR official = :official)
"""

INDEXED_HITS = """
FROM listing_text JOIN listing ON listing.widget_id = listing_text.rowid
JOIN widget ON widget.id = listing.widget_id
WHERE listing_text MATCH :match
  AND (:scope IS NULL OR listing.scope = :scope) AND (:official IS NULL OR official = :official)
"""

SCANNED_HITS = """
FROM listing JOIN widget ON widget.id = listing.widget_id
WHERE (:scope IS NULL OR listing.scope = :scope) AND (:official IS NULL OR official = :official)
"""

# Where a name stands among the hits for words: it is q, begins with q, holds every word, or not.
NAME_TIER = """
    CASE WHEN listing.folded_name = :q THEN 0
         WHEN substr(listing.folded_name, 1, length(:q)) = :q THEN 1
         WHEN {name_holds_words} THEN 2
         ELSE 3 END
"""

COUNT = "SELECT count(*) {hits}"

PAGE = """
WITH hit AS (
    SELECT listing.widget_id, {tier} AS tier, downloads, listing.scope, listing.name
    {hits}
    ORDER BY {order} downloads DESC, listing.scope, listing.name
    LIMIT :limit OFFSET :offset
)
SELECT widget.*,
    (SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0
     ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1) AS latest_id,
    (SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0
     AND :compat_sdk IS NOT NULL AND satisfies(:compat_sdk, sdk_version)
     ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1) AS compatible_id
FROM hit JOIN widget ON widget.id = hit.widget_id
ORDER BY hit.tier, hit.downloads DESC, hit.scope, hit.name
"""

ENTRIES = f"""
SELECT {VERSION_ENTRY_COLUMNS}
FROM json_each(:ids) JOIN version ON version.id = value JOIN widget ON widget.id = widget_id
"""


def find_widgets(connection: sqlite3.Connection, search: Search) -> Json:
    """The answer to a search: one page of summaries and how many there are in all."""
    hits, tier, values = _hits(search)
    (total,) = connection.execute(COUNT.format(hits=hits), values).fetchone()
    # Without words there are no tiers, and the order is an index's own.
    page = PAGE.format(hits=hits, tier=tier or "0", order="tier," if tier else "")
    rows = connection.execute(page, values).fetchall()

    wanted = {row[key] for row in rows for key in ("latest_id", "compatible_id")} - {None}
    entries = {
        row["id"]: version_entry(row)
        for row in connection.execute(ENTRIES, {"ids": json.dumps(sorted(wanted))})
    }
    summaries = []
    for row in rows:
        summary = widget_summary(row, entries.get(row["latest_id"]))
        if search.compat_sdk is not None:
            summary["latestCompatibleVersion"] = entries.get(row["compatible_id"])
        summaries.append(summary)
    return {"widgets": summaries, "total": total, "page": search.page, "limit": search.limit}


# The index reads two non-characters as U+FFFD, and no text has a NUL in it.
UNINDEXED = re.compile("[\0\ufffd\ufffe\uffff]")


def _hits(search: Search) -> tuple[str, str, dict[str, object]]:
    """Where to find what is sought, the tier of a hit if it has one, and the values of both."""
    words = {f"word{number}": word for number, word in enumerate(dict.fromkeys(search.q.split()))}
    scanned = [key for key, word in words.items() if len(word) < 3 or UNINDEXED.search(word)]
    indexed = [word for key, word in words.items() if key not in scanned]
    values: dict[str, object] = {
        **words,
        "q": search.q,
        # Each word is a quoted string, in which no sign of the index's language has a meaning.
        "match": " ".join('"' + word.replace('"', '""') + '"' for word in indexed),
        "scope": search.scope,
        "official": search.official,
        "compat_sdk": search.compat_sdk,
        "limit": search.limit,
        "offset": min((search.page - 1) * search.limit, MAX_OFFSET),
    }
    if not words:
        return (SCOPE_HITS if search.scope else ALL_HITS), "", values
    hits = INDEXED_HITS if indexed else SCANNED_HITS
    if scanned:
        hits += f"AND {_holds('widget.folded_text', scanned)}"
    tier = NAME_TIER.format(name_holds_words=_holds("listing.folded_name", words))
    return hits, tier, values


def _holds(column: str, keys: Iterable[str]) -> str:
    """The condition that a text holds each of the words with these keys."""
    return " AND ".join(f"instr({column}, :{key})" for key in keys)
