"""Facets of the browse page: how many results each value of a filter would have.

The counts of a filter honour all other filters, but not the filter itself. They do not depend on
downloads, so they stay valid while only installs are committed.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..connection.sqlite import Connection, snapshot
from .search import remember_count, total_key
from .search_conditions import WITH_TRIGRAMS, all_of, find_conditions
from .search_params import NONE, WITHOUT, SearchQuery

# The values of one filter that are returned, those with the most widgets.
MAX_VALUES = 200

# In the order of the columns of GROUPS.
FILTERS = ("scope", "official", "permission", "license")
EVERY_FILTER = range(len(FILTERS))

Counts = list[tuple[str, int]]


class Facets(NamedTuple):
    """The values of each filter with their counts, most widgets first."""

    # The number of results.
    total: int
    scopes: Counts
    permissions: Counts
    # The same permissions, with the widgets that do not need them.
    lacking: Counts
    licenses: Counts
    official: int
    not_official: int
    # The scopes of the catalog, whatever the filters are.
    scopes_in_catalog: int
    # The number of results without the filter of this name, for each that the search has.
    without: dict[str, int]


CONTENT = "SELECT content FROM revision"
COUNT_SCOPES = "SELECT count(DISTINCT scope) FROM listing"


def find_facets(connection: Connection, query: SearchQuery) -> Facets:
    """Return the facets of a search."""
    key = Facets, total_key(query)
    (content,) = connection.execute(CONTENT).fetchone()
    counted_at, facets = connection.counts.get(key, (None, None))
    if facets is None or counted_at != content:
        with snapshot(connection):
            (counted_at,) = connection.execute(CONTENT).fetchone()
            facets = _count_facets(connection, query)
        remember_count(connection, key, counted_at, facets)
        if query.reads_versions and query.typed is None:
            # The search for the page, which follows, need not count again.
            remember_count(connection, total_key(query), counted_at, facets.total)
    return facets


# The widgets that the words and the SDK admit, in groups that the filters do not distinguish. They
# are one JSON text: a row for each group takes a third longer.
GROUPS = """
WITH hit AS {materialized} ({hits})
SELECT json_group_array(json_array(scope, official, permissions, license, count)) FROM (
    SELECT scope, official, permissions, license, count(*) AS count FROM hit
    GROUP BY permissions, license, scope, official)
"""
HITS = "SELECT scope, official, {permissions} AS permissions, license FROM {source} WHERE {matches}"


def _count_facets(connection: Connection, query: SearchQuery) -> Facets:
    license_ = "" if query.license == NONE else query.license
    wanted = (query.scope, query.official, query.permission, license_)
    chosen = [index for index in EVERY_FILTER if wanted[index] is not None]
    counts: list[dict[Any, int]] = [defaultdict(int) for _ in FILTERS]
    total = 0
    statement, parameters = _build_statement(query), find_conditions(query).values
    (groups,) = connection.execute(statement, parameters).fetchone()
    for *values, count in json.loads(groups):
        missed = [index for index in chosen if not _admits(index, wanted[index], values[index])]
        total += 0 if missed else count
        # A filter counts what all the other filters admit.
        if len(missed) <= 1:
            for index in missed or EVERY_FILTER:
                counts[index][values[index]] += count
    scopes, official, permission_lists, licenses = counts
    permissions = _count_permissions(permission_lists, query.permission)
    (scopes_in_catalog,) = connection.execute(COUNT_SCOPES).fetchone()
    with_version = sum(permission_lists.values()) - permission_lists.get("null", 0)
    return Facets(
        total=total,
        scopes=_most_common(scopes),
        permissions=permissions,
        lacking=[(name, with_version - count) for name, count in permissions if name != NONE],
        licenses=_most_common({license or NONE: count for license, count in licenses.items()}),
        official=official.get(1, 0),
        not_official=official.get(0, 0),
        scopes_in_catalog=scopes_in_catalog,
        without={FILTERS[index]: sum(counts[index].values()) for index in chosen},
    )


def _admits(index: int, wanted: Any, value: Any) -> bool:
    """Return whether a filter admits a value; that of permission is a list in JSON, or null."""
    if FILTERS[index] != "permission":
        return bool(value == wanted)
    permissions = _parse_permissions(value)
    if wanted.startswith(WITHOUT):
        return permissions != () and wanted.removeprefix(WITHOUT) not in permissions
    return wanted in permissions


# Few lists are distinct.
@lru_cache(maxsize=256)
def _parse_permissions(text: str) -> tuple[str, ...]:
    """Return the permissions in the list, NONE if there are none; nothing without a version."""
    permissions = json.loads(text)
    return () if permissions is None else tuple({*permissions}) or (NONE,)


def _count_permissions(lists: Mapping[str, int], chosen: str | None) -> Counts:
    """Return the counts of single permissions from those of lists in JSON."""
    counts: Counter[str] = Counter()
    if chosen and chosen.startswith(WITHOUT):
        # It is among them, even if every widget lacks it.
        counts[chosen.removeprefix(WITHOUT)] = 0
    for text, count in lists.items():
        counts.update(dict.fromkeys(_parse_permissions(text), count))
    return _most_common(counts)


def _build_statement(query: SearchQuery) -> str:
    found = find_conditions(query)
    # In the order of the table, the versions of widgets are read in the order of their index; in
    # another order it takes twice as long.
    source = "listing NOT INDEXED"
    if found.source is WITH_TRIGRAMS:
        source = found.source
    elif not found.matches and found.permissions == "permissions":
        # Without its name, SQLite would take another index, which does not cover the filters.
        source = "listing INDEXED BY listing_filters"
    permissions = found.permissions
    hits = HITS.format(permissions=permissions, source=source, matches=all_of(found.matches))
    if found.typed:
        typed = all_of(found.typed)
        other = HITS.format(permissions=permissions, source="listing", matches=typed)
        hits += f" UNION ALL {other}"
    # Otherwise the versions for the SDK would be searched twice.
    materialized = "MATERIALIZED" if query.compat_sdk else "NOT MATERIALIZED"
    return GROUPS.format(materialized=materialized, hits=hits)


def _most_common(counts: Mapping[str, int]) -> Counts:
    ordered = sorted((-count, value) for value, count in counts.items())
    return [(value, -count) for count, value in ordered[:MAX_VALUES]]
