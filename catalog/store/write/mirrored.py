"""Refreshes the copies of an upstream's widgets, and records their state."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...domain.changes import WidgetName
from ...domain.documents import Document, Row
from ...domain.semver_ranges import MAX_SAFE_INTEGER
from ..connection.transaction import Transaction
from .about import changed_columns, find_about_rows, put_about
from .documents import PutResult, put_documents
from .moderation import REMOVABLE_WIDGETS, record_listing, remove_widgets

PUT_MIRRORED = """
INSERT INTO mirrored (widget_id, source, etag, upstream_count, gone)
VALUES ((SELECT id FROM widget WHERE scope = :scope AND name = :name),
    :source, :etag, :upstream_count, :gone)
ON CONFLICT (widget_id) DO UPDATE
SET (source, etag, upstream_count, gone)
    = (excluded.source, excluded.etag, excluded.upstream_count, excluded.gone)
"""


class MirroredWidget(NamedTuple):
    """A copied widget, with the upstream's ETag and download count at the last refresh.

    If gone is true, the copy was unlisted because the upstream no longer shows the widget.
    """

    scope: str
    name: str
    source: str
    etag: str | None
    upstream_count: int | None
    gone: bool = False


# The new count is the upstream's count plus the installs that this service has counted. It becomes
# null if the upstream has no count and this service has not counted any installs.
UPDATE_MIRRORED_COUNT = f"""
UPDATE widget SET download_count = iif(
    :upstream_count IS NULL AND coalesce(download_count, 0) <= coalesce(upstream_count, 0),
    NULL,
    min(coalesce(:upstream_count, 0)
        + max(coalesce(download_count, 0) - coalesce(upstream_count, 0), 0), {MAX_SAFE_INTEGER})
)
FROM mirrored
WHERE widget_id = widget.id AND scope = :scope AND name = :name
  AND upstream_count IS NOT :upstream_count
"""


def put_mirrored(transaction: Transaction, widgets: Iterable[MirroredWidget]) -> None:
    """Record the upstream, ETag and count of these copies, and update their download counts."""
    rows = [widget._asdict() for widget in widgets]
    if rows:
        transaction.execute_many(UPDATE_MIRRORED_COUNT, rows)
        transaction.execute_many(PUT_MIRRORED, rows)


FIND_MIRRORED = """
SELECT scope, name, source, etag, upstream_count, gone FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN mirrored ON widget_id = widget.id
"""


def put_upstream_documents(
    transaction: Transaction,
    widgets: Sequence[tuple[Document, MirroredWidget]],
    *,
    removes_versions: bool,
) -> PutResult:
    """Make widgets match their upstream's documents: list them, and give them the same versions.

    Each document comes with the state to record for the copy. Installs that were counted here are
    added to the upstream's count, unless a document replaces a local widget, whose count may
    include installs from anywhere. If removes_versions is false, versions that a document lacks
    stay; the copy then has no ETag, so that every run compares it.
    """
    names = json.dumps([mirrored[:2] for _, mirrored in widgets])
    rows = transaction.read(FIND_MIRRORED, {"names": names})
    copies = {f"{row['scope']}/{row['name']}": MirroredWidget(*row) for row in rows}
    documents, counted = [], set()
    for document, mirrored in widgets:
        copy = copies.get(document.path)
        widget = {**document.widget, "listed": True, "has_download_count": copy is None}
        documents.append(document._replace(widget=widget))
        if copy and copy.upstream_count != mirrored.upstream_count:
            counted.add(document.path)
    result = put_documents(
        transaction, documents, "mirror", removes_versions=removes_versions, sets_counts=True
    )
    incomplete = set() if removes_versions else {str(other.widget) for other in result.others}
    records = [
        each._replace(etag=None) if document.path in incomplete else each
        for document, each in widgets
    ]
    put_mirrored(
        transaction, [each for each in records if copies.get(f"{each.scope}/{each.name}") != each]
    )
    # Leave out the versions of replaced local widgets: the upstream never had them.
    others = [other for other in result.others if str(other.widget) in copies]
    return result._replace(changed=result.changed | counted, others=others)


COPIES_NAMED = """
SELECT widget.id, scope, name FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
"""


def put_upstream_about(transaction: Transaction, abouts: Mapping[WidgetName, Row]) -> set[str]:
    """Write each about that has changed, and return the scope/name of each changed copy."""
    rows = transaction.read(COPIES_NAMED, {"names": json.dumps(list(abouts))})
    stored = find_about_rows(transaction, (row["id"] for row in rows))
    named = [(WidgetName(row["scope"], row["name"]), stored.get(row["id"])) for row in rows]
    changed = [key for key, before in named if changed_columns(before, abouts[key])]
    if changed:
        put_about(transaction, [{**key._asdict(), **abouts[key]} for key in changed])
        transaction.record("mirror", after={"described": len(changed)})
    return set(map(str, changed))


UNLIST = "UPDATE widget SET listed = 0 WHERE scope = :scope AND name = :name"
MARK_GONE = """
UPDATE mirrored SET gone = 1
WHERE widget_id = (SELECT id FROM widget WHERE scope = :scope AND name = :name)
"""


def unlist_gone(transaction: Transaction, widgets: Sequence[WidgetName]) -> None:
    """Unlist copies whose upstream no longer shows the widget."""
    rows = [widget._asdict() for widget in widgets]
    transaction.execute_many(UNLIST, rows)
    transaction.execute_many(MARK_GONE, rows)
    for widget in widgets:
        record_listing(transaction, "mirror", widget, False)


COPIES = f"{REMOVABLE_WIDGETS} JOIN mirrored ON widget_id = id"
GONE_COPIES = f"{COPIES} WHERE gone AND NOT listed"


def remove_gone(transaction: Transaction) -> int:
    """Delete the copies that unlist_gone() unlisted, and return how many there were."""
    rows = transaction.read(GONE_COPIES)
    if rows:
        remove_widgets(transaction, "gc", rows)
    return len(rows)


RELEASE_WIDGET = """
DELETE FROM mirrored
WHERE widget_id = (SELECT id FROM widget WHERE scope = :scope AND name = :name)
"""


def release_excluded(transaction: Transaction, widgets: Sequence[WidgetName]) -> None:
    """Turn copies into local widgets, which are no longer refreshed."""
    transaction.execute_many(RELEASE_WIDGET, [widget._asdict() for widget in widgets])
    for widget in widgets:
        transaction.record("mirror", widget, after={"excluded": True})


class RememberedRun(NamedTuple):
    """The state that a complete run stores for the next one."""

    source: str
    # The options as JSON.
    options: str
    position: str | None
    # None keeps the time that an earlier run stored.
    refreshed_at: str | None
    error: str | None
    # The publication time of each version that is held back, by scope/name@version.
    held_back: Mapping[str, str]


REMEMBER_RUN = """
INSERT INTO upstream (source, options, token, refreshed_at, last_error, held_back)
VALUES (:source, :options, :position, :refreshed_at, :error, :held_back)
ON CONFLICT (source) DO UPDATE SET
    (options, token, last_error, held_back)
        = (excluded.options, excluded.token, excluded.last_error, excluded.held_back),
    refreshed_at = coalesce(excluded.refreshed_at, refreshed_at)
