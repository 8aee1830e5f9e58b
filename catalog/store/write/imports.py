"""Widget documents into rows: the one way in for import, publish, mirror, unpack and the demo.

put_documents() reads what is stored of the widgets, compares, and writes only what differs.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import chain
from operator import add
from typing import NamedTuple

from ...changes import WidgetName
from ...documents import VERSION_FIELDS, WIDGET_FIELDS, Document, Row
from ...semver_ranges import precedence
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from ..schema.derived import REMOVE_UNUSED_RANGES, add_ranges, folded_columns
from .about import PUT_ABOUT, changed_columns, find_about
from .moderation import (
    REMOVABLE_WIDGETS,
    STATE_KEYS,
    record_listing,
    remove_versions,
    remove_widgets,
    version_state,
)

SIZE_COLUMNS = {"min_size": ("min_w", "min_h"), "max_size": ("max_w", "max_h")}
# Without download_count, which an install may change at any time: it is never written as it was
# read.
WIDGET_COLUMNS = (
    *(field.column for field in WIDGET_FIELDS if field.column != "download_count"),
    "folded_name",
    "folded_text",
)
VERSION_COLUMNS = (
    *chain.from_iterable(
        SIZE_COLUMNS.get(field.column, (field.column,)) for field in VERSION_FIELDS
    ),
    "precedence",
)


def _columns(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(prefix + name for name in names)


PUT_WIDGET = f"""
INSERT INTO widget ({_columns(WIDGET_COLUMNS)}, download_count)
SELECT {_columns(WIDGET_COLUMNS, ":")}, :download_count WHERE true
ON CONFLICT (scope, name) DO UPDATE
SET ({_columns(WIDGET_COLUMNS[2:])}) = ({_columns(WIDGET_COLUMNS[2:], "excluded.")})
"""
SET_COUNT = """
UPDATE widget SET download_count = :download_count WHERE scope = :scope AND name = :name
"""
# If the bytes change, the held bundle is no longer the version's bundle.
PUT_VERSION = f"""
INSERT INTO version (widget_id, {_columns(VERSION_COLUMNS)})
SELECT (SELECT id FROM widget WHERE scope = :scope AND name = :name),
    {_columns(VERSION_COLUMNS, ":")} WHERE true
ON CONFLICT (widget_id, version) DO UPDATE
SET ({_columns(VERSION_COLUMNS[1:])}) = ({_columns(VERSION_COLUMNS[1:], "excluded.")}),
    bundle_path = iif(
        (version.sha256_hash, version.bundle_size) = (excluded.sha256_hash, excluded.bundle_size),
        bundle_path, NULL)
"""

STORED_WIDGETS = f"""
SELECT widget.id, download_count, {_columns(WIDGET_COLUMNS)} FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
"""
STORED_VERSIONS = f"""
SELECT id, widget_id, {_columns(VERSION_COLUMNS)} FROM version
WHERE widget_id IN (SELECT value FROM json_each(:ids))
  AND (:numbers IS NULL OR version IN (SELECT value FROM json_each(:numbers)))
