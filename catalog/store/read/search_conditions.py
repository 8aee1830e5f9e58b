"""The conditions of a search in SQL, and their values: which listed widgets a query finds."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..schema.sdk_intervals import sdk_key
from .json_sql import NEWEST_FIRST
from .search_params import NONE, WITHOUT, SearchQuery

# The index reads one more list for each trigram, and this many leave few candidates.
MAX_TRIGRAMS = 12

# The widgets with all trigrams of the words.
# CROSS JOIN makes SQLite begin with the table on the left, which has fewer rows.
WITH_TRIGRAMS = """listing_text CROSS JOIN listing
    ON listing.widget_id = listing_text.rowid AND listing_text MATCH :trigrams"""

# Few ranges are distinct. Those that admit the SDK are read once for each statement.
_RUNS_ON_SDK = """
version.widget_id = listing.widget_id AND yanked = 0 AND +sdk_version IN (
    SELECT range FROM sdk_interval CROSS JOIN sdk_range ON id = range_id
    WHERE low <= :sdk AND :sdk < high)
"""
IS_COMPATIBLE = f"EXISTS (SELECT 1 FROM version WHERE {_RUNS_ON_SDK})"
# The permissions of the latest version for the SDK. They are 'null' if there is none, as in the
# table listing.
PERMISSIONS_FOR_SDK = f"""coalesce((
    SELECT version.permissions FROM version WHERE {_RUNS_ON_SDK}
    ORDER BY {NEWEST_FIRST} LIMIT 1), 'null')"""

IS_TYPED = "(name = :typed COLLATE NOCASE OR scope = :typed COLLATE NOCASE)"
# With a slash, the name is perhaps not complete.
IS_TYPED_PATH = """
scope = :typed_scope COLLATE NOCASE AND substr(name, 1, length(:typed)) = :typed COLLATE NOCASE
"""

IN_SCOPE = "scope = :scope"
IS_OFFICIAL = "official = :official"
# Few lists of permissions are distinct. Each is parsed once for each statement.
HAS_PERMISSION = """permissions IN (
    SELECT list FROM (SELECT DISTINCT permissions AS list FROM listing)
    WHERE EXISTS (SELECT 1 FROM json_each(list) WHERE value = :permission))
"""
HAS_PERMISSION_FOR_SDK = f"""
EXISTS (SELECT 1 FROM json_each({PERMISSIONS_FOR_SDK}) WHERE value = :permission)
"""
HAS_LICENSE = "license = :license"


class Conditions(NamedTuple):
    """Which listed widgets a search finds, in SQL."""

    # The table listing, or a join of it with the index of words.
    source: str
    # Those of the words and the SDK.
    matches: list[str]
    # Those of the widgets that only the typed name or scope finds; none if nothing is typed.
    typed: list[str]
    # Those of the filters, by the name of the filter.
    filters: dict[str, str]
    # The permissions that a filter compares, as JSON.
    permissions: str
    # The name contains every word.
    in_name: str
    # The values of all parameters in them.
    values: Mapping[str, object]


# Cached responses are revalidated with the conditions of their queries.
@lru_cache(maxsize=256)
def find_conditions(query: SearchQuery) -> Conditions:
    """Return the conditions of a query."""
    words = query.words
    trigrams = _trigrams_of(words)
    matches = [f"instr(listing.folded_text, :word{number})" for number in range(len(words))]
    scope, slash, name = (query.typed or "").rpartition("/")
    typed = []
    if query.typed is not None:
        typed = [IS_TYPED_PATH if slash else IS_TYPED, f"NOT ({all_of(matches)})"]
    if query.compatible:
        matches.append(IS_COMPATIBLE)
        typed += [IS_COMPATIBLE] if typed else []
    values = {
        **{f"word{number}": word for number, word in enumerate(words)},
        "q": query.q,
        # In quotes, FTS5 takes every character literally.
        "trigrams": " ".join('"' + each.replace('"', '""') + '"' for each in trigrams),
        "typed": name,
        "typed_scope": scope if slash else None,
        "scope": query.scope,
        "official": query.official,
        "permission": (query.permission or "").removeprefix(WITHOUT),
        "license": "" if query.license == NONE else query.license,
        "sdk": query.compat_sdk and sdk_key(query.compat_sdk),
    }
    return Conditions(
        source=WITH_TRIGRAMS if trigrams else "listing",
        matches=matches,
        typed=typed,
        filters=_filters(query),
        permissions=_permissions(query),
        in_name=all_of(f"instr(folded_name, :word{number})" for number in range(len(words))),
        values=values,
    )


def all_of(conditions: Iterable[str]) -> str:
    """Return the condition that all of them hold."""
    return " AND ".join(conditions) or "true"


def _permissions(query: SearchQuery) -> str:
    return PERMISSIONS_FOR_SDK if query.compat_sdk else "permissions"


def _has_permission(query: SearchQuery) -> str:
    permissions, permission = _permissions(query), query.permission or ""
    has_permission = HAS_PERMISSION_FOR_SDK if query.compat_sdk else HAS_PERMISSION
    if permission.removeprefix(WITHOUT) == NONE:
        has_permission = f"{permissions} = '[]'"
    if permission.startswith(WITHOUT):
        return f"({permissions} <> 'null' AND NOT {has_permission})"
    return has_permission


def _filters(query: SearchQuery) -> dict[str, str]:
    filters = {
        "scope": (query.scope, IN_SCOPE),
        "official": (query.official, IS_OFFICIAL),
        "permission": (query.permission, _has_permission(query)),
        "license": (query.license, HAS_LICENSE),
    }
    return {name: each for name, (value, each) in filters.items() if value is not None}


def _trigrams_of(words: Sequence[str]) -> list[str]:
    """Return the trigrams by which candidates are found; none if every widget is one."""
    trigrams = [trigram for word in words for trigram in _trigrams(word)]
    return list(dict.fromkeys(trigrams))[:MAX_TRIGRAMS]


# The index stores the noncharacters U+FFFE and U+FFFF as U+FFFD. No text contains a NUL.
NOT_INDEXED = re.compile("[\0\ufffd\ufffe\uffff]")


def _trigrams(word: str) -> list[str]:
    """Return up to three trigrams of the word, nearly as selective as all; none if not indexed."""
    if len(word) < 3 or NOT_INDEXED.search(word):
        return []
    last = len(word) - 3
    return [word[start : start + 3] for start in {0, last // 2, last}]
