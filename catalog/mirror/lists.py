"""Reads an upstream's lists: its widgets, and its changes since a position."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import urlencode

from .. import V1_PREFIX
from ..domain.changes import WidgetName
from ..domain.validators import (
    MAX_IDENTIFIER_LENGTH,
    check_boolean,
    check_nonempty_text,
    check_text,
    check_whole_number,
)
from ..store.read.parameters import DEFAULT_LIMIT, MAX_LIMIT
from ..store.read.selection import Selection
from .upstream import Upstream, UpstreamError, read_json

# The names of this many widgets take at most 86 MB of memory.
MAX_WIDGETS = 200_000

# The download count of each widget.
Counts = dict[WidgetName, int | None]


class UpstreamChanges(NamedTuple):
    """The changes since a position, and the position after them."""

    # The ETag of each changed widget; None if the widget is no longer public.
    etags: dict[WidgetName, str | None]
    position: str

    @property
    def public(self) -> list[WidgetName]:
        """The changed widgets that are public."""
        return [key for key, etag in self.etags.items() if etag is not None]

    def has_current(self, key: WidgetName, etag: str | None) -> bool:
        """Return whether a copy of the widget with this ETag is up to date."""
        if etag is None:
            return False
        # The upstream lists the ETags of uncompressed responses, without the -gzip suffix.
        return self.etags.get(key, etag) in (etag, etag.replace('-gzip"', '"'))


class Lists(NamedTuple):
    """An upstream's lists, which are read before any widget."""

    # The selected widgets with their counts, and all other listed widgets as scope/name.
    listed: Counts
    others: set[str]
    # False if widgets may be missing because the list changed while it was being read.
    is_complete: bool
    # None if the upstream does not list its changes.
    changes: UpstreamChanges | None


def read_lists(
    upstream: Upstream, selection: Selection, position: str | None, *, needs_widgets: bool
) -> Lists:
    """Read the changes since a position, then the list of the selected widgets.

    Raise UpstreamError if there is no catalog at the URL. With needs_widgets, also raise it if the
    upstream lists no widget at all: an empty list is more often a fault than a complete takedown.
    """
    changes = read_changes(upstream, position)
    found, is_complete = list_widgets(upstream, selection)
    if needs_widgets and not found and not list_widgets(upstream, Selection())[0]:
        raise UpstreamError(
            "it lists no widgets, so all copies would be unlisted; use --keep-removed to keep them"
        )
    listed = {key: found[key] for key in found if selection.selects(key.scope, key.name)}
    return Lists(listed, set(map(str, found.keys() - listed.keys())), is_complete, changes)


def list_widgets(upstream: Upstream, selection: Selection) -> tuple[Counts, bool]:
    """Return the widgets in all lists that a selection needs, and whether these lists are complete.

    A widget that moves to an earlier page in the meantime is missed, and another is read twice.
    """
    counts: Counts = {}
    are_complete = []
    named = (path.partition("/")[0] for path in selection.widgets)
    scopes = [{"scope": scope} for scope in dict.fromkeys([*selection.scopes, *named])]
    sdks = [{"compatSdk": sdk} for sdk in selection.sdks]
    for scope, sdk in product(scopes or [{}], sdks or [{}]):
        found, is_complete = _read_list(upstream, {**scope, **sdk})
        are_complete.append(is_complete)
        counts |= found
    return counts, all(are_complete)


def _read_list(upstream: Upstream, query: dict[str, str]) -> tuple[Counts, bool]:
    """Return the widgets on all pages of one list, and whether they add up to its total."""
    counts: Counts = {}
    seen: set[WidgetName] = set()
    page, received, has_more = 0, 0, True
    while has_more:
        page += 1
        parameters = urlencode({"page": page, "limit": MAX_LIMIT, **query})
        result = read_json(upstream.get_page(f"{V1_PREFIX}search?{parameters}"))
        with _format_errors("the search response is not from a widget catalog"):
            total = check_whole_number(result["total"])
            entries = {_check_key(each): each for each in result["widgets"]}
            for key, entry in entries.items():
                # A search for an SDK also finds widgets without a version for that SDK.
                if "compatSdk" not in query or entry["latestCompatibleVersion"] is not None:
                    count = entry.get("downloadCount")
                    counts[key] = None if count is None else check_whole_number(count)
        if total > MAX_WIDGETS:
            raise UpstreamError(f"it lists {total} widgets, more than {MAX_WIDGETS}")
        received += len(entries)
        has_new = not entries.keys() <= seen
        seen |= entries.keys()
        # A server may cap the limit, but not below the API's default.
        has_more = has_new and received < total and len(entries) >= DEFAULT_LIMIT
    return counts, total == len(seen)


def read_changes(upstream: Upstream, position: str | None) -> UpstreamChanges | None:
    """Return the changes since the position; None if the upstream does not list its changes.

    Without a position, or if the upstream no longer knows it, the changes are read from the
    beginning and contain every listed widget. Also return None after any failure, because servers
    without a list of changes respond to its path in different ways.
    """
    try:
        return _read_all_changes(upstream, position)
    except UpstreamError:
        return None


def _read_all_changes(upstream: Upstream, position: str | None) -> UpstreamChanges:
    etags: dict[WidgetName, str | None] = {}
    is_from_beginning = position is None
    received, has_more = 0, True
    while has_more:
        query = {"limit": MAX_LIMIT} | ({} if position is None else {"since": position})
        response = upstream.get_page(f"{V1_PREFIX}changes?{urlencode(query)}")
        if response.status == 410 and not is_from_beginning:
            return _read_all_changes(upstream, None)
        page = read_json(response)
        with _format_errors("the response is not a list of changes"):
            # If a widget changed twice, only the later change counts.
            entries = {_check_key(entry): _check_etag(entry) for entry in page["changes"]}
            position, has_more = check_nonempty_text(page["next"]), check_boolean(page["more"])
        etags |= entries
        received += len(page["changes"])
        if has_more and (len(page["changes"]) < DEFAULT_LIMIT or received > MAX_WIDGETS):
            raise UpstreamError("the list of its changes does not end")
    return UpstreamChanges(etags, position or "")


def _check_key(entry: Any) -> WidgetName:
    """Return the widget that an entry names; reject overlong names; Fetcher checks the rest."""
    key = WidgetName(check_text(entry["scope"]), check_text(entry["name"]))
    if len(key.scope) + len(key.name) > 2 * MAX_IDENTIFIER_LENGTH:
        raise ValueError
    return key


def _check_etag(entry: Any) -> str | None:
    return None if entry["kind"] == "removed" else check_text(entry["etag"])


@contextmanager
def _format_errors(message: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UpstreamError(message) from None
