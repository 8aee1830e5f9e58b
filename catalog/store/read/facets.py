"""Facets of the browse page: how many results each value of a filter would have.

The counts of a filter honour all other filters, but not the filter itself. They do not depend on
downloads, so they stay valid while only installs are committed.
"""

import json
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from catalog.store.connection.sqlite import Connection
from catalog.store.read.search import remember_count, total_key
from catalog.store.read.search_conditions import (
    EVERY_WIDGET,
    IS_COMPATIBLE,
    WITH_TRIGRAMS,
    filter_conditions,
    named_condition,
    search_values,
    search_words,
    word_conditions,
)
from catalog.store.read.search_params import NONE, SearchQuery

# The values of one filter that are returned, those with the most widgets.
MAX_VALUES = 200

FILTERS = ("scope", "official", "permission", "license")

Counts = list[tuple[str, int]]


class Facets(NamedTuple):
    """The values of each filter with their counts, most widgets first."""

    # The number of results.
    total: int
    scopes: Counts
    permissions: Counts
    licenses: Counts
    official: int
    not_official: int
    # The scopes of the catalog, whatever the filters are.
    scopes_in_catalog: int
    # The number of results without the filter of this name, for each that the search has.
    without: dict[str, int]


# Without words and an SDK, each part is counted in an index of listing. Otherwise the widgets that
# are found are collected first.
COUNT_FACETS = """
{hits}
SELECT 'content' AS facet, NULL AS value, content AS count FROM revision
UNION ALL
SELECT 'scopes', NULL, count(DISTINCT scope) FROM listing
UNION ALL
SELECT 'scope', scope, count(*) FROM {scope} GROUP BY scope
UNION ALL
SELECT 'official', official, count(*) FROM {official} GROUP BY official
UNION ALL
SELECT 'permission', permissions, count(*) FROM {permission} GROUP BY permissions
UNION ALL
SELECT 'license', license, count(*) FROM {license} GROUP BY license
"""
HITS = """
WITH hit AS MATERIALIZED (
    SELECT scope, official, permissions, license FROM {candidates} WHERE {found}
    UNION ALL
    SELECT scope, official, permissions, license FROM listing WHERE {named}
)
"""

CONTENT = "SELECT content FROM revision"


def find_facets(connection: Connection, query: SearchQuery) -> Facets:
    """Return the facets of a search. If its name is set, it also finds widgets of that name."""
    key = Facets, total_key(query)
    (content,) = connection.execute(CONTENT).fetchone()
    counted_at, facets = connection.counts.get(key, (None, None))
    if facets is None or counted_at != content:
        counted_at, facets = _count_facets(connection, query)
        remember_count(connection, key, counted_at, facets)
        # The search for the page, which follows, need not count again.
        remember_count(connection, total_key(query), counted_at, facets.total)
    return facets


def _count_facets(connection: Connection, query: SearchQuery) -> tuple[int, Facets]:
    """Return the facets, and the revision that they were counted at."""
    words = search_words(query)
    values = search_values(query, words)
    statement = _build_statement(
        words=len(words),
        has_trigrams=bool(values["trigrams"]),
        has_name=query.name is not None,
        filters=tuple(filter_conditions(query).items()),
        compatible=query.compatible,
    )
    rows: dict[str, list[tuple[object, int]]] = {
        facet: [] for facet in ("content", "scopes", *FILTERS)
    }
    for facet, value, count in connection.execute(statement, values):
        rows[facet].append((value, count))
    official = dict(rows["official"])
    total = sum(official.values()) if query.official is None else official.get(query.official, 0)
    facets = Facets(
        total=total,
        scopes=_most_common(rows["scope"]),
        permissions=_most_common(_split_permissions(rows["permission"])),
        licenses=_most_common((license or NONE, count) for license, count in rows["license"]),
        official=official.get(1, 0),
        not_official=official.get(0, 0),
        scopes_in_catalog=rows["scopes"][0][1],
        without={name: sum(count for _, count in rows[name]) for name in filter_conditions(query)},
    )
    return rows["content"][0][1], facets


@lru_cache(maxsize=64)
def _build_statement(
    *,
    words: int,
    has_trigrams: bool,
    has_name: bool,
    filters: tuple[tuple[str, str], ...],
    compatible: bool,
) -> str:
    """Return the statement for queries that have these parameters and this number of words."""
    compatible_only = [IS_COMPATIBLE] if compatible else []
    # Without the name of the index, SQLite would take another one and look up each row.
    hits, source = "", "listing INDEXED BY listing_filters"
    if words or compatible:
        named = [named_condition(words), *compatible_only] if has_name else ["false"]
        hits = HITS.format(
            # In the order of the table, versions are looked up one after another in their index;
            # in another order it takes twice as long.
            candidates=WITH_TRIGRAMS if has_trigrams else f"{EVERY_WIDGET} NOT INDEXED",
            found=" AND ".join([*word_conditions(words), *compatible_only]),
            named=" AND ".join(named),
        )
        source = "hit"
    sources = {}
    for facet in FILTERS:
        others = " AND ".join(condition for name, condition in filters if name != facet)
        sources[facet] = f"{source} WHERE {others}" if others else source.split()[0]
    return COUNT_FACETS.format(hits=hits, **sources)


def _split_permissions(rows: Iterable[tuple[object, int]]) -> Iterable[tuple[str, int]]:
    """Return the counts of single permissions from those of lists in JSON."""
    counts: Counter[str] = Counter()
    for text, count in rows:
        for permission in set(json.loads(str(text))) or {NONE}:
            counts[permission] += count
    return counts.items()


def _most_common(counts: Iterable[tuple[object, int]]) -> Counts:
    ordered = sorted(((str(value), count) for value, count in counts), key=_by_count)
    return ordered[:MAX_VALUES]


def _by_count(value_and_count: tuple[str, int]) -> tuple[int, str]:
    value, count = value_and_count
    return -count, value
