"""Which versions have a stored bundle, and the URLs of these bundles."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from ... import V1_PREFIX
from ...domain.documents import Document
from ..connection.transaction import Transaction

# An upstream can replace the bundle of a copy, so the URL of the stored bundle contains its hash.
_PATH = """
:path || iif(EXISTS (SELECT 1 FROM mirrored WHERE mirrored.widget_id = version.widget_id),
    '?sha256=' || sha256_hash, '')
"""
REGISTER_BUNDLE = f"""
UPDATE version SET bundle_path = {_PATH}
WHERE widget_id = (SELECT id FROM widget WHERE scope = :scope AND name = :name)
  AND version = :version
  AND (sha256_hash, bundle_size) = (:sha256, :size) AND bundle_path IS NOT ({_PATH})
"""


class StoredBundle(NamedTuple):
    """A version whose bundle this service serves itself, and the hash and size of the bundle."""

    scope: str
    name: str
    version: str
    sha256: str
    size: int


def stored_bundles(document: Document) -> list[StoredBundle]:
    """Return the versions of a document with the hash and size of their bundles."""
    widget = document.widget
    return [
        StoredBundle(
            widget["scope"],
            widget["name"],
            row["version"],
            row["sha256_hash"],
            row["bundle_size"],
        )
        for row in document.versions
    ]


def register_bundles(transaction: Transaction, versions: Iterable[StoredBundle]) -> None:
    """Make clients load these versions from this service, unless their hash or size has changed."""
    rows = [{**each._asdict(), "path": bundle_path(each)} for each in versions]
    if rows:
        transaction.execute_many(REGISTER_BUNDLE, rows)


REGISTERED = """
SELECT scope, name, version, sha256_hash, bundle_size FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN version ON widget_id = widget.id AND version = given.value ->> 2
WHERE bundle_path IS NOT NULL
"""


def find_unregistered(
    transaction: Transaction, versions: Sequence[StoredBundle]
) -> list[StoredBundle]:
    """Return the versions that this service does not serve yet, or serves with other bytes."""
    rows = transaction.read(REGISTERED, {"names": json.dumps(versions)})
    registered = {StoredBundle(*row) for row in rows}
    return [each for each in versions if each not in registered]


def bundle_path(bundle: StoredBundle) -> str:
    """Return the path at which the API serves the bundle; for copies, _PATH adds the hash."""
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

    Return how many versions were changed.
    """
    rows = transaction.read(VERSIONS_OF_BUNDLES, {"hashes": json.dumps(list(hashes))})
    for row in rows:
        target = row["scope"], row["name"], row["version"]
        transaction.record(action, target, before={"bundlePath": row["bundle_path"]})
    if rows:
        ids = json.dumps([row["id"] for row in rows])
        transaction.execute(RELEASE_VERSIONS, {"ids": ids})
    return len(rows)
