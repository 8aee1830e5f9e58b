"""The list of an upstream's widgets, read page by page through its search."""

from collections.abc import Collection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from catalog import V1_PREFIX
from catalog.documents import parse_json
from catalog.mirror.upstream import Upstream, UpstreamError

PAGE = 100
# What a server may make of a limit of 100: the specification's default, and no less.
SMALLEST_PAGE = 20
MAX_WIDGETS = 1_000_000
MAX_NAME_LENGTH = 1000


class Name(NamedTuple):
    """The scope and the name of a widget."""

    scope: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"


def count(upstream: Upstream, scopes: Collection[str]) -> int:
    """How many widgets the upstream lists, in all scopes or in some."""
    return sum(_search(upstream, scope, 1, 1)[1] for scope in _filters(scopes))


def _filters(scopes: Collection[str]) -> list[str | None]:
    return [*scopes] or [None]


def walk(upstream: Upstream, scopes: Collection[str], most: int) -> tuple[list[Name], bool]:
    """The widgets that the upstream lists, each once, and whether those are surely all."""
    names: dict[Name, None] = {}
    is_complete = True
    for scope in _filters(scopes):
        found, total = _walk_scope(upstream, scope, most)
        names |= found
        is_complete = is_complete and total == len(found)
    return list(names), is_complete


def _walk_scope(
    upstream: Upstream, scope: str | None, most: int
) -> tuple[dict[Name, None], int | None]:
    """The widgets on the pages of one list, and their total if every page states the same.

    A widget that moved to a page already read is missed, and another found twice in its place.
    The walk ends at the total, at a page without a new name, or after the pages that the first
    total can fill and a tenth more, since a list may grow while it is read.
    """
    found: dict[Name, None] = {}
    totals: set[int] = set()
    received, page, last_page = 0, 0, 1
    while page < last_page:
        page += 1
        entries, total = _search(upstream, scope, page, PAGE)
        if page == 1:
            pages = min(total, most) // max(len(entries), SMALLEST_PAGE)
            last_page = pages * 11 // 10 + 10
        totals.add(total)
        received += len(entries)
        known = len(found)
        found.update(dict.fromkeys(entries))
        if received >= total or len(found) == known:
            break
    return found, totals.pop() if len(totals) == 1 else None


def _search(upstream: Upstream, scope: str | None, page: int, limit: int) -> tuple[list[Name], int]:
    asked = {"page": page, "limit": limit} | ({} if scope is None else {"scope": scope})
    answer = upstream.get(f"{V1_PREFIX}search?{urlencode(asked)}")
    try:
        found: Any = parse_json(answer.body)
        names = [Name(entry["scope"], entry["name"]) for entry in found["widgets"]]
        total = found["total"]
        if type(total) is not int or not all(
            isinstance(part, str) and len(part) <= MAX_NAME_LENGTH
            for name in names
            for part in name
        ):
            raise TypeError
    except (ValueError, RecursionError, LookupError, TypeError):
        raise UpstreamError("the answer to a search is not that of a widget catalog") from None
    if len(names) > PAGE:
        raise UpstreamError(f"a page of the list has {len(names)} widgets, more than {PAGE}")
    if total > MAX_WIDGETS:
        raise UpstreamError(f"{total} widgets are more than the {MAX_WIDGETS} that are taken")
    return names, total
