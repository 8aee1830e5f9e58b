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

Eviction: the least recently used responses, once all together exceed MAX_BYTES. One response that
is larger than that, such as the registry of a large scope, is cached besides them. Such responses
are rendered one at a time, and all clients that request the same one share its bytes.

The rows hot search, detail, registry and 304 of the benchmark need this. PreparedResponse, the CORS
header that v1.py sets itself, and the response head and single send of serving/ together save about
30 % of a hot request.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha1
from threading import Lock
from typing import TYPE_CHECKING, Any

from flask import Response, current_app, request
from werkzeug.datastructures import Headers

from catalog.routing import public_url
from catalog.store.database import Database
from catalog.store.deadlines import Deadline
from catalog.store.json_sql import HELD_BUNDLE_URL, json_escaped, with_bundle_urls
from catalog.store.sqlite import Connection, DataVersion, WouldBlock

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MAX_BYTES = 16 * 1024 * 1024
# Upper bound of the memory for the Python objects of one entry.
ENTRY_OVERHEAD = 1024  # bytes
# Rendering a response as large as the catalog may take this long.
RENDER_DEADLINE = 30  # seconds
# Inserting URLs into a larger body would block the I/O thread for over a millisecond.
MAX_COPY_ON_IO_THREAD = 1024 * 1024  # bytes
NOSNIFF = {"X-Content-Type-Options": "nosniff"}

# A body: one piece, or several if copying it into one would take too much memory.
Pieces = tuple[bytes, ...]
# The revision of the catalog that a response shows, and its JSON with a final newline.
RenderResult = tuple[Any, Pieces]
Render = Callable[[Connection], RenderResult]
# Takes the revision of a cached response; returns the one at which it is valid now, None if stale.
Revalidate = Callable[[Connection, Any], Any]


@dataclass
class CachedResponse:
    """A rendered response and the revision of the catalog that it shows."""

    # Numbers the files that were opened at the path of the database: a restored or replaced file
    # can have the same revisions.
    generation: int
    revision: Any
    # Of the connection that last found the response valid.
    data_version: DataVersion
    # The body, with paths as the URLs of held bundles.
    pieces: Pieces
    digest: str
    length: int
    # The number of URLs of held bundles in the body.
    held_bundles: int
    # Bytes in memory, key included: a client chooses the key, which may be longer than the body.
    size: int
    # The body with absolute URLs that was sent last, and their base URL.
    last_body: tuple[str, Pieces] | None = None

    def etag_for(self, url: str) -> str:
        """Return the strong ETag of the body with this base URL."""
        return self.digest if not self.held_bundles else _etag_with_url(self.digest, url)

    def length_for(self, url: str) -> int:
        """Return the length of the body with this base URL."""
        if not self.held_bundles:
            return self.length
        return self.length + self.held_bundles * len(json_escaped(url))

    def body_for(self, url: str) -> Pieces:
        """Return the body with this base URL; raise WouldBlock if it is large on the I/O thread."""
        if not self.held_bundles:
            return self.pieces
        # Other threads may replace it: read it once.
        last_body = self.last_body
        if last_body is None or last_body[0] != url:
            deadline: Deadline = current_app.extensions["database"].deadline
            if self.length > MAX_COPY_ON_IO_THREAD and deadline.on_io_thread:
                raise WouldBlock
            last_body = url, tuple(with_bundle_urls(piece, url) for piece in self.pieces)
            self.last_body = last_body
        return last_body[1]


def etag_of(body: bytes, url: str) -> str:
    """Return what CachedResponse.etag_for() would return for a response with this body."""
    digest = sha1(body, usedforsecurity=False).hexdigest()
    return _etag_with_url(digest, url) if HELD_BUNDLE_URL in body else digest


def _etag_with_url(digest: str, url: str) -> str:
    return sha1(f"{digest} {url}".encode(), usedforsecurity=False).hexdigest()


class ResponseCache:
    """An LRU cache of responses, and one response that exceeds its limit."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, CachedResponse] = OrderedDict()
        self._bytes = 0
        # Valid responses that were found, and responses that had to be rendered.
        self.hits = self.misses = 0
        self._large: tuple[Hashable, CachedResponse] | None = None
        self._lock = Lock()
        # Held while a large response is rendered.
        self.render_lock = Lock()

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
            return self._bytes + (self._large[1].size if self._large else 0)

    def remove_large(self, key: Hashable) -> None:
        """Free the memory of the large response, if it is the one for the key."""
        with self._lock:
            if self._large and self._large[0] == key:
                self._large = None

    def put(self, key: Hashable, entry: CachedResponse) -> None:
        """Cache the response, and evict the least recently used ones beyond MAX_BYTES."""
        with self._lock:
            if entry.size > MAX_BYTES:
                self._large = key, entry
                return
            if self._large and self._large[0] == key:
                self._large = None
            replaced = self._entries.pop(key, None)
            self._bytes += entry.size - (replaced.size if replaced else 0)
            self._entries[key] = entry
            while self._bytes > MAX_BYTES:
                _, evicted = self._entries.popitem(last=False)
                self._bytes -= evicted.size


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
    headers = {"ETag": f'"{etag}"', **(headers or {})}
    if "HTTP_IF_NONE_MATCH" in environ and request.if_none_match.contains_weak(etag):
        return Response(status=304, headers=headers, mimetype="application/json")
    headers |= {"Content-Length": str(entry.length_for(url)), **NOSNIFF}
    response = PreparedResponse(headers=headers, mimetype="application/json")
    if environ["REQUEST_METHOD"] != "HEAD":
        response.response = entry.body_for(url)
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
