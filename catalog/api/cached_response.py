"""A rendered JSON response in the response cache: its body, its compressed bodies, its ETag."""

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any

from flask import current_app

from catalog.store.connection.deadlines import Deadline
from catalog.store.connection.sqlite import DataVersion, WouldBlock
from catalog.store.read.json_sql import HELD_BUNDLE_URL, json_escaped, with_bundle_urls

# Inserting URLs into a larger body would block the I/O thread for over a millisecond.
MAX_COPY_ON_IO_THREAD = 1024 * 1024  # bytes

# A body: one piece, or several if copying it into one would take too much memory.
Pieces = tuple[bytes, ...]


@dataclass
class CachedResponse:
    """A rendered response and the revision of the catalog that it shows."""

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
    # Without the compressed bodies.
    size: int
    # The body with absolute URLs that was sent last, and their base URL.
    last_body: tuple[str, Pieces] | None = None
    # By base URL. All copies of the entry share it, and only ResponseCache.add_gzip() changes it.
    gzip_bodies: dict[str, bytes] = field(default_factory=dict)

    @property
    def total_size(self) -> int:
        """Bytes in memory, with the compressed bodies."""
        return self.size + sum(map(len, self.gzip_bodies.values()))

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