"""


class PutResult(NamedTuple):
    """What put_documents() did, or would do: the scope/name of each widget."""

    added: set[str]
    changed: set[str]
    # Stored versions that are not in the documents; those of an action only.
    others: Sequence[WidgetName] = ()


class StoredWidget(NamedTuple):
    """A widget as it is stored, its versions by number, and what is said about it."""

    widget: sqlite3.Row
    versions: dict[str, sqlite3.Row]
    about: sqlite3.Row | None


class Plan(NamedTuple):
    """What a document changes in what is stored of its widget."""

    target: WidgetName
    stored: StoredWidget | None
    widget: Row
    puts_widget: bool
    sets_count: bool
    # Those that are new or differ.
    versions: list[Row]
    # Stored ones that are not in the document.
    others: list[sqlite3.Row]
    # What is said about the widget, if it differs.
    about: Row | None

    @property
    def changes(self) -> bool:
        """Whether it changes anything; the versions that it lacks stay."""
        return self.puts_widget or self.sets_count or bool(self.versions or self.about)

    @property
    def replaces_versions(self) -> bool:
        """Whether it changes versions that are stored."""
        stored = self.stored.versions if self.stored else {}
        return any(row["version"] in stored for row in self.versions)


def put_documents(
    transaction: Transaction,
    documents: Sequence[Document],
    action: str | None = None,
    *,
    removes_versions: bool = False,
) -> PutResult:
    """Add or update the widgets and versions of the documents; write only what differs.

    What a document does not have of downloadCount, createdAt, listed and about stays as it is
    stored. With an action, changes of what users rely on are recorded: states of versions,
    listings, removals; removes_versions needs one.
    """
    stored = _find_stored(transaction, documents, with_others=action is not None)
    plans = [compare(document, stored.get(document.path)) for document in documents]
    changed = {str(plan.target) for plan in plans if plan.stored and plan.changes}
    for plan in plans:
        if action and plan.stored:
            _record_states(transaction, action, plan, plan.stored)
        if action and removes_versions and plan.others:
            changed.add(str(plan.target))
            remove_versions(transaction, action, plan.target, plan.others)
    _put_rows(transaction, plans)
    return PutResult(
        added={str(plan.target) for plan in plans if plan.stored is None},
        changed=changed,
        others=[
            plan.target._replace(version=row["version"]) for plan in plans for row in plan.others
        ],
    )


def compare(document: Document, stored: StoredWidget | None) -> Plan:
    """Return what the document changes."""
    widget = widget_row(document, stored and stored.widget)
    target = WidgetName(widget["scope"], widget["name"])
    rows, about = version_rows(document), None
    if document.about and changed_columns(stored and stored.about, document.about):
        about = {**document.about, "scope": target.scope, "name": target.name}
    if stored is None:
        return Plan(target, None, widget, True, False, list(rows), [], about)
    numbers = {row["version"] for row in document.versions}
    count = stored.widget["download_count"]
    return Plan(
        target,
        stored,
        widget,
        puts_widget=_differs(widget, stored.widget, WIDGET_COLUMNS),
        sets_count=widget["has_download_count"] and widget["download_count"] != count,
        versions=[
            row
            for row in rows
            if _differs(row, stored.versions.get(row["version"]), VERSION_COLUMNS)
        ],
        others=[row for number, row in stored.versions.items() if number not in numbers],
        about=about,
    )


def _differs(row: Row, stored: sqlite3.Row | None, columns: Iterable[str]) -> bool:
    return stored is None or any(stored[column] != row[column] for column in columns)


def _put_rows(transaction: Transaction, plans: Sequence[Plan]) -> None:
    widgets = [plan.widget for plan in plans if plan.puts_widget]
    versions = [row for plan in plans for row in plan.versions]
    counts = [plan.widget for plan in plans if plan.sets_count]
    if widgets:
        transaction.execute_many(PUT_WIDGET, widgets)
    if versions:
        for statement in add_ranges(row["sdk_version"] for row in versions):
            transaction.execute(*statement)
        transaction.execute_many(PUT_VERSION, versions)
    if any(plan.replaces_versions for plan in plans):
        transaction.execute(REMOVE_UNUSED_RANGES)
    if counts:
        transaction.execute_many(SET_COUNT, counts)
    if abouts := [plan.about for plan in plans if plan.about]:
        transaction.execute_many(PUT_ABOUT, abouts)


def _find_stored(
    transaction: Transaction, documents: Sequence[Document], *, with_others: bool
) -> dict[str, StoredWidget]:
    """Return what is stored of the widgets of the documents, by scope/name."""
    numbers = {row["version"] for document in documents for row in document.versions}
    names = [(each.widget["scope"], each.widget["name"]) for each in documents]
    rows = transaction.read(STORED_WIDGETS, {"names": json.dumps(names)})
    abouts = {}
    if any(document.about for document in documents):
        abouts = find_about(transaction, (row["id"] for row in rows))
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
    """Return the columns of the document's widget; what it does not have is as it is stored."""
    widget = document.widget
    created_at, listed = widget["created_at"], widget["listed"]
    if created_at is None:
        created_at = stored["created_at"] if stored else widget["default_created_at"]
    if listed is None:
        listed = stored["listed"] if stored else True
    folded = folded_columns(widget["display_name"], widget["description"])
    return {**widget, **folded, "created_at": created_at, "listed": listed}


