"""The bundles of an import that this service already stores, for example after a rollback."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from ...domain.documents import Document
from ..bundles.bundles import BundleError, Bundles
from ..connection.database import Database
from ..read.stored_bundles import stored_hashes
from .stored_bundles import StoredBundle, stored_bundles


class BundleFiles:
    """The files in the bundle directory at the time when an import begins to write."""

    def __init__(self, database: Database, bundles: Bundles) -> None:
        self._bundles = bundles
        self._hashes = set(bundles.hashes())
        # Maps the hash of each known file to whether its content is right. Stored bundles were
        # verified when they were stored.
        self._is_valid: dict[str, bool] = {}
        if self._hashes:
            with database.read() as connection:
                self._is_valid = dict.fromkeys(stored_hashes(connection), True)

    @contextmanager
    def locked(self, documents: Iterable[Document]) -> Iterator[list[StoredBundle]]:
        """Yield the versions whose bundles are stored; no process removes them during the block."""
        # Usually, no bundles are stored, and the documents can be skipped.
        versions = chain.from_iterable(map(stored_bundles, documents if self._hashes else ()))
        valid = [each for each in versions if each.sha256 in self._hashes and self._verify(each)]
        if not valid:
            yield []
            return
        with self._bundles.locked():
            yield [each for each in valid if self._bundles.has(each.sha256, each.size)]

    def _verify(self, bundle: StoredBundle) -> bool:
        """Return whether the content of the file matches its hash; read each file only once."""
        sha256 = bundle.sha256
        if sha256 not in self._is_valid:
            try:
                with self._bundles.open_verified(sha256):
                    self._is_valid[sha256] = True
            except (BundleError, OSError):
                self._is_valid[sha256] = False
        return self._is_valid[sha256]
