"""Facets of the browse page: how many results each value of a filter would have.

The counts of a filter honour all other filters, but not the filter itself. They do not depend on
downloads, so they stay valid while only installs are committed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from ..connection.sqlite import Connection, snapshot
from .search import remember_count, total_key
from .search_conditions import WITH_TRIGRAMS, all_of, find_conditions
from .search_params import NONE, WITHOUT, SearchQuery

# The values of one filter that are returned, those with the most widgets.
MAX_VALUES = 200

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


# The values of the widgets that the words and the SDK admit, as one text for each filter: a row for
# each widget takes three times as long. U+001F is in no list of permissions: JSON escapes it.
COLUMNS = """
SELECT json_group_array(scope), json_group_array(license), group_concat(official, ''),
    group_concat(permissions, '\x1f')
FROM ({hits})
"""
HITS = "SELECT scope, official, {permissions} AS permissions, license FROM {source} WHERE {matches}"


def _count_facets(connection: Connection, query: SearchQuery) -> Facets:
    statement, values = _build_statement(query), find_conditions(query).values
    scopes, licenses, official, lists = connection.execute(statement, values).fetchone()
    columns = {
        "scope": json.loads(scopes),
        "license": json.loads(licenses),
        "official": official or "",
        "permission": lists.split("\x1f") if lists else [],
    }
    masks = {name: _mask(query, name, columns[name]) for name in find_conditions(query).filters}
    # A filter counts what all the other filters admit.
    counts = {
        name: _count(column, [mask for other, mask in masks.items() if other != name])
        for name, column in columns.items()
    }
    permissions = _count_permissions(counts["permission"], query.permission)
    with_version = counts["permission"].total() - counts["permission"]["null"]
    (scopes_in_catalog,) = connection.execute(COUNT_SCOPES).fetchone()
    return Facets(
        total=counts["scope"][query.scope] if query.scope else counts["scope"].total(),
        scopes=_most_common(counts["scope"]),
        permissions=permissions,
        lacking=[(name, with_version - count) for name, count in permissions if name != NONE],
        licenses=_most_common({each or NONE: count for each, count in counts["license"].items()}),
        official=counts["official"]["1"],
        not_official=counts["official"]["0"],
        scopes_in_catalog=scopes_in_catalog,
        without={name: counts[name].total() for name in masks},
    )


def _mask(query: SearchQuery, name: str, column: Sequence[str]) -> list[bool]:
    """Return for each value in the column whether the filter admits it."""
    admitted = {find_conditions(query).values[name]}
    if name == "official":
        admitted = {"1" if query.official else "0"}
    elif name == "permission":
        admitted = {text for text in {*column} if _admits(query.permission or "", text)}
    return [value in admitted for value in column]


def _admits(wanted: str, text: str) -> bool:
    """Return whether the filter by permission admits the list in JSON, or null."""
    permissions = _parse_permissions(text)
    if wanted.startswith(WITHOUT):
        return permissions != () and wanted.removeprefix(WITHOUT) not in permissions
    return wanted in permissions


def _parse_permissions(text: str) -> tuple[str, ...]:
    """Return the permissions in the list, NONE if there are none; nothing without a version."""
    permissions = json.loads(text)
    return () if permissions is None else tuple({*permissions}) or (NONE,)


def _count(column: Sequence[str], masks: Sequence[Sequence[bool]]) -> Counter[str]:
    """Return how often each value is in the column, where all masks are true."""
    return Counter(compress(column, map(all, zip(*masks, strict=True))) if masks else column)


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
    source = found.source if found.source is WITH_TRIGRAMS else "listing NOT INDEXED"
    if not found.matches and found.permissions == "permissions":
        # Without its name, SQLite would take another index, which does not cover the filters.
        source = "listing INDEXED BY listing_filters"
    hits = HITS.format(permissions=found.permissions, source=source, matches=all_of(found.matches))
    if found.typed:
        typed = all_of(found.typed)
        other = HITS.format(permissions=found.permissions, source="listing", matches=typed)
        hits += f" UNION ALL {other}"
    return COLUMNS.format(hits=hits)


def _most_common(counts: Mapping[str, int]) -> Counts:
    ordered = sorted((-count, value) for value, count in counts.items())
    return [(value, -count) for count, value in ordered[:MAX_VALUES]]
