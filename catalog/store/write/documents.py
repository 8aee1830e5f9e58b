"""Writes widget documents as rows, for import, publish, mirror, unpack and the demo catalog.

put_documents() compares the documents with the stored rows, and writes only differences.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from ...domain.changes import WidgetName
from ...domain.documents import VERSION_FIELDS, WIDGET_FIELDS, Document, Row
from ...domain.semver_ranges import precedence
from ..connection.transaction import Transaction
from ..schema.derived import REMOVE_UNUSED_RANGES, add_ranges, folded_columns
from .about import changed_columns, find_about_rows, put_about
from .moderation import (
    FORGET_ETAGS,
    STATE_KEYS,
    record_listing,
    remove_versions,
    version_state,
)
from .stored_bundles import bundle_path

SIZE_COLUMNS = {"min_size": ("min_w", "min_h"), "max_size": ("max_w", "max_h")}
# download_count is left out: an install may change it at any time, so a value that was read must
# never be written.
WIDGET_COLUMNS = (
    *(field.column for field in WIDGET_FIELDS if field.column != "download_count"),
    "folded_name",
    "folded_text",
    "folded_path",
)
VERSION_COLUMNS = (
    *chain.from_iterable(
        SIZE_COLUMNS.get(field.column, (field.column,)) for field in VERSION_FIELDS
    ),
    "precedence",
)
# A document does not say whether a bundle is stored.
STORED_COLUMNS = (*VERSION_COLUMNS, "bundle_path")
# Returns whether this service stores the bundle with this hash and size.
HasBundle = Callable[[str, int], bool]


def _column_list(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(prefix + name for name in names)


PUT_WIDGET = f"""
INSERT INTO widget ({_column_list(WIDGET_COLUMNS)}, download_count)
VALUES ({_column_list(WIDGET_COLUMNS, ":")}, :download_count)
ON CONFLICT (scope, name) DO UPDATE
SET ({_column_list(WIDGET_COLUMNS[2:])}) = ({_column_list(WIDGET_COLUMNS[2:], "excluded.")})
"""
SET_COUNT = """
UPDATE widget SET download_count = :download_count WHERE scope = :scope AND name = :name
"""
# An install may be counted after the counter was read, so the maximum is computed in SQL.
RAISE_COUNT = """
UPDATE widget SET download_count = max(coalesce(download_count, 0), :download_count)
WHERE scope = :scope AND name = :name
"""
PUT_VERSION = f"""
INSERT INTO version (widget_id, {_column_list(STORED_COLUMNS)})
VALUES ((SELECT id FROM widget WHERE scope = :scope AND name = :name),
    {_column_list(STORED_COLUMNS, ":")})
ON CONFLICT (widget_id, version) DO UPDATE
SET ({_column_list(STORED_COLUMNS[1:])}) = ({_column_list(STORED_COLUMNS[1:], "excluded.")})
"""

STORED_WIDGETS = f"""
SELECT widget.id, download_count, {_column_list(WIDGET_COLUMNS)},
    EXISTS (SELECT 1 FROM mirrored WHERE widget_id = widget.id) AS is_copy
FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
"""
STORED_VERSIONS = f"""
SELECT id, widget_id, {_column_list(STORED_COLUMNS)} FROM version
WHERE widget_id IN (SELECT value FROM json_each(:ids))
  AND (:numbers IS NULL OR version IN (SELECT value FROM json_each(:numbers)))
