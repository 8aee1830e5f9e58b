"""Reads an upstream: the list of its widgets, its changes, and widgets, ahead of their use."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from .. import V1_PREFIX
from ..changes import WidgetName
from ..documents import Document, DocumentError, check_document
from ..store.read.search_params import DEFAULT_LIMIT, MAX_LIMIT
from ..store.read.selection import Selection
from ..text import quoted
from ..validators import (
    MAX_IDENTIFIER_LENGTH,
    check_boolean,
    check_identifier,
    check_nonempty_text,
    check_text,
    check_whole_number,
)
from .connections import UpstreamError
from .upstream import Upstream

MAX_WIDGETS = 1_000_000
# Of all scopes and names in a list.
MAX_NAMES_LENGTH = 100_000_000
# Requests at the same time.
WORKERS = 4
# Results in one transaction: enough that fsync costs little, few enough to lose in a crash.
BATCH_SIZE = 64

Item = TypeVar("Item")
# Called with the number of items that are done, and the number of all.
OnProgress = Callable[[int, int], None]


# The download count of each widget in the list.
Counts = dict[WidgetName, int | None]


def list_widgets(upstream: Upstream, selection: Selection) -> tuple[Counts, bool]:
    """Return the selected widgets that the upstream lists, and whether the list was complete.

    A widget that moves to a page already read is missed, and another one is read twice.
    """
    counts: Counts = {}
    are_complete = []
    named = (path.partition("/")[0] for path in selection.widgets)
    scopes = [{"scope": scope} for scope in dict.fromkeys([*selection.scopes, *named])]
    sdks = [{"compatSdk": sdk} for sdk in selection.sdks]
    official = {"official": "true"} if selection.official else {}
    for scope, sdk in product(scopes or [{}], sdks or [{}]):
        found, is_complete = _read_list(upstream, {**scope, **sdk, **official})
        are_complete.append(is_complete)
        counts |= {key: found[key] for key in found if selection.names(key.scope, key.name)}
    return counts, all(are_complete)


def _read_list(upstream: Upstream, query: dict[str, str]) -> tuple[Counts, bool]:
    """Return the widgets on all pages of one list, and whether they are as many as it states."""
    counts: Counts = {}
    seen: set[WidgetName] = set()
    page, received, length, has_more = 0, 0, 0, True
    while has_more:
        page += 1
        parameters = urlencode({"page": page, "limit": MAX_LIMIT, **query})
        result = upstream.get_page(f"{V1_PREFIX}search?{parameters}").json()
        with _format_errors("the search response is not that of a widget catalog"):
            total = check_whole_number(result["total"])
            entries = {_check_key(each): each for each in result["widgets"]}
            for key, entry in entries.items():
                # A search for an SDK also finds widgets without a version for it.
                if "compatSdk" not in query or entry["latestCompatibleVersion"] is not None:
                    count = entry.get("downloadCount")
                    counts[key] = None if count is None else check_whole_number(count)
        if total > MAX_WIDGETS:
            raise UpstreamError(f"it lists {total} widgets, more than {MAX_WIDGETS}")
        received += len(entries)
        length = _add_length(length, entries)
        has_new = not entries.keys() <= seen
        seen |= entries.keys()
        # A server may cap the limit, but not below the default of the API.
        has_more = has_new and received < total and len(entries) >= DEFAULT_LIMIT
    return counts, total == len(seen)


@contextmanager
def _format_errors(message: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UpstreamError(message) from None


def _check_key(entry: Any) -> WidgetName:
    """Return the widget of an entry; fetch_widget() refuses names that are not too long."""
    key = WidgetName(check_text(entry["scope"]), check_text(entry["name"]))
    if len(key.scope) + len(key.name) > 2 * MAX_IDENTIFIER_LENGTH:
        raise ValueError
    return key


def _add_length(length: int, keys: Iterable[WidgetName]) -> int:
    """Return the length of all names of a list so far, which are held in memory until its end."""
    length += sum(len(key.scope) + len(key.name) for key in keys)
    if length > MAX_NAMES_LENGTH:
        raise UpstreamError(f"its names have more than {MAX_NAMES_LENGTH} characters")
    return length


class UpstreamChanges(NamedTuple):
    """The ETag of each changed widget, None if it is no longer public, and the token after them."""

    etags: dict[WidgetName, str | None]
    token: str

    @property
    def changed(self) -> list[WidgetName]:
        """The changed widgets that are public."""
        return [key for key, etag in self.etags.items() if etag is not None]

    def has_current(self, key: WidgetName, etag: str | None) -> bool:
        """Return whether a copy of the widget with this ETag is current.

        The changes have the ETags of details that are not compressed.
        """
        if etag is None:
            return False
        return self.etags.get(key, etag) in (etag, etag.replace('-gzip"', '"'))


def read_changes(upstream: Upstream, token: str | None) -> UpstreamChanges | None:
    """Return the changes since the token; None if the upstream does not list its changes.

    Without a token, and if the upstream no longer knows it, they are read from the beginning and
    contain every listed widget. Any failure counts as an upstream without changes, which is
    mirrored without them: other servers respond in other ways to a path that they do not have.
    """
    try:
        return _read_all_changes(upstream, token)
    except UpstreamError:
        return None


def _read_all_changes(upstream: Upstream, token: str | None) -> UpstreamChanges:
    etags: dict[WidgetName, str | None] = {}
    received, length, has_more = 0, 0, True
    while has_more:
        query = {"limit": MAX_LIMIT} | ({} if token is None else {"since": token})
        response = upstream.get_page(f"{V1_PREFIX}changes?{urlencode(query)}")
        if response.status == 410 and token is not None:
            return _read_all_changes(upstream, None)
        page = response.json()
        with _format_errors("the response is not a list of changes"):
            # Of two changes of a widget the later one counts.
            entries = {_check_key(entry): _check_etag(entry) for entry in page["changes"]}
            token, has_more = check_nonempty_text(page["next"]), check_boolean(page["more"])
        etags |= entries
        length = _add_length(length, entries)
        received += len(page["changes"])
        if has_more and (len(page["changes"]) < DEFAULT_LIMIT or received > MAX_WIDGETS):
            raise UpstreamError("the list of its changes does not end")
    return UpstreamChanges(etags, token or "")


def _check_etag(entry: Any) -> str | None:
    return None if entry["kind"] == "removed" else check_text(entry["etag"])


class FetchResult(NamedTuple):
    """The outcome of fetching one widget: a document, not found, a failure, or else unchanged."""

    key: WidgetName
    document: Document | None = None
    etag: str | None = None
    is_not_found: bool = False
    failure: str | None = None
    # The request failed without a response that could be used.
    is_unavailable: bool = False


def fetch_widget(upstream: Upstream, key: WidgetName, etag: str | None) -> FetchResult:
    """Fetch the detail of a widget, unless it still has this ETag, and validate it."""
    try:
        path = "/".join(quote(check_identifier(part), safe="") for part in key[:2])
    except ValueError as rule:
        return FetchResult(key, failure=f"scope and name must be {rule}")
    try:
        response = upstream.get(f"{V1_PREFIX}{path}", etag)
    except UpstreamError as error:
        return FetchResult(key, failure=str(error), is_unavailable=True)
    if response.status == 404:
        return FetchResult(key, is_not_found=True)
    if response.status == 304:
        return FetchResult(key)
    try:
        document = check_document(response.json())
    except UpstreamError as error:
        return FetchResult(key, failure=str(error))
    except DocumentError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return FetchResult(key, failure=f"{error.problems[0]}{more}")
    if document.path != str(key):
        return FetchResult(key, failure=f"the response is about {quoted(document.path)}")
    return FetchResult(key, document, response.etag)


@contextmanager
def thread_pool() -> Iterator[ThreadPoolExecutor]:
    """Provide a pool; work that has not started when the block ends is cancelled."""
    threads = ThreadPoolExecutor(WORKERS)
    try:
        yield threads
    finally:
        # An interrupted command must end now, not when the pending responses arrive.
        is_interrupted = isinstance(sys.exception(), KeyboardInterrupt)
        threads.shutdown(wait=not is_interrupted, cancel_futures=True)


def batched(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items in batches, each for one transaction."""
    for start in range(0, len(items), BATCH_SIZE):
        yield items[start : start + BATCH_SIZE]
