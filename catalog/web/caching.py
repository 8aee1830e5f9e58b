"""Conditional requests for pages: ETags of their content, and 304 without rendering them again.

The ETag of a page is a hash of its bytes, so that nothing that the page does not show changes it.
The service caches the ETags, not the pages: while the catalog has the revision at which a page was
rendered, counters included, its ETag is known, and a client that has the page gets 304 at once.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from flask import Response, current_app, request

from catalog.routing import accept_encoding, find_known_etag, prefers_gzip, public_url
from catalog.store.connection.database import Database

MAX_ETAGS = 10_000

# A page, or a page with its status.
Page = str | tuple[str, int]


class PageEtags:
    """An LRU cache of the ETags of pages."""

    def __init__(self) -> None:
        self._etags: OrderedDict[bytes, str] = OrderedDict()
        self._lock = Lock()

    def get(self, key: bytes) -> str | None:
        """Return the ETag for the key, if it is cached."""
        with self._lock:
            etag = self._etags.get(key)
            if etag is not None:
                self._etags.move_to_end(key)
            return etag

    def put(self, key: bytes, etag: str) -> None:
        """Cache the ETag, and evict the least recently used ones."""
        with self._lock:
            self._etags[key] = etag
            if len(self._etags) > MAX_ETAGS:
                self._etags.popitem(last=False)


def page_response(
    render: Callable[[], Page], *inputs: object, mimetype: str = "text/html"
) -> Response:
    """Return the page that render() returns, with an ETag; 304 if the client has it already.

    The page may depend on the catalog, on the URL and on the inputs, such as the current day.
    """
    cache: PageEtags = current_app.extensions["page_etags"]
    # Read the revision before render(): a commit between the two must not go unnoticed.
    key = page_key(*inputs)
    etag = cache.get(key)
    if etag is not None and (unchanged := unchanged_response(etag, mimetype)):
        return unchanged
    page = render()
    text, status = page if isinstance(page, tuple) else (page, 200)
    response = Response(text, status, mimetype=mimetype)
    if status != 200:
        return response
    etag = hashlib.sha1(response.get_data(), usedforsecurity=False).hexdigest()
    cache.put(key, etag)
    if unchanged := unchanged_response(etag, mimetype):
        return unchanged
    response.set_etag(etag)
    return response


def unchanged_response(etag: str, mimetype: str) -> Response | None:
    """Return 304 if the client has the page with this ETag in a form that it accepts."""
    known_etag = find_known_etag(request.if_none_match, etag, prefers_gzip(accept_encoding()))
    if known_etag is None:
        return None
    response = Response(status=304, mimetype=mimetype)
    response.set_etag(known_etag)
    return response


REVISION = "SELECT history, content, downloads FROM revision"


def page_key(*inputs: object) -> bytes:
    """Return a hash of what the requested page depends on."""
    database: Database = current_app.extensions["database"]
    connection = database.reader()
    revision = tuple(connection.execute(REVISION).fetchone())
    url = public_url(), request.script_root, request.path, request.query_string
    return hashlib.sha256(repr((revision, url, inputs)).encode()).digest()