"""


def remember_run(transaction: Transaction, run: RememberedRun) -> None:
    """Store the state that the next run and `mirror status` need."""
    held_back = json.dumps(run.held_back, ensure_ascii=False)
    transaction.note(REMEMBER_RUN, {**run._asdict(), "held_back": held_back})


REMEMBER_ERROR = "UPDATE upstream SET last_error = :error WHERE source = :source"


def remember_error(transaction: Transaction, source: str, error: str) -> None:
    """Store why a run ended early, but only if an earlier run has stored the upstream."""
    transaction.note(REMEMBER_ERROR, {"source": source, "error": error})


WITHOUT_COPIES = """
SELECT source FROM upstream
WHERE source <> :source AND source NOT IN (SELECT source FROM mirrored) ORDER BY source
"""
FORGET = "DELETE FROM upstream WHERE source = :source"


def forget_without_copies(transaction: Transaction, source: str) -> list[str]:
    """Forget all other upstreams that have no copies here, and return them."""
    forgotten = [other for (other,) in transaction.read(WITHOUT_COPIES, {"source": source})]
    for other in forgotten:
        transaction.execute(FORGET, {"source": other})
    return forgotten


# Without ETags and a position, the next run compares every copy with the new upstream.
MOVE_COPIES = "UPDATE mirrored SET source = :new, etag = NULL WHERE source = :source"
MOVE_UPSTREAM = "UPDATE upstream SET source = :new, token = NULL WHERE source = :source"
COUNT_COPIES = "SELECT count(*) FROM mirrored WHERE source = :source"


def move_upstream(transaction: Transaction, source: str, new: str) -> None:
    """Move an upstream's copies and options to another URL."""
    values = {"source": source, "new": new}
    ((widgets,),) = transaction.read(COUNT_COPIES, {"source": source})
    transaction.note(MOVE_COPIES, values)
    transaction.note(MOVE_UPSTREAM, values)
    transaction.record("mirror", after={"moved": source, "source": new, "widgets": widgets})


COPIES_FROM = f"{COPIES} WHERE source = :source"
RELEASE = "DELETE FROM mirrored WHERE source = :source"


def forget_upstream(transaction: Transaction, source: str, *, delete: bool) -> tuple[int, int]:
    """Forget an upstream, and delete its copies or turn them into local widgets.

    Return how many copies there were, and how many versions they had.
    """
    rows = transaction.read(COPIES_FROM, {"source": source})
    if delete and rows:
        remove_widgets(transaction, "mirror", rows)
    transaction.execute(RELEASE, {"source": source})
    transaction.execute(FORGET, {"source": source})
    after = {"forgotten": source, "widgets": len(rows), "deleted": delete}
    transaction.record("mirror", after=after)
    return len(rows), sum(row["versions"] for row in rows)
