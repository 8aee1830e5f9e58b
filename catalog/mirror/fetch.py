"""Reads an upstream: the list of its widgets, its changes, and widgets, ahead of their use."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from catalog import V1_PREFIX
from catalog.documents import Document, DocumentError, check_document, parse_json
from catalog.mirror.upstream import UnexpectedStatusError, Upstream, UpstreamError
from catalog.store.read.search_params import DEFAULT_LIMIT, MAX_LIMIT
from catalog.text import quoted
from catalog.validators import check_identifier

MAX_WIDGETS = 1_000_000
MAX_NAME_LENGTH = 1000  # characters
MAX_TOKEN_LENGTH = 1000  # characters
# Results in one transaction: enough that fsync costs little, few enough to lose in a crash.
BATCH_SIZE = 64

Item = TypeVar("Item")
# Called with the number of items that are done, and the number of all.
OnProgress = Callable[[int, int], None]


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


class UpstreamChanges(NamedTuple):
    """The ETag of each changed widget, None if it is no longer public, and the token after them."""

    etags: dict[WidgetKey, str | None]
    token: str

    def has_current(self, key: WidgetKey, etag: str) -> bool:
        """Return whether a copy of the widget with this ETag is current.

        The changes have the ETags of details that are not compressed.
        """
        return self.etags.get(key, etag) in (etag, etag.replace('-gzip"', '"'))


def read_changes(upstream: Upstream, token: str | None) -> UpstreamChanges | None:
    """Return the changes since the token; None if the upstream does not list its changes.

    Without a token, and if the upstream no longer knows it, they are read from the beginning and
    contain every listed widget. Any failure counts as an upstream without changes, which is
    mirrored without them: other servers respond in other ways to a path that they do not have.
    """
    try:
        if token is not None:
            try:
                return _read_pages(upstream, token)
            except UnexpectedStatusError as error:
                if error.status != 410:
                    raise
        return _read_pages(upstream, None)
    except UpstreamError:
        return None


def _read_pages(upstream: Upstream, token: str | None) -> UpstreamChanges:
    etags: dict[WidgetKey, str | None] = {}
    received, has_more = 0, True
    while has_more:
        entries, token, has_more = _read_page(upstream, token)
        # Of two changes of a widget the later one counts.
        etags |= entries
        received += len(entries)
        # A server may cap the limit, but not below the default of the API.
        if has_more and (len(entries) < DEFAULT_LIMIT or received > MAX_WIDGETS):
            raise UpstreamError("the list of its changes does not end")
    return UpstreamChanges(etags, token or "")


def _read_page(
    upstream: Upstream, token: str | None
) -> tuple[dict[WidgetKey, str | None], str, bool]:
    """Return one page of changes, the token after it, and whether there are more."""
    query = {"limit": MAX_LIMIT} | ({} if token is None else {"since": token})
    response = upstream.get(f"{V1_PREFIX}changes?{urlencode(query)}")
    try:
        page: Any = parse_json(response.body)
        etags = {
            check_key(entry["scope"], entry["name"]): _check_etag(entry["kind"], entry["etag"])
            for entry in page["changes"]
        }
        next_token, has_more = page["next"], page["more"]
        if not isinstance(next_token, str) or not isinstance(has_more, bool):
            raise TypeError
    except (ValueError, RecursionError, LookupError, TypeError):
        raise UpstreamError("the response is not a list of changes") from None
    if not 0 < len(next_token) <= MAX_TOKEN_LENGTH or len(etags) > MAX_LIMIT:
        raise UpstreamError("the response is not a list of changes")
    return etags, next_token, has_more


def _check_etag(kind: object, etag: object) -> str | None:
    if kind == "removed":
        return None
    if kind != "changed" or not isinstance(etag, str):
        raise TypeError
    return etag


class FetchResult(NamedTuple):
    """The outcome of fetching one widget: a document, not found, a failure, or else unchanged."""

    key: WidgetKey
    document: Document | None = None
    etag: str | None = None
    is_not_found: bool = False
    failure: str | None = None
    # The request failed without a response that could be used.
    is_unavailable: bool = False


def fetch_widget(upstream: Upstream, key: WidgetKey, etag: str | None) -> FetchResult:
    """Fetch the detail of a widget, unless it still has this ETag, and validate it."""
    try:
        path = "/".join(quote(check_identifier(part), safe="") for part in key)
    except ValueError as rule:
        return FetchResult(key, failure=f"scope and name must be {rule}")
    try:
        response = upstream.get(f"{V1_PREFIX}{path}", etag)
        if response.status == 404:
            return FetchResult(key, is_not_found=True)
        if response.status == 304:
            return FetchResult(key)
        document = check_document(parse_json(response.body))
    except UpstreamError as error:
        is_unavailable = not isinstance(error, UnexpectedStatusError)
        return FetchResult(key, failure=str(error), is_unavailable=is_unavailable)
    except DocumentError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return FetchResult(key, failure=f"{error.problems[0]}{more}")
    except RecursionError:
        return FetchResult(key, failure="the response is nested too deeply")
    except ValueError as error:
        return FetchResult(key, failure=f"the response is not JSON in UTF-8 ({error})")
    if document.path != str(key):
        return FetchResult(key, failure=f"the response is about {quoted(document.path)}")
    return FetchResult(key, document, response.etag)


@contextmanager
def thread_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool; work that has not started when the block ends is cancelled."""
    threads = ThreadPoolExecutor(workers)
    wait = True
    try:
        yield threads
    except KeyboardInterrupt:
        # An interrupted command must end now, not when the pending responses arrive.
        wait = False
        raise
    finally:
        threads.shutdown(wait, cancel_futures=True)


def batched(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items in batches, each for one transaction."""
    for start in range(0, len(items), BATCH_SIZE):
        yield items[start : start + BATCH_SIZE]
