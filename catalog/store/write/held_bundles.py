"""Writes about held bundles, whose files are in store/bundles.py, and the URLs of these bundles."""

import json
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote

from ... import V1_PREFIX
from ...documents import Document
from ..connection.transaction import Transaction

HOLD_BUNDLE = """
UPDATE version SET bundle_path = :path
WHERE widget_id = (SELECT id FROM widget WHERE scope = :scope AND name = :name)
  AND version = :version
  AND (sha256_hash, bundle_size) = (:sha256, :size) AND bundle_path IS NOT :path
"""


class HeldBundle(NamedTuple):
    """A version whose bundle this service serves itself, and the hash and size of the bundle."""

    scope: str
    name: str
    version: str
    sha256: str
    size: int


def held_bundles(document: Document) -> list[HeldBundle]:
    """Return the versions of a document as they are when this service holds their bundles."""
    widget = document.widget
    return [
        HeldBundle(
            widget["scope"],
            widget["name"],
            row["version"],
            row["sha256_hash"],
            row["bundle_size"],
        )
        for row in document.versions
    ]


def hold_bundles(transaction: Transaction, versions: Iterable[HeldBundle]) -> None:
    """Make clients load these versions from here, if hash and size are still the same."""
    rows = [{**each._asdict(), "path": bundle_path(each)} for each in versions]
    if rows:
        transaction.execute_many(HOLD_BUNDLE, rows)


def bundle_path(bundle: HeldBundle) -> str:
    """Return the path of the bundle in a URL, where api/v1.py serves it."""
    segments = (quote(part, safe="") for part in (bundle.scope, bundle.name, bundle.version))
    return f"{V1_PREFIX}{'/'.join(segments)}/bundle.js"


VERSIONS_OF_BUNDLES = """
SELECT version.id, scope, name, version, bundle_path
FROM version JOIN widget ON widget.id = widget_id
WHERE bundle_path IS NOT NULL AND sha256_hash IN (SELECT value FROM json_each(:hashes))
ORDER BY scope, name, version
"""
RELEASE_VERSIONS = """
UPDATE version SET bundle_path = NULL WHERE id IN (SELECT value FROM json_each(:ids))
"""


def release_bundles(transaction: Transaction, hashes: Iterable[str], action: str) -> int:
    """Make clients load the versions with these bundles from their published URLs again.

    Return the number of versions.
    """
    rows = transaction.read(VERSIONS_OF_BUNDLES, {"hashes": json.dumps(list(hashes))})
    for row in rows:
        target = row["scope"], row["name"], row["version"]
        transaction.record(action, target, before={"bundlePath": row["bundle_path"]})
    if rows:
        ids = json.dumps([row["id"] for row in rows])
        transaction.execute(RELEASE_VERSIONS, {"ids": ids})
    return len(rows)
