"""Copies of an upstream's widgets: what is recorded of them, and how they are refreshed."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...documents import Document
from ...semver_ranges import MAX_SAFE_INTEGER
from ..connection.transaction import Transaction
from .imports import PutResult, put_documents

PUT_MIRRORED = """
INSERT INTO mirrored (widget_id, source, etag, upstream_count)
SELECT (SELECT id FROM widget WHERE scope = :scope AND name = :name),
    :source, :etag, :upstream_count WHERE true
ON CONFLICT (widget_id) DO UPDATE
SET (source, etag, upstream_count) = (excluded.source, excluded.etag, excluded.upstream_count)
"""


class MirroredWidget(NamedTuple):
    """A copied widget, with the upstream's ETag and download count of the last refresh."""

    scope: str
    name: str
    source: str
    etag: str | None
    upstream_count: int | None


def put_mirrored(transaction: Transaction, widgets: Iterable[MirroredWidget]) -> None:
    """Record the upstream, ETag and count of these widgets."""
    rows = [widget._asdict() for widget in widgets]
    if rows:
        transaction.execute_many(PUT_MIRRORED, rows)


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


def put_upstream_counts(transaction: Transaction, widgets: Sequence[MirroredWidget]) -> None:
    """Update the download counts of copies that are current otherwise."""
    rows = [{**each._asdict(), "download_count": each.upstream_count} for each in widgets]
    if rows:
        transaction.execute_many(UPDATE_MIRRORED_COUNT, rows)
        put_mirrored(transaction, widgets)


FIND_MIRRORED = """
SELECT scope, name, source, etag, upstream_count FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN mirrored ON widget_id = widget.id
"""


def put_upstream_documents(
    transaction: Transaction, widgets: Sequence[tuple[Document, MirroredWidget]]
) -> PutResult:
    """Make widgets equal to their upstream's documents: listed, and with exactly their versions.

    With each document comes what is recorded of the copy. Installs that were counted here are added
    to the upstream's count, unless a document replaces a widget that was no copy: the count of that
    one may include installs anywhere.
    """
    names = json.dumps([mirrored[:2] for _, mirrored in widgets])
    rows = transaction.read(FIND_MIRRORED, {"names": names})
    copies = {f"{row['scope']}/{row['name']}": MirroredWidget(*row) for row in rows}
    documents = []
    counted = []
    for document, mirrored in widgets:
        copy = copies.get(document.path)
        widget = {**document.widget, "listed": True, "has_download_count": copy is None}
        documents.append(document._replace(widget=widget))
        if copy and copy.upstream_count != mirrored.upstream_count:
            counted.append(mirrored)
    result = put_documents(transaction, documents, "mirror", removes_versions=True)
    put_upstream_counts(transaction, counted)
    changed = [each for _, each in widgets if copies.get(f"{each.scope}/{each.name}") != each]
    put_mirrored(transaction, changed)
    counted_paths = {f"{each.scope}/{each.name}" for each in counted}
    return result._replace(changed=result.changed | counted_paths)


PUT_POSITION = """
INSERT INTO mirror_position SELECT :source, :scopes, :token WHERE true
ON CONFLICT (source, scopes) DO UPDATE SET token = excluded.token
"""


def put_position(
    transaction: Transaction, source: str, scopes: Iterable[str], position: str
) -> None:
    """Record how far the changes of an upstream were read for these scopes."""
    values = {"source": source, "scopes": scopes_key(scopes), "token": position}
    transaction.execute(PUT_POSITION, values)


def scopes_key(scopes: Iterable[str]) -> str:
    """Return the scopes as mirror_position has them."""
    return json.dumps(sorted(scopes), ensure_ascii=False)
