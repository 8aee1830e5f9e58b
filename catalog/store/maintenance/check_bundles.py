"""Checks all bundles and pictures, and finds missing bundles."""

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import suppress

from ...domain.documents import Json
from ...domain.messages import quoted
from ...domain.pictures import check_picture
from ..bundles.bundles import GZIP_SUFFIX, BundleError, Bundles
from ..bundles.compressed import verify_compressed
from ..connection.database import Database
from ..connection.sqlite import is_busy, is_disk_full
from ..read.selection import IS_SELECTED
from ..read.stored_bundles import NAMED_PICTURES
from ..write.stored_bundles import bundle_path

STORED_BUNDLES = """
SELECT scope, name, version, sha256_hash, bundle_size, bundle_path FROM version
JOIN widget ON widget.id = widget_id
WHERE bundle_path IS NOT NULL
ORDER BY scope, name, version
"""


def check_bundles(database: Database, bundles: Bundles) -> Iterator[str]:
    """Return a sentence for each bundle that is missing or whose hash, size or path is wrong."""
    wrong = dict(_wrong_bundles(bundles))
    for sha256, problem in wrong.items():
        yield f"Bundle {sha256} in {bundles.name}: {problem}."
    for sha256 in bundles.hashes():
        try:
            verify_compressed(bundles, sha256)
        except BundleError as error:
            yield (
                f"Compressed bundle {sha256}{GZIP_SUFFIX} in {bundles.name}: {error}. Delete the "
                "file; the next request recreates it."
            )
    for scope, name, number, sha256, size, path in read_rows(database, STORED_BUNDLES):
        version = f"{scope}/{name}: version {number}"
        if path.removesuffix(f"?sha256={sha256}") != bundle_path(scope, name, number):
            yield (
                f"{version}: bundle_path is {quoted(path)}, but the bundle is not served at that "
                "path."
            )
        if sha256 in wrong:
            yield f"{version}: its bundle {sha256} has the wrong content."
        elif not bundles.has(sha256, size):
            yield f"{version}: its bundle {sha256} of {size} bytes is not in {bundles.name}."
    for widget, picture in read_pictures(database):
        sha256 = picture["sha256Hash"]
        if sha256 not in wrong and bundles.has(sha256) and not bundles.has_picture(picture):
            yield f"{widget}: its picture is not shown, since the file {sha256} does not match it."


EXTERNAL_BUNDLES = """
SELECT scope, name, version, sha256_hash, bundle_url FROM version
JOIN widget ON widget.id = widget_id
WHERE bundle_path IS NULL
ORDER BY scope, name, precedence
"""


def check_bundle_urls(database: Database, base_url: str) -> Iterator[str]:
    """Return a sentence for each bundleUrl that points to a bundle this catalog does not store."""
    for scope, name, version, sha256, url in read_rows(database, EXTERNAL_BUNDLES):
        if url == f"{base_url}{bundle_path(scope, name, version)}":
            yield (
                f"{scope}/{name}: version {version}: its bundleUrl points to this catalog, which "
                f"does not store its bundle {sha256}."
            )


def find_missing_bundles(database: Database, bundles: Bundles) -> list[str]:
    """Return the versions whose bundle is missing or has the wrong size; read no bundle content."""
    return [
        f"{scope}/{name}@{version}"
        for scope, name, version, sha256, size, _ in read_rows(database, STORED_BUNDLES)
        if not bundles.has(sha256, size)
    ]


ELSEWHERE = f"""
SELECT scope || '/' || name || '@' || version, sha256_hash
FROM version JOIN widget ON widget.id = widget_id
WHERE listed AND bundle_path IS NULL AND {IS_SELECTED}
ORDER BY scope, name, precedence
"""


def find_external_bundles(
    database: Database, paths: str | None = None, packed: Collection[str] = ()
) -> list[str]:
    """Return the versions of listed widgets whose bundleUrl points to another server.

    For a pack, return only versions of selected widgets whose bundles are not in the pack.
    """
    rows = database.fetch(ELSEWHERE, {"paths": paths})
    return [version for version, sha256 in rows if sha256 not in packed]


def _wrong_bundles(bundles: Bundles) -> Iterator[tuple[str, str]]:
    for sha256 in bundles.hashes():
        try:
            with bundles.open_verified(sha256):
                pass
        except BundleError as error:
            yield sha256, str(error)


def read_pictures(database: Database) -> Iterator[tuple[str, Json]]:
    """Return each widget's picture description if it is valid; check_catalog() reports the rest."""
    for path, text in read_rows(database, NAMED_PICTURES):
        with suppress(ValueError):
            yield path, json.loads(check_picture(json.loads(text)))


def read_rows(database: Database, sql: str) -> list[sqlite3.Row]:
    """Return a statement's rows; none if the file is damaged, which check_catalog() reports."""
    try:
        return database.fetch(sql, {"paths": None})
    except sqlite3.DatabaseError as error:
        if is_busy(error) or is_disk_full(error):
            raise
        return []
