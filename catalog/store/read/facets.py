"""Facets of the browse page: how many results each value of a filter would have.

The counts of a filter honour all other filters, but not the filter itself. They do not depend on
downloads, so they stay valid while only installs are committed.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ..connection.sqlite import Connection
from .search import remember_count, total_key
from .search_conditions import WITH_TRIGRAMS, all_of, find_conditions
from .search_params import NONE, SearchQuery

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


COUNT_FACETS = """
WITH hit AS {materialized} ({hits})
SELECT 'content' AS facet, NULL AS value, content AS count FROM revision
UNION ALL
SELECT 'scopes', NULL, count(DISTINCT scope) FROM listing
UNION ALL
SELECT 'scope', scope, count(*) FROM hit WHERE {scope} GROUP BY scope
UNION ALL
SELECT 'official', official, count(*) FROM hit WHERE {official} GROUP BY official
UNION ALL
SELECT 'permission', permissions, count(*) FROM hit WHERE {permission} GROUP BY permissions
UNION ALL
SELECT 'license', license, count(*) FROM hit WHERE {license} GROUP BY license
"""
HITS = "SELECT scope, official, permissions, license FROM {source} WHERE {matches}"

CONTENT = "SELECT content FROM revision"


def find_facets(connection: Connection, query: SearchQuery) -> Facets:
    """Return the facets of a search."""
    key = Facets, total_key(query)
    (content,) = connection.execute(CONTENT).fetchone()
    counted_at, facets = connection.counts.get(key, (None, None))
    if facets is None or counted_at != content:
        counted_at, facets = _count_facets(connection, query)
        remember_count(connection, key, counted_at, facets)
        if query.compatible and query.typed is None:
            # The search for the page, which follows, need not count again.
            remember_count(connection, total_key(query), counted_at, facets.total)
    return facets


def _count_facets(connection: Connection, query: SearchQuery) -> tuple[int, Facets]:
    """Return the facets, and the revision that they were counted at."""
    found = find_conditions(query)
    rows: dict[str, list[tuple[object, int]]] = {
        facet: [] for facet in ("content", "scopes", *FILTERS)
    }
    for facet, value, count in connection.execute(_build_statement(query), found.values):
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
        without={name: sum(count for _, count in rows[name]) for name in found.filters},
    )
    return rows["content"][0][1], facets


def _build_statement(query: SearchQuery) -> str:
    found = find_conditions(query)
    others = {
        facet: all_of(each for name, each in found.filters.items() if name != facet)
        for facet in FILTERS
    }
    if not found.matches:
        # Each facet is counted in this index alone; without its name, SQLite would take another.
        hits = HITS.format(source="listing INDEXED BY listing_filters", matches="true")
        return COUNT_FACETS.format(materialized="NOT MATERIALIZED", hits=hits, **others)
    # In the order of the table, the versions of widgets are read in the order of their index; in
    # another order it takes twice as long.
    source = found.source if found.source is WITH_TRIGRAMS else "listing NOT INDEXED"
    hits = HITS.format(source=source, matches=all_of(found.matches))
    if found.typed:
        hits += f" UNION ALL {HITS.format(source='listing', matches=all_of(found.typed))}"
    return COUNT_FACETS.format(materialized="MATERIALIZED", hits=hits, **others)


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
