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
    # The stored versions that are not in the documents; empty unless an action is given.
    others: list[WidgetName]


class StoredWidget(NamedTuple):
    """A stored widget, its versions by version number, and its row in the about table."""

    widget: sqlite3.Row
    versions: dict[str, sqlite3.Row]
    about: sqlite3.Row | None


class PutRows(NamedTuple):
    """The documents' rows that are new or differ from the stored rows."""

    widgets: list[Row]
    # The widgets whose download count changes.
    counts: list[Row]
    versions: list[Row]
    abouts: list[Row]


def put_documents(
    transaction: Transaction,
    documents: Sequence[Document],
    action: str | None = None,
    *,
    removes_versions: bool = False,
    sets_counts: bool = False,
    has_bundle: HasBundle | None = None,
) -> PutResult:
    """Add or update the widgets and versions in the documents; write only differences.

    If a document omits createdAt, listed or about, the stored value stays. Its downloadCount raises
    the stored counter but never lowers it, unless sets_counts is true. If has_bundle() is true for
    a bundle, clients load it from this service. With an action, the audit log records removed
    versions, and changes to listings and version states. removes_versions requires an action.
    """
    stored_widgets = _find_stored(transaction, documents, with_others=action is not None)
    result = PutResult(set(), set(), [])
    puts, changed_ids, replaces_versions = PutRows([], [], [], []), [], False
    for document in documents:
        stored = stored_widgets.get(document.path)
        new = _find_new_rows(document, stored, has_bundle, sets_counts=sets_counts)
        for rows, new_rows in zip(puts, new, strict=True):
            rows += new_rows
        if stored is None:
            result.added.add(document.path)
        elif any(new):
            result.changed.add(document.path)
            changed_ids.append(stored.widget["id"])
            replaces_versions |= any(row["version"] in stored.versions for row in new.versions)
        if stored is None or action is None:
            continue
        _record_states(transaction, action, new, stored)
        numbers = {row["version"] for row in document.versions}
        target = WidgetName(*document.path.split("/"))
        others = {
            target._replace(version=number): row
            for number, row in stored.versions.items()
            if number not in numbers
        }
        result.others.extend(others)
        if removes_versions and others:
            result.changed.add(document.path)
            remove_versions(transaction, action, others)
    _put_rows(transaction, puts, SET_COUNT if sets_counts else RAISE_COUNT)
    if replaces_versions:
        transaction.execute(REMOVE_UNUSED_RANGES)
    # Even a statement that changes no row would increment the revision.
    if changed_ids and action != "mirror":
        transaction.execute(FORGET_ETAGS, {"ids": json.dumps(changed_ids)})
    return result


def _find_new_rows(
    document: Document,
    stored: StoredWidget | None,
    has_bundle: HasBundle | None,
    *,
    sets_counts: bool,
) -> PutRows:
    """Return the document's rows that are new or differ from the stored widget."""
    widget = widget_row(document, stored and stored.widget)
    versions = stored.versions if stored else {}
    changes_count = stored and _changes_count(widget, stored.widget["download_count"], sets_counts)
    about = document.about
    changes_about = about and changed_columns(stored and stored.about, about)
    return PutRows(
        widgets=[widget] if _differs(widget, stored and stored.widget, WIDGET_COLUMNS) else [],
        counts=[widget] if changes_count else [],
        versions=[
            row
            for row in version_rows(document, stored, has_bundle)
            if _differs(row, versions.get(row["version"]), STORED_COLUMNS)
        ],
        abouts=[{**widget, **about}] if about and changes_about else [],
    )


def _changes_count(widget: Row, stored: int | None, sets_counts: bool) -> bool:
    count = widget["download_count"]
    if not widget["has_download_count"] or count == stored:
        return False
    return sets_counts or (count is not None and (stored is None or count > stored))


def _differs(row: Row, stored: sqlite3.Row | None, columns: Iterable[str]) -> bool:
    return stored is None or any(stored[column] != row[column] for column in columns)


def _put_rows(transaction: Transaction, rows: PutRows, put_count: str) -> None:
    if rows.widgets:
        transaction.execute_many(PUT_WIDGET, rows.widgets)
    if rows.versions:
        for statement in add_ranges(row["sdk_version"] for row in rows.versions):
            transaction.execute(*statement)
        transaction.execute_many(PUT_VERSION, rows.versions)
    if rows.counts:
        transaction.execute_many(put_count, rows.counts)
    if rows.abouts:
        put_about(transaction, rows.abouts)


def _find_stored(
    transaction: Transaction, documents: Sequence[Document], *, with_others: bool
) -> dict[str, StoredWidget]:
    """Return the stored widgets that the documents describe, by scope/name."""
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
    """Return the columns of the document's widget; omitted fields keep their stored values."""
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
    """Yield the columns of each version, with its widget's scope and name.

    A stored bundle's path stays unless the version's bundle has changed.
    """
    scope, name = document.widget["scope"], document.widget["name"]
    names = {"scope": scope, "name": name}
    is_copy = stored is not None and stored.widget["is_copy"]
    for version in document.versions:
        number, sha256, path = version["version"], version["sha256_hash"], None
        old = stored.versions.get(number) if stored else None
        if old and not _differs(version, old, ("sha256_hash", "bundle_size")):
            path = old["bundle_path"]
        if path is None and has_bundle and has_bundle(sha256, version["bundle_size"]):
            path = bundle_path(scope, name, number, sha256 if is_copy else None)
        yield {**version, **names, "precedence": precedence(number), "bundle_path": path}


def _record_states(
    transaction: Transaction, action: str, new: PutRows, stored: StoredWidget
) -> None:
    target = WidgetName(stored.widget["scope"], stored.widget["name"])
    for widget in new.widgets:
        if widget["listed"] != stored.widget["listed"]:
            record_listing(transaction, action, target, widget["listed"])
    for row in new.versions:
        old = stored.versions.get(row["version"])
        if old is None:
            continue
        before, after = version_state(old, STATE_KEYS), version_state(row, STATE_KEYS)
        if before != after:
            version = target._replace(version=row["version"])
            transaction.record(action, version, before=before, after=after)
