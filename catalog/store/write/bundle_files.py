"""The bundles and pictures for an import, which are already stored or come from packs."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...domain.documents import Document
from ..bundles.bundles import BundleError, Bundles
from ..bundles.compressed import compress_bundle
from ..connection.database import Database
from ..read.stored_bundles import stored_hashes


class BundleFiles:
    """The files that are in the bundle directory when an import starts, and the files in packs."""

    def __init__(self, database: Database, bundles: Bundles, packed: Sequence[Bundles]) -> None:
        self._bundles, self._packed = bundles, packed
        # Maps the hash of each known file to whether its content is correct. Files from packs and
        # stored bundles have already been verified.
        self._is_valid = {sha256: True for each in packed for sha256 in each.hashes()}
        self._hashes = {*self._is_valid, *bundles.hashes()}
        if self._hashes:
            with database.read() as connection:
                self._is_valid |= dict.fromkeys(stored_hashes(connection), True)
        # The number of files from packs that were stored.
        self.stored = 0

    @contextmanager
    def storing(self, documents: Sequence[Document], *, dry_run: bool) -> Iterator[int]:
        """Store the files from packs that the documents name, and yield how many are new.

        Files that the documents name are not removed while the with block runs.
        """
        bundles = {row["sha256_hash"] for document in documents for row in document.versions}
        pictures = {_picture_hash(document) for document in documents}
        named = self._hashes & (bundles | pictures)
        for sha256 in named & bundles:
            self._verify(sha256)
        # Usually, there are no files to store, so no lock is needed.
        if dry_run or not named:
            yield 0
            return
        # Compress without holding the lock, so that publishers need not wait.
        found = [(each, sha256) for each in self._packed for sha256 in named if each.has(sha256)]
        for packed, sha256 in found:
            if sha256 in bundles:
                compress_bundle(packed, sha256)
        with self._bundles.writing():
            new = [(packed, sha256) for packed, sha256 in found if not self._bundles.has(sha256)]
            for packed, sha256 in new:
                self._bundles.accept(packed, sha256)
            if new:
                self._bundles.sync()
            yield len(new)
        self.stored += len(new)

    def has(self, sha256: str, size: int) -> bool:
        """Return whether a bundle that a document names exists, with the right content and size."""
        return self._is_valid.get(sha256, False) and any(
            directory.has(sha256, size) for directory in (self._bundles, *self._packed)
        )

    def _verify(self, sha256: str) -> None:
        """Find out whether the file's content matches its hash; read each file only once."""
        if sha256 not in self._is_valid:
            try:
                with self._bundles.open_verified(sha256):
                    self._is_valid[sha256] = True
            except (BundleError, OSError):
                self._is_valid[sha256] = False


def _picture_hash(document: Document) -> str | None:
    """Return the hash of the picture that the document describes, if any."""
    text = document.about and document.about["picture"]
    return json.loads(text)["sha256Hash"] if text else None
