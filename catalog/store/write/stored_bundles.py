"""Records which versions' bundles are stored, and the URLs of these bundles."""

import json
from collections.abc import Iterable
from urllib.parse import quote

from ... import V1_PREFIX
from ..connection.transaction import Transaction
from ..read.mirrors import CopiedVersion

REGISTER_BUNDLE = """
UPDATE version SET bundle_path = :bundle_path
WHERE widget_id = (SELECT id FROM widget WHERE scope = :scope AND name = :name)
  AND version = :version AND (sha256_hash, bundle_size) = (:sha256, :size)
"""


def register_bundles(transaction: Transaction, copies: Iterable[CopiedVersion]) -> None:
    """Make clients load these versions from this service, unless their bytes have changed."""
    rows = [{**copy._asdict(), "bundle_path": bundle_path(*copy[:4])} for copy in copies]
    transaction.execute_many(REGISTER_BUNDLE, rows)


def bundle_path(scope: str, name: str, version: str, sha256: str | None = None) -> str:
    """Return the path where the API serves a version's bundle.

    An upstream can replace a copy's bytes, so the path of a copy's bundle contains the hash.
    """
    segments = (quote(part, safe="") for part in (scope, name, version))
    query = "" if sha256 is None else f"?sha256={sha256}"
    return f"{V1_PREFIX}{'/'.join(segments)}/bundle.js{query}"


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
