"""An entry in the response cache: headers, body, size, and whether it is still valid."""

from collections.abc import Callable
from typing import Any

from ..store.connection.sqlite import Connection, DataVersion
from .compression import GZIP, gzip_etag

# An upper bound on the memory that one entry's Python objects take.
ENTRY_OVERHEAD = 4096  # bytes
# Headers that are not copied to a 304 response: it has no body, and its ETag is the client's.
NOT_IN_304 = ("Content-Length", "Content-Type", "ETag")

# The key of an entry: the base URL, the path and the query string.
Key = tuple[str, str, str]
# A body is one piece, or several if joining them would take too much memory.
Pieces = list[bytes]
# Returns the current revision if a response rendered at the given one is still valid, else None.
Revalidate = Callable[[Connection, Any], Any]
Head = list[tuple[str, str]]


class Entry:
    """A complete 200 response. The view sets the body, and the middleware sets the headers."""

    key: Key
    endpoint: str | None
    head: Head
    etag: str
    # The head and body for clients that prefer gzip; None until such a client sends a request.
    gzip: tuple[Head, bytes] | None = None

    def __init__(
        self, pieces: Pieces, revalidate: Revalidate, revision: Any, data_version: DataVersion
    ) -> None:
        self.pieces, self.length = pieces, sum(map(len, pieces))
        self._revalidate = revalidate
        # The response's revision, and the data version when it was last found valid.
        self._validity = revision, data_version

    @property
    def is_cacheable(self) -> bool:
        """Whether the response has a revision, which revalidate() needs."""
        return self._validity[0] is not None

    @property
    def size(self) -> int:
        """The number of bytes that the entry takes in memory."""
        # Clients choose the key, which may be longer than the body. The entry can contain the key a
        # second time as parsed parameters, with up to four bytes per character.
        plain = self.length + 8 * sum(map(len, self.key)) + ENTRY_OVERHEAD
        return plain + (len(self.gzip[1]) if self.gzip else 0)

    def is_valid(self, connection: Connection) -> bool:
        """Return whether the response is still current; see response_cache.py."""
        # Read the data version before revalidate(), so that a commit between the two is noticed.
        data_version = connection.data_version()
        revision, valid_at = self._validity
        if valid_at == data_version:
            return True
        revision = self._revalidate(connection, revision)
        if revision is None:
            return False
        self._validity = revision, data_version
        return True

    def unchanged_head(self, etag: str) -> Head:
        """Return the head of a 304 response to a client that has the body with this ETag."""
        others = [each for each in self.head if each[0] not in NOT_IN_304]
        return [*others, ("ETag", f'"{etag}"')]

    def gzip_head(self, length: int) -> Head:
        """Return the head for a compressed body of this length."""
        others = [each for each in self.head if each[0] not in ("Content-Length", "ETag")]
        etag = [("ETag", f'"{gzip_etag(self.etag)}"')] if self.etag else []
        return [*others, *etag, *GZIP.items(), ("Content-Length", str(length))]
