"""The statements of writes about mirrored widgets and held bundles."""

import json
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote

from catalog import V1_PREFIX
from catalog.documents import Document
from catalog.semver_ranges import MAX_SAFE_INTEGER
from catalog.store.sqlite import Statement
from catalog.store.writes import put_document, remove_other_versions

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


def hold_bundles(versions: Iterable[HeldBundle]) -> list[Statement]:
    """Make clients load these versions from here, if hash and size are still the same."""
    return [(HOLD_BUNDLE, {**each._asdict(), "path": bundle_path(each)}) for each in versions]


def bundle_path(bundle: HeldBundle) -> str:
    """Return the path of the bundle in a URL, where api/v1.py serves it."""
    segments = (quote(part, safe="") for part in (bundle.scope, bundle.name, bundle.version))
    return f"{V1_PREFIX}{'/'.join(segments)}/bundle.js"


RELEASE_BUNDLE = """
UPDATE version SET bundle_path = NULL WHERE sha256_hash = :sha256 AND bundle_path IS NOT NULL
"""


def release_bundles(hashes: Iterable[str]) -> list[Statement]:
    """Make clients load the versions with these bundles from their published URLs again."""
    return [(RELEASE_BUNDLE, {"sha256": sha256}) for sha256 in hashes]


PUT_MIRRORED = """
INSERT INTO mirrored (widget_id, source, etag, upstream_count)
SELECT id, :source, :etag, :upstream_count FROM widget WHERE scope = :scope AND name = :name
ON CONFLICT (widget_id) DO UPDATE
SET source = :source, etag = :etag, upstream_count = :upstream_count
WHERE (source, etag, upstream_count) IS NOT (:source, :etag, :upstream_count)
"""


class MirroredWidget(NamedTuple):
    """A copied widget, with the upstream's ETag and download count of the last refresh."""

    scope: str
    name: str
    source: str
    etag: str | None
    upstream_count: int | None


def put_mirrored(widgets: Iterable[MirroredWidget]) -> list[Statement]:
    """Record the upstream, ETag and count of these widgets."""
    return [(PUT_MIRRORED, widget._asdict()) for widget in widgets]


# The new count is the upstream's plus the installs that were counted here since the widget was
# copied. It becomes null if the upstream has no count and no install was counted here.
UPDATE_MIRRORED_COUNT = f"""
UPDATE widget SET download_count = iif(
    :download_count IS NULL AND coalesce(download_count, 0) <= coalesce(upstream_count, 0),
    NULL,
    min(coalesce(:download_count, 0)
        + max(coalesce(download_count, 0) - coalesce(upstream_count, 0), 0), {MAX_SAFE_INTEGER})
)
FROM mirrored
WHERE widget_id = widget.id AND scope = :scope AND name = :name
  AND upstream_count IS NOT :download_count
"""


def put_upstream_counts(widgets: Iterable[MirroredWidget]) -> list[Statement]:
    """Update the download counts of copies that are current otherwise."""
    statements: list[Statement] = []
    for widget in widgets:
        values = {**widget._asdict(), "download_count": widget.upstream_count}
        statements += [(UPDATE_MIRRORED_COUNT, values), (PUT_MIRRORED, values)]
    return statements


def put_upstream_document(document: Document, *, replaces: bool) -> list[Statement]:
    """Make a widget equal to its upstream's document: listed, and with exactly its versions.

    Installs that were counted here are added to the upstream's count, unless the document replaces
    a widget that was no copy: the count of that one may include installs anywhere.
    """
    widget = {**document.widget, "listed": True, "has_download_count": replaces}
    return [
        *put_document(document._replace(widget=widget)),
        remove_other_versions(document),
        (UPDATE_MIRRORED_COUNT, widget),
    ]


PUT_POSITION = """
INSERT INTO mirror_position VALUES (:source, :scopes, :token)
ON CONFLICT (source, scopes) DO UPDATE SET token = :token
"""


def put_position(source: str, scopes: Iterable[str], token: str) -> list[Statement]:
    """Record how far the changes of an upstream were read for these scopes."""
    return [(PUT_POSITION, {"source": source, "scopes": scopes_key(scopes), "token": token})]


def scopes_key(scopes: Iterable[str]) -> str:
    """Return the scopes as mirror_position has them."""
    return json.dumps(sorted(scopes), ensure_ascii=False)
