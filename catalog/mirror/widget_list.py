"""The list of an upstream's widgets, read page by page through its search."""

from collections.abc import Collection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from catalog import V1_PREFIX
from catalog.documents import parse_json
from catalog.mirror.upstream import Upstream, UpstreamError
from catalog.store.read.search_params import DEFAULT_LIMIT, MAX_LIMIT

MAX_WIDGETS = 1_000_000
MAX_NAME_LENGTH = 1000  # characters


class WidgetKey(NamedTuple):
    """The scope and the name of a widget."""

    scope: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"


def count_widgets(upstream: Upstream, scopes: Collection[str]) -> int:
    """Return the number of widgets that the upstream lists, in these scopes or in all."""
    return sum(_search(upstream, scope, 1, 1)[1] for scope in _filters(scopes))


def _filters(scopes: Collection[str]) -> list[str | None]:
    return [*scopes] or [None]


# The downloadCount of each widget in the list, as it was received.
Counts = dict[WidgetKey, object]


def list_widgets(
    upstream: Upstream, scopes: Collection[str], max_total: int
) -> tuple[Counts, bool]:
    """Return the widgets that the upstream lists, and whether they are all of them."""
    counts: Counts = {}
    is_complete = True
    for scope in _filters(scopes):
        scope_counts, total = _list_scope(upstream, scope, max_total)
        counts |= scope_counts
        is_complete = is_complete and total == len(scope_counts)
    return counts, is_complete


def _list_scope(upstream: Upstream, scope: str | None, max_total: int) -> tuple[Counts, int | None]:
    """Return the widgets on the pages of one list, and their total if every page states the same.

    A widget that moves to a page already read is missed, and another one is read twice. Reading
    ends at the total, at a page without a new widget, or after the pages that the first total (at
    most max_total) fills and a tenth more, since a list may grow while it is read.
    """
    counts: Counts = {}
    totals: set[int] = set()
    received, page, last_page = 0, 0, 1
    while page < last_page:
        page += 1
        entries, total = _search(upstream, scope, page, MAX_LIMIT)
        if page == 1:
            # A server may cap the limit, but not below the default of the API.
            pages = min(total, max_total) // max(len(entries), DEFAULT_LIMIT)
            last_page = pages * 11 // 10 + 10
        totals.add(total)
        received += len(entries)
        length_before = len(counts)
        counts.update(entries)
        if received >= total or len(counts) == length_before:
            break
    return counts, totals.pop() if len(totals) == 1 else None


def _search(
    upstream: Upstream, scope: str | None, page: int, limit: int
) -> tuple[list[tuple[WidgetKey, object]], int]:
    """Return the widgets of one page, and the total that it states."""
    query = {"page": page, "limit": limit} | ({} if scope is None else {"scope": scope})
    response = upstream.get(f"{V1_PREFIX}search?{urlencode(query)}")
    try:
        result: Any = parse_json(response.body)
        entries = [
            (check_key(entry["scope"], entry["name"]), entry.get("downloadCount"))
            for entry in result["widgets"]
        ]
        total = result["total"]
        if type(total) is not int:
            raise TypeError
    except (ValueError, RecursionError, LookupError, TypeError):
        raise UpstreamError("the search response is not that of a widget catalog") from None
    if len(entries) > MAX_LIMIT:
        raise UpstreamError(f"a page of the list has {len(entries)} widgets, more than {MAX_LIMIT}")
    if total > MAX_WIDGETS:
        raise UpstreamError(f"it lists {total} widgets, more than {MAX_WIDGETS}")
    return entries, total


def check_key(scope: object, name: object) -> WidgetKey:
    """Return the key of a widget in a response; raise TypeError."""
    if not isinstance(scope, str) or not isinstance(name, str):
        raise TypeError
    if max(len(scope), len(name)) > MAX_NAME_LENGTH:
        raise TypeError
    return WidgetKey(scope, name)
