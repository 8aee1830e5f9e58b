"""Cache of rendered JSON responses: searches, details, registries and statistics.

What is cached: the JSON body, the digest that gives its ETag, and the revision of the catalog that
it shows. The key is the parsed request. In a cached body the URL of a held bundle is only a path,
since its host depends on the request; CachedResponse.body_for() inserts the base URL.

When a cached response is valid, checked for every request by find_valid():

1. The data version (PRAGMA data_version) of the thread's connection is the one at which the
   response was last found valid: nothing was committed since, so it is valid.
2. Otherwise one statement, the caller's revalidate(), decides: it compares the revision of the
   response with the current one and ignores installs that the response does not show. If the
   response is valid, its data version is updated; if not, it is rendered again.

Data versions of different connections are never equal, so the first use by another thread takes
step 2. No response expires by time.

Compressed bodies are cached with the response, up to MAX_BASE_URLS for one with held bundles: the
Host header is the client's choice. A body of up to MAX_COMPRESSED_AT_ONCE is compressed for the
first client that prefers gzip. A larger one is sent as it is, while one worker compresses it for
the next clients; at any time there is at most one such worker.

Eviction: the least recently used responses, once all together exceed MAX_BYTES, compressed bodies
included. One response that is larger than that, such as the registry of a large scope, is cached
besides them. Such responses are rendered one at a time, and all clients that request the same one
share its bytes.

The rows hot search, detail, registry and 304 of the benchmark need this. PreparedResponse, the CORS
header that v1.py sets itself, and the response head and single send of serving/ together save about
30 % of a hot request.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from hashlib import sha1
from threading import Lock
from typing import TYPE_CHECKING, Any

from flask import Response, current_app, request
from werkzeug.datastructures import Headers

from catalog.api.cached_response import CachedResponse, Pieces
from catalog.api.compression import (
    FAST_LEVEL,
    GZIP,
    MIN_LENGTH,
    SMALL_LEVEL,
    VARY,
    compress,
)
from catalog.routing import find_known_etag, gzip_etag, prefers_gzip, public_url
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import Connection, WouldBlock
from catalog.store.read.json_sql import HELD_BUNDLE_URL, with_bundle_urls

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MAX_BYTES = 16 * 1024 * 1024
# Upper bound of the memory for the Python objects of one entry.
ENTRY_OVERHEAD = 1024  # bytes
# Rendering a response as large as the catalog may take this long.
RENDER_DEADLINE = 30  # seconds
# Compressing this takes a millisecond. A page of 100 search results has about 100 kB.
MAX_COMPRESSED_AT_ONCE = 128 * 1024  # bytes
# Base URLs for which a response is compressed; with others it is sent as it is.
MAX_BASE_URLS = 4
NOSNIFF = {"X-Content-Type-Options": "nosniff"}

# The revision of the catalog that a response shows, and its JSON with a final newline.
RenderResult = tuple[Any, Pieces]
Render = Callable[[Connection], RenderResult]
# Takes the revision of a cached response; returns the one at which it is valid now, None if stale.
Revalidate = Callable[[Connection, Any], Any]


class ResponseCache:
    """An LRU cache of responses, and one response that exceeds its limit."""

    # Runs a function in a worker. The server replaces it; without it, every thread is a worker.
    run_in_worker: Callable[[Callable[[], None]], None] = staticmethod(lambda job: job())

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, CachedResponse] = OrderedDict()
        self._bytes = 0
        # Valid responses that were found, and responses that had to be rendered.
        self.hits = self.misses = 0
        self._large: tuple[Hashable, CachedResponse] | None = None
        self._lock = Lock()
        # Held while a large response is rendered.
        self.render_lock = Lock()
        # Held while a large response is compressed, or waits for a worker that does it.
        self._compress_lock = Lock()

    def get(self, key: Hashable) -> CachedResponse | None:
        """Return the cached response, if any; the caller checks whether it is valid."""
        with self._lock:
            if self._large and self._large[0] == key:
                return self._large[1]
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def count(self, *, is_hit: bool) -> None:
        """Count a hit or a miss."""
        with self._lock:
            self.hits += is_hit
            self.misses += not is_hit

    def size(self) -> int:
        """Return the bytes in memory."""
        with self._lock:
            return self._bytes + (self._large[1].total_size if self._large else 0)

    def remove_large(self, key: Hashable) -> None:
        """Free the memory of the large response, if it is the one for the key."""
        with self._lock:
            if self._large and self._large[0] == key:
                self._large = None

    def put(self, key: Hashable, entry: CachedResponse) -> None:
        """Cache the response, and evict the least recently used ones beyond MAX_BYTES."""
        with self._lock:
            self._remove(key)
            self._put(key, entry)

    def compress_body(self, key: Hashable, entry: CachedResponse, url: str) -> bytes | None:
        """Return the compressed body with this base URL; None if the plain one is to be sent."""
        if len(entry.gzip_bodies) >= MAX_BASE_URLS:
            return None
        if entry.length <= MAX_COMPRESSED_AT_ONCE:
            self._compress(key, entry, url, FAST_LEVEL)
        elif self._compress_lock.acquire(blocking=False):
            self.run_in_worker(lambda: self._compress_large(key, entry, url))
        return entry.gzip_bodies.get(url)

    def _compress_large(self, key: Hashable, entry: CachedResponse, url: str) -> None:
        try:
            if url not in entry.gzip_bodies:
                self._compress(key, entry, url, SMALL_LEVEL)
        finally:
            self._compress_lock.release()

    def _compress(self, key: Hashable, entry: CachedResponse, url: str, level: int) -> None:
        body = compress((with_bundle_urls(piece, url) for piece in entry.pieces), level)
        with self._lock:
            # Its size changes: remove it before, and put it back after.
            cached = self._remove(key)
            entry.gzip_bodies[url] = body
            if cached is not None:
                self._put(key, cached)

    def _remove(self, key: Hashable) -> CachedResponse | None:
        if self._large and self._large[0] == key:
            _, entry = self._large
            self._large = None
            return entry
        removed = self._entries.pop(key, None)
        self._bytes -= removed.total_size if removed else 0
        return removed

    def _put(self, key: Hashable, entry: CachedResponse) -> None:
        if entry.total_size > MAX_BYTES:
            self._large = key, entry
            return
        self._entries[key] = entry
        self._bytes += entry.total_size
        while self._bytes > MAX_BYTES:
            _, evicted = self._entries.popitem(last=False)
            self._bytes -= evicted.total_size


def respond(
    key: Hashable,
    revalidate: Revalidate,
    render: Render,
    headers: Mapping[str, str] | None = None,
    can_be_large: bool = False,
) -> Response:
    """Return the cached response for the key, or render it; 304 if the client has it already."""
    if can_be_large:
        entry = find_valid(key, revalidate) or render_exclusively(key, revalidate, render)
    else:
        entry = find_valid(key, revalidate) or render_and_cache(key, render)
    # Each use of a Flask proxy costs 2 µs: without this, a tenth of a hot request in all.
    environ = request.environ
    url = public_url() if entry.held_bundles else ""
    etag = entry.etag_for(url)
    accepted = environ.get("HTTP_ACCEPT_ENCODING")
    with_gzip = accepted is not None and entry.length > MIN_LENGTH and prefers_gzip(accepted)
    headers = {"ETag": f'"{etag}"', **(headers or {}), **VARY}
    if "HTTP_IF_NONE_MATCH" in environ:
        known_etag = find_known_etag(request.if_none_match, etag, with_gzip)
        if known_etag is not None:
            headers["ETag"] = f'"{known_etag}"'
            return Response(status=304, headers=headers, mimetype="application/json")
    body = entry.gzip_bodies.get(url) if with_gzip else None
    if with_gzip and body is None:
        cache: ResponseCache = current_app.extensions["response_cache"]
        body = cache.compress_body(key, entry, url)
    if body is None:
        length = entry.length_for(url)
    else:
        length = len(body)
        headers |= {"ETag": f'"{gzip_etag(etag)}"', **GZIP}
    headers |= {"Content-Length": str(length), **NOSNIFF}
    response = PreparedResponse(headers=headers, mimetype="application/json")
    if environ["REQUEST_METHOD"] != "HEAD":
        response.response = entry.body_for(url) if body is None else (body,)
    return response


def respond_without_etag(key: Hashable, revalidate: Revalidate, render: Render) -> Response:
    """Return the cached response for the key, or render it; without ETag and 304."""
    entry = find_valid(key, revalidate) or render_and_cache(key, render)
    return Response(b"".join(entry.pieces), mimetype="application/json")


class PreparedResponse(Response):
    """A response with complete headers, which Werkzeug need not process again."""

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        return self.headers


def find_valid(key: Hashable, revalidate: Revalidate) -> CachedResponse | None:
    """Return the cached response for the key if it is valid; see the header of this module."""
    extensions = current_app.extensions
    cache: ResponseCache = extensions["response_cache"]
    database: Database = extensions["database"]
    entry = cache.get(key)
    connection = database.reader()
    if entry is None:
        return None
    # Read it before revalidate(): a commit between the two must not go unnoticed.
    data_version = connection.data_version()
    if entry.data_version == data_version:
        cache.count(is_hit=True)
        return entry
    if entry.generation != connection.generation:
        return None
    revision = revalidate(connection, entry.revision)
    if revision is None:
        cache.remove_large(key)
        return None
    entry = replace(entry, revision=revision, data_version=data_version)
    cache.put(key, entry)
    cache.count(is_hit=True)
    return entry


def render_and_cache(key: Hashable, render: Render) -> CachedResponse:
    """Render the response and cache it."""
    cache: ResponseCache = current_app.extensions["response_cache"]
    database: Database = current_app.extensions["database"]
    connection = database.reader()
    if database.deadline.only_cached:
        raise WouldBlock
    # Read it before render(), for the same reason as in find_valid().
    data_version = connection.data_version()
    revision, pieces = render(connection)
    digest = sha1(usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    held_bundles = sum(piece.count(HELD_BUNDLE_URL) for piece in pieces)
    length = sum(map(len, pieces))
    entry = CachedResponse(
        generation=connection.generation,
        revision=revision,
        data_version=data_version,
        pieces=pieces,
        digest=digest.hexdigest(),
        length=length,
        held_bundles=held_bundles,
        size=length * (2 if held_bundles else 1) + 4 * len(repr(key)) + ENTRY_OVERHEAD,
    )
    cache.put(key, entry)
    cache.count(is_hit=False)
    return entry


def render_exclusively(key: Hashable, revalidate: Revalidate, render: Render) -> CachedResponse:
    """Render and cache a response that can be large; one thread at a time renders these.

    The I/O thread does not wait for the lock; its short deadline keeps what it renders small.
    """
    cache: ResponseCache = current_app.extensions["response_cache"]
    deadline = current_app.extensions["database"].deadline
    if deadline.on_io_thread:
        return render_and_cache(key, render)
    with deadline.holding(cache.render_lock):
        deadline.extend(RENDER_DEADLINE)
        return find_valid(key, revalidate) or render_and_cache(key, render)