"""


class PutResult(NamedTuple):
    """The scope/name of each widget that put_documents() added or changed, even in a dry run."""

    added: set[str]
    changed: set[str]
    # Stored versions that are not in the documents; filled only if an action is given.
    others: Sequence[WidgetName] = ()


class StoredWidget(NamedTuple):
    """A widget as it is stored, its versions by number, and its about row."""

    widget: sqlite3.Row
    versions: dict[str, sqlite3.Row]
    about: sqlite3.Row | None


class DocumentChanges(NamedTuple):
    """The differences between a document and the stored widget."""

    target: WidgetName
    stored: StoredWidget | None
    widget: Row
    puts_widget: bool
    sets_count: bool
    # The versions of the document that are new or differ from the stored ones.
    versions: list[Row]
    # The stored versions that are not in the document.
    others: list[sqlite3.Row]
    # The new row of the about table; None if the stored row is the same.
    about: Row | None

    @property
    def is_needed(self) -> bool:
        """Whether the document changes anything; stored versions that it lacks do not count."""
        return self.puts_widget or self.sets_count or bool(self.versions or self.about)

    @property
    def replaces_versions(self) -> bool:
        """Whether the document changes stored versions."""
        stored = self.stored.versions if self.stored else {}
        return any(row["version"] in stored for row in self.versions)

    def other_versions(self) -> dict[WidgetName, sqlite3.Row]:
        """Return the stored versions that are not in the document, with their rows."""
        return {self.target._replace(version=row["version"]): row for row in self.others}


def put_documents(
    transaction: Transaction,
    documents: Sequence[Document],
    action: str | None = None,
    *,
    removes_versions: bool = False,
    sets_counts: bool = False,
    has_bundle: HasBundle | None = None,
) -> PutResult:
    """Add or update the widgets and versions of the documents; write only differences.

    If a document omits createdAt, listed or about, the stored value stays. Its downloadCount raises
    the stored counter but never lowers it, unless sets_counts is true. Clients load bundles for
    which has_bundle() is true from this service. With an action, the audit log records removed
    versions, and changes of listings and version states. removes_versions requires an action.
    """
    stored = _find_stored(transaction, documents, with_others=action is not None)
    changes = [
        compare(document, stored.get(document.path), has_bundle, sets_counts=sets_counts)
        for document in documents
    ]
    changed = {str(change.target) for change in changes if change.stored and change.is_needed}
    for change in changes:
        if action and change.stored:
            _record_states(transaction, action, change, change.stored)
        if action and removes_versions and change.others:
            changed.add(str(change.target))
            remove_versions(transaction, action, change.other_versions())
    _put_rows(transaction, changes, SET_COUNT if sets_counts else RAISE_COUNT)
    if action != "mirror":
        ids = [each.stored.widget["id"] for each in changes if each.stored and each.is_needed]
        # Even a statement that changes no row would increment the revision.
        if ids:
            transaction.execute(FORGET_ETAGS, {"ids": json.dumps(ids)})
    return PutResult(
        added={str(change.target) for change in changes if change.stored is None},
        changed=changed,
        others=[version for change in changes for version in change.other_versions()],
    )


def compare(
    document: Document,
    stored: StoredWidget | None,
    has_bundle: HasBundle | None,
    *,
    sets_counts: bool,
) -> DocumentChanges:
    """Return the differences between the document and the stored widget."""
    widget = widget_row(document, stored and stored.widget)
    target = WidgetName(widget["scope"], widget["name"])
    rows, about = version_rows(document, stored, has_bundle), None
    if document.about and changed_columns(stored and stored.about, document.about):
        about = {**document.about, "scope": target.scope, "name": target.name}
    if stored is None:
        return DocumentChanges(target, None, widget, True, False, list(rows), [], about)
    numbers = {row["version"] for row in document.versions}
    return DocumentChanges(
        target,
        stored,
        widget,
        puts_widget=_differs(widget, stored.widget, WIDGET_COLUMNS),
        sets_count=_changes_count(widget, stored.widget["download_count"], sets_counts),
        versions=[
            row
            for row in rows
            if _differs(row, stored.versions.get(row["version"]), STORED_COLUMNS)
        ],
        others=[row for number, row in stored.versions.items() if number not in numbers],
        about=about,
    )


def _changes_count(widget: Row, stored: int | None, sets_counts: bool) -> bool:
    count = widget["download_count"]
    if not widget["has_download_count"] or count == stored:
        return False
    return sets_counts or (count is not None and (stored is None or count > stored))


def _differs(row: Row, stored: sqlite3.Row | None, columns: Iterable[str]) -> bool:
    return stored is None or any(stored[column] != row[column] for column in columns)


def _put_rows(transaction: Transaction, changes: Sequence[DocumentChanges], put_count: str) -> None:
    widgets = [change.widget for change in changes if change.puts_widget]
    versions = [row for change in changes for row in change.versions]
    counts = [change.widget for change in changes if change.sets_count]
    if widgets:
        transaction.execute_many(PUT_WIDGET, widgets)
    if versions:
        for statement in add_ranges(row["sdk_version"] for row in versions):
            transaction.execute(*statement)
        transaction.execute_many(PUT_VERSION, versions)
    if any(change.replaces_versions for change in changes):
        transaction.execute(REMOVE_UNUSED_RANGES)
    if counts:
        transaction.execute_many(put_count, counts)
    if abouts := [change.about for change in changes if change.about]:
        put_about(transaction, abouts)


def _find_stored(
    transaction: Transaction, documents: Sequence[Document], *, with_others: bool
) -> dict[str, StoredWidget]:
    """Return the stored widgets of the documents, by scope/name."""
    numbers = {row["version"] for document in documents for row in document.versions}
    names = [(each.widget["scope"], each.widget["name"]) for each in documents]
    rows = transaction.read(STORED_WIDGETS, {"names": json.dumps(names)})
    abouts = {}
    if any(document.about for document in documents):
        abouts = find_about_rows(transaction, (row["id"] for row in rows))
    stored = {row["id"]: StoredWidget(row, {}, abouts.get(row["id"])) for row in rows}
    if stored:
        values = {
            "ids": json.dumps(list(stored)),
            "numbers": None if with_others else json.dumps(list(numbers)),
        }
        for row in transaction.read(STORED_VERSIONS, values):
            stored[row["widget_id"]].versions[row["version"]] = row
    return {f"{each.widget['scope']}/{each.widget['name']}": each for each in stored.values()}


def widget_row(document: Document, stored: sqlite3.Row | None = None) -> Row:
    """Return the columns of the document's widget; fields that it omits keep the stored value."""
    widget = document.widget
    created_at, listed = widget["created_at"], widget["listed"]
    if created_at is None:
        created_at = stored["created_at"] if stored else widget["default_created_at"]
    if listed is None:
        listed = stored["listed"] if stored else True
    folded = folded_columns(widget)
    return {**widget, **folded, "created_at": created_at, "listed": listed}


