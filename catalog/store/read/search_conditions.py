"""Builds the SQL conditions that select the listed widgets for a search, with their values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .candidates import Candidates, all_of
from .search_params import NONE, WITHOUT, SearchQuery, filter_text

# The maximum number of trigrams in a query. For each trigram, the index reads another list, and
# this many trigrams leave few candidates.
MAX_TRIGRAMS = 12

# Selects the widgets that contain all trigrams of the words. CROSS JOIN makes SQLite begin with the
# table on the left, which has fewer rows.
WITH_TRIGRAMS = """listing_text CROSS JOIN listing
    ON listing.widget_id = listing_text.rowid AND listing_text MATCH :trigrams"""

HAS_CANDIDATE = """
EXISTS (SELECT 1 FROM version WHERE version.widget_id = listing.widget_id AND {condition})
"""

IN_TEXT = "instr(listing.folded_text, :word{number})"
IN_TEXT_OR_NAME = f"({IN_TEXT} OR instr(replace(lower(name), '-', ''), :word{{number}}))"
ON_PAGE = f"({IN_TEXT} OR instr(listing.page_text, :word{{number}}))"
# The singular must end a word, so that "news" does not find "newest".
SINGULAR_ON_PAGE = f"""({ON_PAGE}
    OR listing.folded_text || ' ' || listing.page_text || ' ' GLOB :singular{{number}})"""
# Matches a word that is probably a plural and whose singular has at least three letters.
PLURAL = re.compile("([a-z]{2,}[a-rtv-z])s")

HAS_KEYWORD = """
widget_id IN (SELECT widget_id FROM listing_keyword WHERE keyword = :keyword)
"""

IN_SCOPE = "scope = :scope"
IS_OFFICIAL = "official = :official"
# There are few distinct lists of permissions. Each statement parses every list once.
HAS_PERMISSION = """{permissions} IN (
    SELECT list FROM (SELECT DISTINCT {permissions} AS list FROM listing)
    WHERE EXISTS (SELECT 1 FROM json_each(list) WHERE value IN (:permission, :other_permission)))
"""
IN_PERMISSIONS = """EXISTS (
    SELECT 1 FROM json_each({permissions}) WHERE value IN (:permission, :other_permission))
"""


class Conditions(NamedTuple):
    """The SQL conditions that select the listed widgets for a search."""

    # The listing table, or its join with the full-text index.
    source: str
    # The conditions for the words, the keyword and the SDK.
    matches: list[str]
    # The condition for each filter, by the name of the filter.
    filters: dict[str, str]
    # The newest candidate's permissions (as JSON) and licence, which the filters compare.
    permissions: str
    license: str
    # When the latest version was published.
    updated: str
    # The first condition is true if every word is in the display name. The second is true if every
    # word is in the display name, the description or the name.
    in_name: str
    in_text: str
    # The number of words that are in the display name.
    words_in_name: str
    # The values of all parameters in the conditions.
    values: Mapping[str, object]


# Cached, because revalidating a cached response needs its query's conditions again.
@lru_cache(maxsize=256)
def find_conditions(query: SearchQuery) -> Conditions:
    """Return the conditions for a query."""
    words = query.words
    singulars = _singulars(words) if query.for_pages else {}
    matches = [IN_TEXT.format(number=number) for number in range(len(words))]
    in_text = [IN_TEXT_OR_NAME.format(number=number) for number in range(len(words))]
    in_name = [f"instr(folded_name, :word{number})" for number in range(len(words))]
    if query.for_pages:
        matches = [
            (SINGULAR_ON_PAGE if number in singulars else ON_PAGE).format(number=number)
            for number in range(len(words))
        ]
    trigrams = _trigrams_of([singulars.get(number, word) for number, word in enumerate(words)])
    if query.least_words is not None:
        matches, trigrams = [f"{count_words(matches)} >= :least_words"], []
    if query.keyword is not None:
        matches.append(HAS_KEYWORD)
    if query.compatible:
        matches.append(HAS_CANDIDATE.format(condition=query.candidates.condition(in_scan=True)))
    values = {
        **{f"word{number}": word for number, word in enumerate(words)},
        **{f"singular{number}": f"*{word}[^a-z0-9]*" for number, word in singulars.items()},
        "q": query.q,
        # FTS5 takes every character in quotes literally.
        "trigrams": " ".join('"' + each.replace('"', '""') + '"' for each in trigrams),
        "least_words": query.least_words,
        "keyword": query.keyword,
        "scope": query.scope,
        "official": query.official,
        "permission": filter_text((query.permission or "").removeprefix(WITHOUT)),
        "other_permission": query.excluded_permissions[-1] if query.excluded_permissions else None,
        "license": "" if query.license in (NONE, None) else filter_text(query.license),
        **query.candidates.values,
    }
    license_column = _column(query.latest, "license", "''")
    return Conditions(
        source=WITH_TRIGRAMS if trigrams else "listing",
        matches=matches,
        filters=_filters(query, license_column),
        permissions=_column(query.candidates, "permissions", "'null'"),
        license=license_column,
        updated=_column(query.latest, "published_at", "''"),
        in_name=all_of(in_name),
        words_in_name=count_words(in_name),
        in_text=all_of(in_text),
        values=values,
    )


def count_words(matches: Iterable[str]) -> str:
    """Return the SQL expression for how many of the words a listing row contains."""
    return " + ".join(f"({match} > 0)" for match in matches)


def _singulars(words: Sequence[str]) -> dict[int, str]:
    """Return the singular of each word that is probably a plural, by the word's position."""
    found = {number: PLURAL.fullmatch(word) for number, word in enumerate(words)}
    return {number: match[1] for number, match in found.items() if match}


