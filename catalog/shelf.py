"""What was read of the catalog and may be needed again, for as long as the catalog stays."""

from collections.abc import Hashable
from threading import Lock
from typing import Any

MAX_BYTES = 20 * 1024 * 1024
MAX_KINDS = 64  # callers choose some of them: by what name they call us


class Shelf:
    """Things of one revision of the catalog, as many as there is room for."""

    def __init__(self) -> None:
        self._revision: object = None
        self._things: dict[Hashable, dict[Any, Any]] = {}
        self._bytes = 0
        self._lock = Lock()

    def things(self, revision: object, kind: Hashable) -> dict[Any, Any]:
        """What there is of a kind, to be added to.

        It begins with nothing at another revision than before, or where there are too many kinds.
        """
        with self._lock:
            is_full = kind not in self._things and len(self._things) >= MAX_KINDS
            if is_full or revision != self._revision:
                self._revision, self._things, self._bytes = revision, {}, 0
            return self._things.setdefault(kind, {})

    def count(self, size: int) -> None:
        """Count what was added, in bytes; where it is too much, the older half of each kind goes.

        Another thread may be about to take some of that: what it saw, it must not look up again.
        """
        with self._lock:
            self._bytes += size
            if self._bytes > MAX_BYTES:
                for things in self._things.values():
                    for key in list(things)[: -(-len(things) // 2)]:
                        del things[key]
                self._bytes //= 2
