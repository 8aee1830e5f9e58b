"""Cache of rendered responses, each valid for as long as its revision of the catalog is current."""

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
# Upper bound of what Python allocates for the objects of one entry.
OVERHEAD = 1024
# For a response as large as the catalog: only one is rendered at a time.
RENDER_DEADLINE = 30  # seconds
# In the response from the start, where application.py would have to look for it among the headers.
NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
# Copying and searching more takes the I/O thread over a millisecond.
MAX_COPY = 1024 * 1024  # bytes

# A body in one piece, or in several where it is too large to be copied into one.
Pieces = tuple[bytes, ...]
# The revision of the catalog that a response shows, and its JSON with the end of its line.
RenderResult = tuple[Any, Pieces]
# Given the revision of a cached response, the one that it is valid at now; None if it is stale.
Revalidate = Callable[[Connection, Any], Any]
Render = Callable[[Connection], RenderResult]


@dataclass
class CachedResponse:
    """A response and the revision it belongs to.

    The URLs of held bundles are paths in its text: what depends on the client's Host is put in for
    each client, and only the last result is kept.
    """

    # Which of the files that have been at the path of the database.
    generation: int
    revision: Any
    # Of a connection, when it last saw the revision to be current.
    data_version: DataVersion
    pieces: Pieces
    digest: str
    length: int
    held_bundles: int
    # In memory, with the key: clients choose that, and it may be longer than the body.
    size: int
    # What was sent last, and for which base URL.
    sent: tuple[str, Pieces] | None = None

    def etag_for(self, url: str) -> str:
        """The strong ETag of the body for clients at the base URL."""
        if not self.held_bundles:
            return self.digest
        return sha1(f"{self.digest} {url}".encode(), usedforsecurity=False).hexdigest()

    def length_for(self, url: str) -> int:
        """The length of the body for clients at the base URL."""
        if not self.held_bundles:
            return self.length
        return self.length + self.held_bundles * len(json_escaped(url))

    def body_for(self, url: str) -> Pieces:
        """The body for clients at the base URL; a large one is not made on the I/O thread."""
        if not self.held_bundles:
            return self.pieces
        # Other threads may set it: read it once.
        sent = self.sent
        if sent is None or sent[0] != url:
            deadline: Deadline = current_app.extensions["database"].deadline
            if self.length > MAX_COPY and deadline.on_io_thread:
                raise WouldBlock
            sent = self.sent = url, tuple(with_bundle_urls(piece, url) for piece in self.pieces)
        return sent[1]


class ResponseCache:
    """The responses used last, as many as fit, and besides them one that is larger than that."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, CachedResponse] = OrderedDict()
        self._bytes = 0
        self._large: tuple[Hashable, CachedResponse] | None = None
        self._lock = Lock()
        # Held while a large response is rendered: one at a time, and its clients share the bytes.
        self.render_lock = Lock()

    def get(self, key: Hashable) -> CachedResponse | None:
        """The cached response; the caller checks whether it is still valid."""
        with self._lock:
            if self._large and self._large[0] == key:
                return self._large[1]
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def forget_large(self, key: Hashable) -> None:
        """Free the large response for the key, which is stale."""
        with self._lock:
            if self._large and self._large[0] == key:
                self._large = None

    def put(self, key: Hashable, entry: CachedResponse) -> None:
        """Cache the response, and evict those longest unused where there is no room."""
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
    # The proxies of Flask cost 2 µs at each use: a tenth of a hot request in all.
    environ = request.environ
    url = public_url() if entry.held_bundles else ""
    etag = entry.etag_for(url)
    headers = {"ETag": f'"{etag}"', **(headers or {})}
    if "HTTP_IF_NONE_MATCH" in environ and request.if_none_match.contains_weak(etag):
        return Response(status=304, headers=headers, mimetype="application/json")
    headers |= {"Content-Length": str(entry.length_for(url)), **NO_SNIFFING}
    response = PreparedResponse(headers=headers, mimetype="application/json")
    if environ["REQUEST_METHOD"] != "HEAD":
        response.response = entry.body_for(url)
    return response


def respond_without_etag(key: Hashable, revalidate: Revalidate, render: Render) -> Response:
    """The response for the key without an ETag, rendered if revalidate() finds none valid."""
    entry = find_valid(key, revalidate) or render_and_cache(key, render)
    return Response(b"".join(entry.pieces), mimetype="application/json")


class PreparedResponse(Response):
    """A response that is sent with the headers it has: for this one, there are no others."""

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        return self.headers


def find_valid(key: Hashable, revalidate: Revalidate) -> CachedResponse | None:
    """The cached response, if revalidate() finds it valid.

    revalidate() is called only if something was committed since this connection last found the
    response valid: its statement costs more than reading the data version.
    """
    extensions = current_app.extensions
    cache: ResponseCache = extensions["response_cache"]
    database: Database = extensions["database"]
    entry = cache.get(key)
    connection = database.reader()
    if entry is None:
        return None
    # Before revalidate(): it must not be newer than the revision.
    data_version = connection.data_version()
    if entry.data_version == data_version:
        return entry
    if entry.generation != connection.generation:
        return None
    revision = revalidate(connection, entry.revision)
    if revision is None:
        cache.forget_large(key)
        return None
    entry = replace(entry, revision=revision, data_version=data_version)
    cache.put(key, entry)
    return entry


def render_and_cache(key: Hashable, render: Render) -> CachedResponse:
    """The response as it is now, which is cached."""
    cache: ResponseCache = current_app.extensions["response_cache"]
    database: Database = current_app.extensions["database"]
    connection = database.reader()
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
        size=length * (2 if held_bundles else 1) + 4 * len(repr(key)) + OVERHEAD,
    )
    cache.put(key, entry)
    return entry


def render_exclusively(key: Hashable, revalidate: Revalidate, render: Render) -> CachedResponse:
    """The response as render_and_cache() gives it, without another thread rendering the same bytes.

    The I/O thread must not wait, and its deadline keeps what it renders small.
    """
    cache: ResponseCache = current_app.extensions["response_cache"]
    deadline = current_app.extensions["database"].deadline
    if deadline.on_io_thread:
        return render_and_cache(key, render)
    with deadline.holding(cache.render_lock):
        deadline.extend(RENDER_DEADLINE)
        return find_valid(key, revalidate) or render_and_cache(key, render)
