"""Changes of published widgets and versions, each with its record in audit.

Commands and the internal API call these functions, so that both have the same effect.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from catalog.documents import Row
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import Statement
from catalog.store.read import json_sql
from catalog.store.write import writes
from catalog.store.write.audit import MAX_ATTEMPTS, RECORD, Actor, record
from catalog.store.write.lookup import ConflictError, WidgetName, get_widget


class VersionChange(NamedTuple):
    """A version that was to be changed, and whether it had to be."""

    target: WidgetName
    is_changed: bool


class LatestChange(NamedTuple):
    """The latest version of a widget before and after a change; both may be the same."""

    widget: WidgetName
    before: str | None
    after: str | None


RECORD_YANK = f"""{RECORD}
    scope, name, version,
    json_object('yanked', json(iif(yanked, 'true', 'false')), 'yankedReason', yanked_reason),
    json_object('yanked', json(iif(:yanked, 'true', 'false')), 'yankedReason', {writes.NEW_REASON})
FROM json_each(:ids) AS given
    CROSS JOIN version ON version.id = given.value CROSS JOIN widget ON widget.id = widget_id
WHERE (yanked, yanked_reason) IS NOT (:yanked, {writes.NEW_REASON})
"""


def set_yanked(
    database: Database,
    actor: Actor,
    rows: Sequence[sqlite3.Row],
    yanked: bool,
    reason: str | None,
    *,
    dry_run: bool = False,
) -> list[VersionChange]:
    """Yank the versions or make them available again; None as the reason keeps the stored one."""
    ids, keeps_reason = [row["id"] for row in rows], reason is None
    (change,) = writes.set_yanked(ids, yanked, reason or None, keeps_reason=keeps_reason)
    if not dry_run:
        entry = record(RECORD_YANK, actor, "yank" if yanked else "unyank", **change[1])
        database.write([entry, change])

    def is_changed(row: sqlite3.Row) -> bool:
        has_reason = keeps_reason or row["yanked_reason"] == (reason or None)
        return row["yanked"] != yanked or not has_reason

    return [VersionChange(_version_name(row), is_changed(row)) for row in rows]


def _version_name(row: sqlite3.Row) -> WidgetName:
    return WidgetName(row["scope"], row["name"], row["version"])


def latest_after(
    rows: Sequence[sqlite3.Row], selected: Sequence[sqlite3.Row], yanked: bool
) -> str | None:
    """Return the latest of a widget's versions once the selected ones are yanked, or not."""
    ids = {row["id"] for row in selected}
    planned = ({**row, "yanked": yanked if row["id"] in ids else row["yanked"]} for row in rows)
    return json_sql.latest_version(planned)


RECORD_DEPRECATION = f"""{RECORD}
    scope, name, version,
    json_object('deprecationMessage', deprecation_message),
    json_object('deprecationMessage', :message)
FROM json_each(:ids) AS given
    CROSS JOIN version ON version.id = given.value CROSS JOIN widget ON widget.id = widget_id
WHERE deprecation_message IS NOT :message
"""


def set_deprecation(
    database: Database,
    actor: Actor,
    rows: Sequence[sqlite3.Row],
    message: str | None,
    *,
    dry_run: bool = False,
) -> list[VersionChange]:
    """Set the warning of the versions; None removes it."""
    (change,) = writes.set_deprecation([row["id"] for row in rows], message)
    if not dry_run:
        action = "undeprecate" if message is None else "deprecate"
        database.write([record(RECORD_DEPRECATION, actor, action, **change[1]), change])
    return [
        VersionChange(_version_name(row), row["deprecation_message"] != message) for row in rows
    ]


RECORD_LISTING = f"""{RECORD}
    scope, name, NULL,
    json_object('listed', json(iif(listed, 'true', 'false'))),
    json_object('listed', json(iif(:listed, 'true', 'false')))
FROM widget WHERE id = :id AND listed IS NOT :listed
"""


def listing_statements(actor: Actor, widget_id: int, listed: bool) -> list[Statement]:
    """List or unlist a widget, and record it."""
    values = {"id": widget_id, "listed": listed}
    return [
        record(RECORD_LISTING, actor, "relist" if listed else "unlist", **values),
        *writes.set_listed(widget_id, listed),
    ]


