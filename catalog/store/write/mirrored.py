"""The statements of writes about mirrored widgets."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from catalog.documents import Document
from catalog.semver_ranges import MAX_SAFE_INTEGER
from catalog.store.connection.sqlite import Statement
from catalog.store.write.writes import put_document, remove_other_versions

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
