"""A cache of issuers' public keys, which verify their id tokens."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ..domain.documents import Json
from ..domain.trusts import IssuerError

# Anyone can send unknown key ids, which must not make the service flood the issuer with requests.
MIN_INTERVAL = 60  # seconds between two fetches from an issuer


class CachedKeys(NamedTuple):
    """An issuer's keys, and the time when they expire."""

    keys: list[Json]
    expires: float

    def has(self, key_id: object) -> bool:
        return any(key.get("kid") == key_id for key in self.keys)


NO_KEYS = CachedKeys([], 0)


class IssuerKeys:
    """The keys of all issuers. Thread-safe; other callers wait during a fetch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The keys are cached by the issuer's URL and its trusted certificates.
        self._cached: dict[tuple[str, str | None], CachedKeys] = {}
        self._next_fetch: dict[tuple[str, str | None], float] = {}

    def find(self, issuer: str, ca: str | None, key_id: object) -> list[Json]:
        """Return the keys of an issuer; raise IssuerError if no valid keys are available.

        The keys are fetched again if they have expired, or if none of them has this id.
        """
        # This import is local because few services have a trust.
        from .issuer_requests import fetch_keys

        source = (issuer, ca)
        with self._lock:
            now = self._clock()
            cached = self._cached.get(source, NO_KEYS)
            is_valid = now < cached.expires
            if is_valid and cached.has(key_id):
                return cached.keys
            if now < self._next_fetch.get(source, now):
                if is_valid:
                    return cached.keys
                raise IssuerError(
                    f"The keys of the issuer {issuer} could not be fetched; try again in a minute."
                )
            self._next_fetch[source] = now + MIN_INTERVAL
            try:
                keys, age = fetch_keys(issuer, ca)
            except IssuerError:
                if is_valid:
                    return cached.keys
                raise
            self._cached[source] = CachedKeys(keys, now + age)
            return keys