RECORD_OFFICIAL = f"""{RECORD}
    scope, name, NULL,
    json_object('isOfficial', json(CASE is_official WHEN 1 THEN 'true' WHEN 0 THEN 'false' END)),
    json_object('isOfficial', json(iif(:official, 'true', 'false')))
FROM widget WHERE id = :id AND is_official IS NOT :official
"""


def official_statements(actor: Actor, widget_id: int, official: bool) -> list[Statement]:
    """Mark a widget as official or not, and record it."""
    values = {"id": widget_id, "official": official}
    return [
        record(RECORD_OFFICIAL, actor, "official" if official else "unofficial", **values),
        *writes.set_official(widget_id, official),
    ]


RECORD_DESCRIPTION = f"""{RECORD}
    scope, name, NULL,
    json_object('displayName', display_name, 'description', description, 'icon', icon),
    json_object('displayName', :display_name, 'description', :description, 'icon', :icon)
FROM widget
WHERE id = :id
  AND (display_name, description, icon) IS (:old_display_name, :old_description, :old_icon)
"""
DESCRIPTION_COLUMNS = ("display_name", "description", "icon")


def description_statements(actor: Actor, row: sqlite3.Row, texts: Row) -> list[Statement]:
    """Set columns of the description, if they are still as in the row, and record it."""
    before = {key: row[key] for key in DESCRIPTION_COLUMNS}
    after = before | texts
    if after == before:
        return []
    statements = writes.describe(row["id"], before, after)
    ((_, values),) = statements
    return [record(RECORD_DESCRIPTION, actor, "describe", **values), *statements]


def edit_widget(database: Database, actor: Actor, target: WidgetName, changes: Row) -> bool:
    """Set columns of a widget in one transaction; return whether one of them was different.

    The columns are those of the description, listed and is_official. Raise MissingError if there is
    no such widget, ConflictError if other processes change it again and again.
    """
    texts = {key: value for key, value in changes.items() if key in DESCRIPTION_COLUMNS}
    is_changed = False
    # If another process has changed the description since the row was read, the write changes
    # nothing of it. Then read again, so that the change of the other process is kept.
    for _ in range(MAX_ATTEMPTS):
        row = get_widget(database, target)
        description = description_statements(actor, row, texts)
        statements = list(description)
        if "listed" in changes:
            statements += listing_statements(actor, row["id"], changes["listed"])
        if "is_official" in changes:
            statements += official_statements(actor, row["id"], changes["is_official"])
        counts = database.write(statements) if statements else []
        is_changed = is_changed or any(counts)
        if not description or counts[0]:
            return is_changed
    raise ConflictError(f"{target} was changed at the same time; try again.")


DELETED_WIDGET_STATE = """json_object(
    'listed', json(iif(listed, 'true', 'false')), 'downloadCount', download_count,
    'versions', (SELECT count(*) FROM version WHERE widget_id = widget.id)
)"""
RECORD_DELETED_WIDGET = f"""{RECORD} scope, name, NULL, {DELETED_WIDGET_STATE}, NULL
FROM widget WHERE id = :id
"""


def delete_widget(database: Database, actor: Actor, row: sqlite3.Row) -> None:
    """Delete a widget with all its versions."""
    entry = record(RECORD_DELETED_WIDGET, actor, "delete", id=row["id"])
    database.write([entry, *writes.delete_widget(row["id"])])


DELETED_VERSION_STATE = """json_object(
    'sha256Hash', sha256_hash, 'yanked', json(iif(yanked, 'true', 'false')),
    'yankedReason', yanked_reason, 'deprecationMessage', deprecation_message
)"""
RECORD_DELETED_VERSION = f"""{RECORD} scope, name, version, {DELETED_VERSION_STATE}, NULL
FROM version JOIN widget ON widget.id = widget_id WHERE version.id = :id
"""


def delete_version(database: Database, actor: Actor, row: sqlite3.Row) -> None:
    """Delete one version."""
    entry = record(RECORD_DELETED_VERSION, actor, "delete", id=row["id"])
    database.write([entry, *writes.delete_version(row["id"])])
