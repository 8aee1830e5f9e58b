"""The response cache: WSGI middleware in front of Flask.

A view calls render_for_cache() with two functions: render() runs the SQL that writes the JSON, and
revalidate() later tells whether that JSON is still current. The middleware stores the complete
response under its base URL, path and query string. On the next GET or HEAD request for that URL:

1. If the data version (PRAGMA data_version) of the thread's connection has not changed since the
   response was last found valid, the response is still valid: nothing was committed, and the day
   has not changed. Data versions of different connections are never equal.
2. Otherwise revalidate() decides with one statement, which ignores installs that the response does
   not show. If the response is not valid, Flask renders it again. No response expires with age.

Everything else goes to Flask: misses, errors, other methods, requests with a body, and a database
that cannot be read. A body is compressed for the first client that prefers gzip; large bodies are
not compressed on the I/O thread. The server renders and compresses one large body at a time.

The least recently used responses are evicted once the cache exceeds MAX_BYTES. One response above
that limit, such as the registry of a large scope, is cached as well.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha1
from threading import Lock
from typing import TYPE_CHECKING, Any

from flask import Response, current_app, request

from .. import ENDPOINT
from ..domain.request_kinds import KIND, Kind, classify
from ..store.bundles.compressed import MIN_LENGTH
from ..store.connection.database import Database
from ..store.connection.sqlite import (
    Connection,
    DatabaseError,
    DeadlineExceeded,
    WouldBlock,
)
from ..store.read.json_sql import with_bundle_urls
from ..system.public_url import public_url
from .cached_response import Entry, Head, Key, Pieces, Revalidate
from .compression import (
    FAST_LEVEL,
    SMALL_LEVEL,
    VARY,
    compress,
    find_known_etag,
    prefers_gzip,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MAX_BYTES = 16 * 1024 * 1024
# Compressing this many bytes takes a millisecond. A page of 100 search results is about 100 kB.
MAX_COMPRESSED_ON_IO_THREAD = 128 * 1024  # bytes
JSON_TYPE = "application/json"
# The WSGI environment key for the entry that a view has rendered.
RENDERED = "catalog.rendered"

# The catalog revision that was rendered, and the JSON with a final newline. The revision is None if
# the response must not be cached because it depends on a file that may arrive later.
RenderResult = tuple[Any, bytes | Pieces]
Render = Callable[[Connection], RenderResult]


def request_url() -> str:
    """Return the base URL that the client uses to reach this service."""
    return public_url(current_app.config["PUBLIC_URL"], request.environ)


def render_for_cache(
    revalidate: Revalidate,
    render: Render,
    headers: Mapping[str, str] | None = None,
    *,
    has_etag: bool = True,
    mimetype: str = JSON_TYPE,
) -> Response:
    """Render the response to this request for the cache, with absolute URLs for stored bundles."""
    database: Database = current_app.extensions["database"]
    connection, url = database.reader(), request_url()
    # Read the data version before render(), so that a commit between the two is noticed.
    data_version = connection.data_version()
    revision, body = render(connection)
    pieces = [body] if isinstance(body, bytes) else body
    digest = sha1(usedforsecurity=False)
    for index, piece in enumerate(pieces):
        connection.check_deadline()
        pieces[index] = with_bundle_urls(piece, url)
        digest.update(pieces[index])
    etag = {"ETag": f'"{digest.hexdigest()}"'} if has_etag else {}
    request.environ[RENDERED] = Entry(pieces, revalidate, revision, data_version)
    return Response(pieces, headers={**etag, **(headers or {}), **VARY}, mimetype=mimetype)


def find_kind(environ: "WSGIEnvironment") -> Kind:
    """Return the kind of a request; only our own server puts it into the environment."""
    kind: Kind | None = environ.get(KIND)
    if kind is not None:
        return kind
    has_body = environ.get("CONTENT_LENGTH") not in (None, "", "0")
    return classify(environ["REQUEST_METHOD"], environ["PATH_INFO"], has_body=has_body)


class ResponseCache:
    """WSGI middleware with an LRU cache of responses and room for one response above MAX_BYTES."""

    def __init__(self, app: "WSGIApplication", database: Database, public_url: str) -> None:
        self._app, self._database, self._public_url = app, database, public_url
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._large: Entry | None = None
        self._bytes = 0
        # How many responses were found in the cache, and how many had to be rendered.
        self.hits = self.misses = 0
        self._lock = Lock()

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        key = self._key(environ) if find_kind(environ) is Kind.CACHEABLE else None
        entry = self._find_valid(key) if key else None
        if entry is not None:
            environ[ENDPOINT] = entry.endpoint
            return self._send(entry, environ, start_response)
        if self._database.deadline.only_cached:
            raise WouldBlock
        if key is None:
            return self._app(environ, start_response)
        return self._render(key, environ, start_response)

    def _key(self, environ: "WSGIEnvironment") -> Key:
        url = public_url(self._public_url, environ)
        return url, environ["PATH_INFO"], environ["QUERY_STRING"]

    def _render(
        self, key: Key, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Let Flask respond, and cache the response if the view called render_for_cache()."""
        head: Head = []

        def note_head(status: str, headers: Head, exc_info: Any = None) -> Callable[[bytes], Any]:
            if RENDERED not in environ or status != "200 OK":
                environ.pop(RENDERED, None)
                return start_response(status, headers, exc_info)
            head.extend(headers)
            return lambda data: None

        body = self._app(environ, note_head)
        entry: Entry | None = environ.pop(RENDERED, None)
        if entry is None:
            return body
        # Flask's body is not needed: the entry contains the body, even for a HEAD request.
        if hasattr(body, "close"):
            body.close()
        entry.key, entry.endpoint, entry.head = key, environ.get(ENDPOINT), head
        entry.etag = dict(head).get("ETag", "").strip('"')
        with self._lock:
            self.misses += 1
            if entry.is_cacheable:
                self._put(entry)
        return self._send(entry, environ, start_response)

    def _find_valid(self, key: Key) -> Entry | None:
        """Return the cached response if it is valid."""
        with self._lock:
            entry = self._find(key)
            if entry is None:
                return None
            if entry is not self._large:
                self._entries.move_to_end(key)
        try:
            is_valid = entry.is_valid(self._database.reader())
        except DeadlineExceeded:
            # Another thread retries the request; after the final deadline Flask responds 503.
            if not self._database.deadline.is_final:
                raise
            return None
        except (DatabaseError, sqlite3.Error):
            # Flask runs into the same error and sends the error response.
            return None
        with self._lock:
            self.hits += is_valid
            if not is_valid and self._find(key) is entry:
                self._remove(key)
        return entry if is_valid else None

    def _send(
        self, entry: Entry, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Send the entry, compressed if the client prefers gzip, or 304 if its ETag matches."""
        accepted = environ.get("HTTP_ACCEPT_ENCODING")
        with_gzip = accepted is not None and entry.length > MIN_LENGTH and prefers_gzip(accepted)
        known = environ.get("HTTP_IF_NONE_MATCH")
        if known is not None and entry.etag:
            etag = find_known_etag(known, entry.etag, with_gzip)
            if etag is not None:
                start_response("304 NOT MODIFIED", entry.unchanged_head(etag))
                return ()
        head, pieces = entry.head, entry.pieces
        if with_gzip:
            head, body = entry.gzip or self._compress(entry)
            pieces = [body]
        start_response("200 OK", head)
        return () if environ["REQUEST_METHOD"] == "HEAD" else pieces

    def _compress(self, entry: Entry) -> tuple[Head, bytes]:
        """Return the head and body of the compressed form, and cache both with the response."""
        is_large = entry.length > MAX_COMPRESSED_ON_IO_THREAD
        deadline = self._database.deadline
        if is_large and deadline.on_io_thread:
            raise WouldBlock
        # After the final deadline, finish the response anyway: a late response is better than none.
        check = (lambda: None) if deadline.is_final else deadline.check
        body = compress(entry.pieces, SMALL_LEVEL if is_large else FAST_LEVEL, check)
        compressed = entry.gzip_head(len(body)), body
        with self._lock:
            # The entry may have been evicted or replaced in the meantime.
            if self._find(entry.key) is entry:
                # Remove the entry while its size changes, and put it back afterwards.
                self._remove(entry.key)
                entry.gzip = compressed
                self._put(entry)
        return compressed

    def size(self) -> int:
        """Return how many bytes all cached responses take in memory."""
        with self._lock:
            return self._bytes + (self._large.size if self._large else 0)

    def _find(self, key: Key) -> Entry | None:
        is_large = self._large is not None and self._large.key == key
        return self._large if is_large else self._entries.get(key)

    def _remove(self, key: Key) -> None:
        if self._large and self._large.key == key:
            self._large = None
        removed = self._entries.pop(key, None)
        self._bytes -= removed.size if removed else 0

    def _put(self, entry: Entry) -> None:
        """Cache the response, and evict the least recently used responses beyond MAX_BYTES."""
        self._remove(entry.key)
        if entry.size > MAX_BYTES:
            self._large = entry
            return
        self._entries[entry.key] = entry
        self._bytes += entry.size
        while self._bytes > MAX_BYTES:
            _, evicted = self._entries.popitem(last=False)
            self._bytes -= evicted.size