def version_rows(document: Document) -> Iterator[Row]:
    """Yield the columns of each version, with the scope and name of its widget."""
    names = {"scope": document.widget["scope"], "name": document.widget["name"]}
    for version in document.versions:
        yield {**version, **names, "precedence": precedence(version["version"])}


def _record_states(transaction: Transaction, action: str, plan: Plan, stored: StoredWidget) -> None:
    listed = plan.widget["listed"]
    if listed != stored.widget["listed"]:
        record_listing(transaction, action, plan.target, listed)
    for row in plan.versions:
        old = stored.versions.get(row["version"])
        if old is None:
            continue
        before, after = version_state(old, STATE_KEYS), version_state(row, STATE_KEYS)
        if before != after:
            version = plan.target._replace(version=row["version"])
            transaction.record(action, version, before=before, after=after)


@dataclass(frozen=True)
class ImportReport:
    """What an import changed, or would change, in numbers."""

    widgets: int = 0
    versions: int = 0
    added: int = 0
    changed: int = 0
    removed_widgets: int = 0
    removed_versions: int = 0

    def __add__(self, other: "ImportReport") -> "ImportReport":
        return ImportReport(*map(add, astuple(self), astuple(other)))


# Merges the segments of the text index. Each large write adds segments, and a search reads all of
# them: seven after an import of 10,000 widgets.
OPTIMIZE_SEARCH_INDEX = "INSERT INTO listing_text (listing_text) VALUES ('optimize')"
# Optimize it after a write of at least this many widgets.
OPTIMIZE_AFTER = 1000

OTHER_WIDGETS = f"""
{REMOVABLE_WIDGETS} WHERE scope || '/' || name NOT IN (SELECT value FROM json_each(:paths))
"""


def import_documents(
    database: Database,
    actor: Actor,
    batches: Iterable[Sequence[Document]],
    *,
    prune: bool = False,
    dry_run: bool = False,
) -> ImportReport:
    """Add and update the widgets of all batches, and record it.

    With prune, remove every widget and every version that is not in the documents.
    """
    paths: list[str] = []

    def put_batch(transaction: Transaction, documents: Sequence[Document]) -> ImportReport:
        # A cluster may run it again, and then a path is there twice.
        paths.extend(document.path for document in documents if prune)
        result = put_documents(transaction, documents, "import", removes_versions=prune)
        return ImportReport(
            len(documents),
            sum(len(document.versions) for document in documents),
            len(result.added),
            len(result.changed),
            removed_versions=len(result.others) if prune else 0,
        )

    finish = partial(_finish_import, paths=paths if prune else None)
    reports = database.transact_each(batches, put_batch, finish, actor, dry_run=dry_run)
    return sum(reports, ImportReport())


def _finish_import(
    transaction: Transaction, reports: Iterable[ImportReport], paths: list[str] | None
) -> ImportReport:
    """Remove the widgets at other paths, record the import, and optimize the search."""
    report = sum(reports, ImportReport())
    others = []
    if paths is not None:
        others = transaction.read(OTHER_WIDGETS, {"paths": json.dumps(paths)})
    if others:
        remove_widgets(transaction, "import", others)
    if report.added or report.changed or others:
        after = {"widgets": report.widgets, "versions": report.versions}
        transaction.record("import", after=after)
    if report.added + report.changed >= OPTIMIZE_AFTER:
        transaction.execute(OPTIMIZE_SEARCH_INDEX)
    return ImportReport(removed_widgets=len(others))
