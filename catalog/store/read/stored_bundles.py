"""The hashes of the bundles and pictures that the catalog refers to."""

import json
import sqlite3

from ...domain.documents import Json
from ..connection.sqlite import fetch_all, fetch_one
from .selection import IS_SELECTED

STORED_HASHES = f"""
SELECT DISTINCT sha256_hash FROM version JOIN widget ON widget.id = widget_id
WHERE bundle_path IS NOT NULL AND {IS_SELECTED} ORDER BY sha256_hash
"""


def stored_hashes(connection: sqlite3.Connection, paths: str | None = None) -> list[str]:
    """Return the hashes of selected widgets' stored bundles; for paths, see IS_SELECTED."""
    return [sha256 for (sha256,) in fetch_all(connection, STORED_HASHES, {"paths": paths})]


NAMED_PICTURES = f"""
SELECT scope || '/' || name, picture FROM about JOIN widget ON widget.id = widget_id
WHERE picture IS NOT NULL AND {IS_SELECTED} ORDER BY scope, name
"""


def named_pictures(
    connection: sqlite3.Connection, paths: str | None = None
) -> list[tuple[str, Json]]:
    """Return the scope/name of each widget with a picture, and the stored picture."""
    rows = fetch_all(connection, NAMED_PICTURES, {"paths": paths})
    return [(path, json.loads(picture)) for path, picture in rows]


# In a dry run, exclude the bundles of copies that gc would delete.
USED_HASHES = """
SELECT sha256_hash FROM (
    SELECT widget_id, sha256_hash FROM version
    UNION SELECT widget_id, picture ->> 'sha256Hash' FROM about)
JOIN widget ON widget.id = widget_id LEFT JOIN mirrored USING (widget_id)
WHERE NOT :dry_run OR listed OR gone IS NOT 1
"""


def used_hashes(connection: sqlite3.Connection, *, dry_run: bool) -> set[str]:
    """Return the hashes that gc must keep: the hashes of all versions and pictures."""
    return {sha256 for (sha256,) in fetch_all(connection, USED_HASHES, {"dry_run": dry_run})}


FIND_STORED_BUNDLE = """
SELECT sha256_hash, EXISTS (SELECT 1 FROM mirrored WHERE widget_id = widget.id) AS is_copy
FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name AND listed AND version = :version AND bundle_path IS NOT NULL
"""


def find_stored_bundle(
    connection: sqlite3.Connection, scope: str, name: str, version: str
) -> tuple[str, bool] | None:
    """Return the hash of a listed version's stored bundle, and whether the widget is a copy."""
    values = {"scope": scope, "name": name, "version": version}
    row = fetch_one(connection, FIND_STORED_BUNDLE, values)
    return (row["sha256_hash"], bool(row["is_copy"])) if row else None


# Load balancers check health every second, so this statement reads only the newest versions.
NEWEST_BUNDLES = """
SELECT sha256_hash, bundle_size FROM (SELECT * FROM version ORDER BY id DESC LIMIT 20)
WHERE bundle_path IS NOT NULL
"""


def newest_bundles(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the hash and size of each stored bundle among the 20 newest versions."""
    return [
        (row["sha256_hash"], row["bundle_size"]) for row in fetch_all(connection, NEWEST_BUNDLES)
    ]
