"""Facets of the browse page: how many results each value of a filter would have.

The counts of a filter honour all other filters, but not the filter itself. They do not depend on
downloads, so they stay valid while only installs are committed.
"""

import json
from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

from ..connection.sqlite import Connection, snapshot
from .search import remember_count, total_key
from .search_conditions import WITH_TRIGRAMS, all_of, find_conditions
from .search_params import NONE, WITHOUT, SearchQuery

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


# The widgets that the words and the SDK admit, in groups that the filters do not distinguish.
GROUPS = """
SELECT scope, official, permissions, license, count(*) FROM ({hits})
GROUP BY permissions, license, scope, official
"""
HITS = "SELECT scope, official, {permissions} AS permissions, license FROM {source} WHERE {matches}"


def _count_facets(connection: Connection, query: SearchQuery) -> Facets:
    chosen = {name: getattr(query, name) for name in FILTERS if getattr(query, name) is not None}
    counts: dict[str, Counter[object]] = {name: Counter() for name in FILTERS}
    without: Counter[str] = Counter(dict.fromkeys(chosen, 0))
    if query.permission and query.permission.startswith(WITHOUT):
        # It is among the values, even if every widget lacks it.
        counts["permission"][query.permission.removeprefix(WITHOUT)] = 0
    total = with_version = 0
    rows = connection.execute(_build_statement(query), find_conditions(query).values)
    for scope, official, permissions, license_, count in rows:
        values = {
            "scope": (scope,),
            "official": (official,),
            "permission": _permission_values(permissions),
            "license": (license_ or NONE,),
        }
        missed = [name for name, value in chosen.items() if not _admits(name, value, values[name])]
        total += 0 if missed else count
        for name in FILTERS:
            # A filter counts what all the other filters admit.
            if missed in ([], [name]):
                for value in values[name]:
                    counts[name][value] += count
                if name in chosen:
                    without[name] += count
                if name == "permission" and values[name]:
                    with_version += count
    (scopes_in_catalog,) = connection.execute(COUNT_SCOPES).fetchone()
    permissions = _most_common(counts["permission"])
    return Facets(
        total=total,
        scopes=_most_common(counts["scope"]),
        permissions=permissions,
        lacking=[(name, with_version - count) for name, count in permissions if name != NONE],
        licenses=_most_common(counts["license"]),
        official=counts["official"][1],
        not_official=counts["official"][0],
        scopes_in_catalog=scopes_in_catalog,
        without=dict(without),
    )


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
    return GROUPS.format(hits=hits)


# Few lists of permissions are distinct.
@lru_cache(maxsize=256)
def _permission_values(text: str) -> tuple[str, ...]:
    """Return the values of the filter that a list in JSON has; none for a missing version."""
    permissions = json.loads(text)
    return () if permissions is None else tuple(set(permissions)) or (NONE,)


def _admits(name: str, chosen: Any, values: tuple[object, ...]) -> bool:
    """Return whether a filter with the chosen value admits widgets with these values."""
    if name == "permission" and chosen.startswith(WITHOUT):
        return values != () and chosen.removeprefix(WITHOUT) not in values
    return chosen in values


def _most_common(counts: Counter[object]) -> Counts:
    ordered = sorted((-count, str(value)) for value, count in counts.items())
    return [(value, -count) for count, value in ordered[:MAX_VALUES]]