# The columns in the listing table that describe the latest version.
LISTED_COLUMNS = {"permissions": "permissions", "license": "license", "published_at": "updated"}


def _listed(candidates: Candidates, column: str) -> str:
    """Return the listing table's column for the latest, or latest stable, version."""
    return f"{'stable_' if candidates.stable else ''}{LISTED_COLUMNS[column]}"


def _newest(candidates: Candidates, column: str, default: str) -> str:
    """Return the SQL expression that looks up a column of a listing row's newest candidate."""
    return f"coalesce({candidates.newest(column, 'listing.widget_id', in_scan=True)}, {default})"


def _choose(candidates: Candidates, listed: str, newest: str) -> str:
    """Combine an SQL expression on a listing row with the same one on the newest candidate.

    If a request restricts the time, the time is usually recent. Most latest versions are older, so
    the expression on the listing row is enough for them.
    """
    if candidates.sdk is not None:
        return newest
    if candidates.before is None:
        return listed
    return f"iif({_listed(candidates, 'published_at')} < :before, {listed}, {newest})"


def _column(candidates: Candidates, column: str, default: str) -> str:
    """Return the SQL expression for a column of a listing row's newest candidate."""
    return _choose(candidates, _listed(candidates, column), _newest(candidates, column, default))


def _has_permission(query: SearchQuery) -> str:
    candidates = query.candidates
    listed = _listed(candidates, "permissions")
    newest = _newest(candidates, "permissions", "'null'")
    return _choose(
        candidates,
        _is_admitted(query, listed, HAS_PERMISSION.format(permissions=listed)),
        _is_admitted(query, newest, IN_PERMISSIONS.format(permissions=newest)),
    )


def _is_admitted(query: SearchQuery, permissions: str, has_permission: str) -> str:
    """Return the condition that is true if this column's permissions match the filter."""
    permission = query.permission or ""
    if permission.removeprefix(WITHOUT) == NONE:
        has_permission = f"{permissions} = '[]'"
    if permission.startswith(WITHOUT):
        return f"({permissions} <> 'null' AND NOT {has_permission})"
    return has_permission


def _filters(query: SearchQuery, license_column: str) -> dict[str, str]:
    filters = {
        "scope": (query.scope, IN_SCOPE),
        "official": (query.official, IS_OFFICIAL),
        "permission": (query.permission, _has_permission(query)),
        "license": (query.license, f"{license_column} = :license"),
    }
    return {name: each for name, (value, each) in filters.items() if value is not None}


def _trigrams_of(words: Sequence[str]) -> list[str]:
    """Return the trigrams that find candidates; none if every widget is a candidate."""
    trigrams = [trigram for word in words for trigram in _trigrams(word)]
    return list(dict.fromkeys(trigrams))[:MAX_TRIGRAMS]


# The index stores the noncharacters U+FFFE and U+FFFF as U+FFFD. Indexed text contains no NUL.
NOT_INDEXED = re.compile("[\0\ufffd\ufffe\uffff]")


def _trigrams(word: str) -> list[str]:
    """Return up to three trigrams of the word, which are nearly as selective as all of them.

    Return no trigrams for short words, or for words with some special characters: the index cannot
    find them.
    """
    if len(word) < 3 or NOT_INDEXED.search(word):
        return []
    last = len(word) - 3
    return [word[start : start + 3] for start in {0, last // 2, last}]
