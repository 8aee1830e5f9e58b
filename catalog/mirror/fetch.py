"""Fetches widgets of an upstream, each with its ETag, and validates them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote

from catalog import V1_PREFIX
from catalog.documents import Document, DocumentError, check_document, parse_json
from catalog.mirror.upstream import UnexpectedStatusError, Upstream, UpstreamError
from catalog.mirror.widget_list import WidgetKey
from catalog.text import quoted
from catalog.validators import check_identifier

MAX_FAILURES_IN_A_ROW = 25


class MirrorError(Exception):
    """The run cannot continue; the message says why, without a full stop."""


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


def stop_if_unavailable(results: Iterable[FetchResult]) -> Iterator[FetchResult]:
    """Yield the results; raise MirrorError after too many requests in a row without a response."""
    failures = 0
    for result in results:
        failures = failures + 1 if result.is_unavailable else 0
        if failures == MAX_FAILURES_IN_A_ROW:
            raise MirrorError(
                f"{failures} requests in a row failed, the last one because {result.failure}"
            )
        yield result
