"""Every write of what came from elsewhere, copies of widgets and their bundles, as statements."""

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
    """A version, and the bundle that this service holds for it."""

    scope: str
    name: str
    version: str
    sha256: str
    size: int


def hold_bundles(versions: Iterable[HeldBundle]) -> list[Statement]:
    """Have these versions loaded from here, if their bundles still are the ones named."""
    return [(HOLD_BUNDLE, {**held._asdict(), "path": bundle_path(held)}) for held in versions]


def bundle_path(held: HeldBundle) -> str:
    """Where v1.bundle() serves the bundle, as it stands in a URL."""
    segments = (quote(part, safe="") for part in held[:3])
    return f"{V1_PREFIX}{'/'.join(segments)}/bundle.js"


RELEASE_BUNDLE = """
UPDATE version SET bundle_path = NULL WHERE sha256_hash = :sha256 AND bundle_path IS NOT NULL
"""


def release_bundles(hashes: Iterable[str]) -> list[Statement]:
    """Have the versions with these bundles loaded from where they were published."""
    return [(RELEASE_BUNDLE, {"sha256": sha256}) for sha256 in hashes]


PUT_MIRRORED = """
INSERT INTO mirrored (widget_id, source, etag, upstream_count)
SELECT id, :source, :etag, :upstream_count FROM widget WHERE scope = :scope AND name = :name
ON CONFLICT (widget_id) DO UPDATE
SET source = :source, etag = :etag, upstream_count = :upstream_count
WHERE (source, etag, upstream_count) IS NOT (:source, :etag, :upstream_count)
"""


class MirroredWidget(NamedTuple):
    """A widget, and what its upstream said of it when it was copied."""

    scope: str
    name: str
    source: str
    etag: str | None
    upstream_count: int | None


def put_mirrored(widgets: Iterable[MirroredWidget]) -> list[Statement]:
    """Remember where these widgets were copied from."""
    return [(PUT_MIRRORED, widget._asdict()) for widget in widgets]


# What was counted here, beyond what the upstream had counted when last seen, is kept; as long as
# that is nothing, an upstream that says nothing of its count is followed in that too.
FOLLOW_COUNT = f"""
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


def follow(document: Document, *, replaces: bool) -> list[Statement]:
    """Have a widget be as its upstream's document says, listed and with just these versions.

    Installs that were counted here come on top of the upstream's, unless it replaces a widget that
    was no copy: nothing says where that one's were counted.
    """
    widget = {**document.widget, "listed": True, "states_download_count": replaces}
    return [
        *put_document(document._replace(widget=widget)),
        remove_other_versions(document),
        (FOLLOW_COUNT, widget),
    ]
