"""Facets for the browse page: how many results each value of a filter would give.

A filter's counts honour all other filters, but not the filter itself. They do not depend on
downloads, so they stay valid while only installs are committed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from ..connection.revision import read_revision
from ..connection.sqlite import Connection, fetch_one, snapshot
from .candidates import AVAILABLE, all_of
from .search import remember_count, total_key
from .search_conditions import WITH_TRIGRAMS, find_conditions
from .search_params import NETWORK, NONE, SearchQuery, filter_value

# The maximum number of values per filter; the values with the most widgets are returned.
MAX_VALUES = 200

Counts = list[tuple[str, int]]


class Facets(NamedTuple):
    """The values of each filter with their counts, most widgets first; see filter_value()."""

    # The number of results.
    total: int
    scopes: Counts
    permissions: Counts
    # The same permissions, each with the number of widgets that do not need it. For "network", this
    # is the number of widgets that need no permission in NETWORK.
    lacking: Counts
    licenses: Counts
    official: int
    not_official: int
    # The number of scopes in the catalog, regardless of the filters.
    scopes_in_catalog: int
    # For each filter, by name, the number of results if that filter were removed.
    without: dict[str, int]


COUNT_SCOPES = "SELECT count(DISTINCT scope) FROM listing"


def find_facets(connection: Connection, query: SearchQuery) -> Facets:
    """Return the facets for a search."""
    key = Facets, total_key(query)
    with snapshot(connection):
        content = read_revision(connection).content
        counted_at, facets = connection.counts.get(key, (None, None))
        if facets is None or counted_at != content:
            facets = _count_facets(connection, query)
            remember_count(connection, key, content, facets)
            if query.reads_versions:
                # The search for the page runs next, and uses this count instead of counting again.
                remember_count(connection, total_key(query), content, facets.total)
    return facets


# Collects the filter values of all widgets that match the words and the SDK into one string per
# filter, because one row per widget would take three times as long. U+001F separates the permission
# lists: JSON escapes this character, so no list contains it.
COLUMNS = """
SELECT json_group_array(scope), json_group_array(license), group_concat(official, ''),
    group_concat(permissions, '\x1f')
FROM ({hits})
"""
HITS = """
SELECT scope, official, {permissions} AS permissions, {license} AS license
FROM {source} WHERE {matches}
"""


def _count_facets(connection: Connection, query: SearchQuery) -> Facets:
    statement, values = _build_statement(query), find_conditions(query).values
    scopes, licenses, official, permissions = fetch_one(connection, statement, values)
    columns = {
        "scope": json.loads(scopes),
        "license": json.loads(licenses),
        "official": official or "",
        "permission": permissions.split("\x1f") if permissions else [],
    }
    masks = {name: _mask(query, name, columns[name]) for name in find_conditions(query).filters}
    # A filter's counts include the widgets that match all other filters.
    counts = {
        name: _count(column, [mask for other, mask in masks.items() if other != name])
        for name, column in columns.items()
    }
    permissions = _count_permissions(counts["permission"], query.excluded_permissions)
    lists = counts["permission"]
    with_version = lists.total() - lists["null"]
    online = sum(count for text, count in lists.items() if _needs_network(text))
    (scopes_in_catalog,) = fetch_one(connection, COUNT_SCOPES)
    return Facets(
        total=counts["scope"][query.scope] if query.scope else counts["scope"].total(),
        scopes=_most_common(counts["scope"]),
        permissions=permissions,
        lacking=[
            (name, with_version - (online if name == NETWORK[0] else count))
            for name, count in permissions
            if name != NONE
        ],
        licenses=_most_common(
            {
                filter_value(text) if text else NONE: count
                for text, count in counts["license"].items()
            }
        ),
        official=counts["official"]["1"],
        not_official=counts["official"]["0"],
        scopes_in_catalog=scopes_in_catalog,
        without={name: counts[name].total() for name in masks},
    )


def _mask(query: SearchQuery, name: str, column: Sequence[str]) -> list[bool]:
    """Return whether each value in the column matches the filter."""
    admitted = {find_conditions(query).values[name]}
    if name == "official":
        admitted = {"1" if query.official else "0"}
    elif name == "permission":
        admitted = {text for text in {*column} if _admits(query, text)}
    return [value in admitted for value in column]


def _admits(query: SearchQuery, text: str) -> bool:
    """Return whether a JSON list of permissions, or null, matches the permission filter."""
    permissions = _parse_permissions(text)
    if query.excluded_permissions:
        return permissions != () and not {*query.excluded_permissions} & {*permissions}
    return query.permission in permissions


def _needs_network(text: str) -> bool:
    return not {*NETWORK}.isdisjoint(_parse_permissions(text))


def _parse_permissions(text: str) -> tuple[str, ...]:
    """Return the filter values for a JSON list: NONE if it is empty, no value if it is null."""
    permissions = json.loads(text)
    return () if permissions is None else tuple(map(filter_value, {*permissions})) or (NONE,)


def _count(column: Sequence[str], masks: Sequence[Sequence[bool]]) -> Counter[str]:
    """Return how often each value occurs in the column at positions where all masks are true."""
    return Counter(compress(column, map(all, zip(*masks, strict=True))) if masks else column)


def _count_permissions(lists: Mapping[str, int], excluded: Sequence[str]) -> Counts:
    """Count the widgets per permission, from the number of widgets per JSON permission list."""
    # List an excluded permission even if no widget needs it.
    counts: Counter[str] = Counter(dict.fromkeys(excluded[:1], 0))
    for text, count in lists.items():
        counts.update(dict.fromkeys(_parse_permissions(text), count))
    return _most_common(counts)


def _build_statement(query: SearchQuery) -> str:
    found = find_conditions(query)
    # Without an index, SQLite reads the listing and version tables in the order of widget ids. Any
    # other order takes twice as long.
    source = found.source if found.source is WITH_TRIGRAMS else "listing NOT INDEXED"
    if not found.matches and query.candidates == AVAILABLE:
        # Name the index: SQLite would choose another one, which does not cover the filters.
        source = "listing INDEXED BY listing_filters"
    columns = {"permissions": found.permissions, "license": found.license}
    hits = HITS.format(**columns, source=source, matches=all_of(found.matches))
    return COLUMNS.format(hits=hits)


def _most_common(counts: Mapping[str, int]) -> Counts:
    ordered = sorted((-count, value) for value, count in counts.items())
    return [(value, -count) for count, value in ordered[:MAX_VALUES]]