def version_rows(
    document: Document, stored: StoredWidget | None = None, has_bundle: HasBundle | None = None
) -> Iterator[Row]:
    """Yield the columns of each version, with the scope and name of its widget.

    The path of a stored bundle stays unless the bundle of the version has changed.
    """
    scope, name = document.widget["scope"], document.widget["name"]
    names = {"scope": scope, "name": name}
    is_copy = stored is not None and stored.widget["is_copy"]
    for version in document.versions:
        number, sha256, path = version["version"], version["sha256_hash"], None
        old = stored.versions.get(number) if stored else None
        if has_bundle and has_bundle(sha256, version["bundle_size"]):
            path = bundle_path(scope, name, number, sha256 if is_copy else None)
        elif old and not _differs(version, old, ("sha256_hash", "bundle_size")):
            path = old["bundle_path"]
        yield {**version, **names, "precedence": precedence(number), "bundle_path": path}


def _record_states(
    transaction: Transaction, action: str, change: DocumentChanges, stored: StoredWidget
) -> None:
    listed = change.widget["listed"]
    if listed != stored.widget["listed"]:
        record_listing(transaction, action, change.target, listed)
    for row in change.versions:
        old = stored.versions.get(row["version"])
        if old is None:
            continue
        before, after = version_state(old, STATE_KEYS), version_state(row, STATE_KEYS)
        if before != after:
            version = change.target._replace(version=row["version"])
            transaction.record(action, version, before=before, after=after)
