"""What changed at an upstream since the last refresh, where it lists its changes."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

from catalog import V1_PREFIX
from catalog.documents import parse_json
from catalog.mirror.upstream import UnexpectedStatusError, Upstream, UpstreamError
from catalog.mirror.widget_list import MAX_WIDGETS, WidgetKey, check_key
from catalog.store.read.search_params import DEFAULT_LIMIT, MAX_LIMIT

MAX_TOKEN_LENGTH = 1000  # characters


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
