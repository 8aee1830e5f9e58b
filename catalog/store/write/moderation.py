"""Changes of published widgets and versions, each with its record in audit.

Commands and the internal API call these functions, so that both have the same effect.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...documents import Row
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from ..read.json_sql import latest_version
from ..schema.derived import REMOVE_UNUSED_RANGES, folded_columns
from .lookup import (
    SelectedVersions,
    WidgetName,
    check_growth,
    find_versions,
    get_widget,
    select_versions,
)


class VersionChange(NamedTuple):
    """A version that was to be changed, and whether it had to be."""

    target: WidgetName
    is_changed: bool


class LatestChange(NamedTuple):
    """The latest version of a widget before and after a change; both may be the same."""

    widget: WidgetName
    before: str | None
    after: str | None


# What was changed, or would be, in the versions and in the latest versions of widgets.
Moderation = tuple[list[VersionChange], list[LatestChange]]


# The columns of a version that can be changed, and their keys in the record.
STATE_KEYS = {
    "yanked": "yanked",
    "yanked_reason": "yankedReason",
    "deprecation_message": "deprecationMessage",
}
SET_STATE = """
UPDATE version
SET yanked = :yanked, yanked_reason = :yanked_reason, deprecation_message = :deprecation_message
WHERE id = :id
"""


def set_yanked(
    database: Database,
    actor: Actor,
    targets: Sequence[WidgetName],
    yanked: bool,
    reason: str | None,
    *,
    dry_run: bool = False,
) -> Moderation:
    """Yank the versions or make them available again; None as the reason keeps the stored one."""

    def new_state(row: sqlite3.Row) -> Row:
        kept = row["yanked_reason"] if reason is None else reason or None
        return {"yanked": yanked, "yanked_reason": kept}

    action = "yank" if yanked else "unyank"
    return _set_states(database, actor, action, targets, new_state, reason, dry_run)


def set_deprecation(
    database: Database,
    actor: Actor,
    targets: Sequence[WidgetName],
    message: str | None,
    *,
    dry_run: bool = False,
) -> list[VersionChange]:
    """Set the warning of the versions; None removes it."""
    action = "undeprecate" if message is None else "deprecate"
    state = {"deprecation_message": message}
    changes, _ = _set_states(database, actor, action, targets, lambda row: state, message, dry_run)
    return changes


def _set_states(
    database: Database,
    actor: Actor,
    action: str,
    targets: Sequence[WidgetName],
    new_state: Callable[[sqlite3.Row], Row],
    text: str | None,
    dry_run: bool,
) -> Moderation:
    def change(transaction: Transaction) -> Moderation:
        changes: list[VersionChange] = []
        latest: list[LatestChange] = []
        selections = select_versions(transaction.read, targets)
        for selection in selections:
            check_growth(transaction.read, selection.widget, text, len(selection.selected))
        for selection in selections:
            states = {row["id"]: new_state(row) for row in selection.selected}
            changes += _change_selected(transaction, action, selection, states)
            after = [{**row, **states.get(row["id"], {})} for row in selection.versions]
            before_and_after = latest_version(selection.versions), latest_version(after)
            latest.append(LatestChange(selection.widget, *before_and_after))
        return changes, latest

    return database.transact(change, actor, dry_run=dry_run)


def _change_selected(
    transaction: Transaction, action: str, selection: SelectedVersions, states: Mapping[int, Row]
) -> list[VersionChange]:
    """Write and record the new states of the selected versions that have another one."""
    changes, rows = [], []
    for row in selection.selected:
        state = states[row["id"]]
        before, after = version_state(row, state), version_state(state, state)
        target = selection.widget._replace(version=row["version"])
        changes.append(VersionChange(target, before != after))
        if before != after:
            rows.append({**row, **state})
            transaction.record(action, target, before=before, after=after)
    if rows:
        transaction.execute_many(SET_STATE, rows)
    return changes


def version_state(row: Any, columns: Mapping[str, object]) -> Row:
    """Return some of the columns of a version that can be changed, as the record has them."""
    state = {key: row[column] for column, key in STATE_KEYS.items() if column in columns}
    return {key: bool(value) if key == "yanked" else value for key, value in state.items()}


DESCRIPTION_KEYS = {"display_name": "displayName", "description": "description", "icon": "icon"}
EDIT_WIDGET = """
UPDATE widget
SET display_name = :display_name, description = :description, icon = :icon,
    folded_name = :folded_name, folded_text = :folded_text,
    listed = :listed, is_official = :is_official
WHERE id = :id
"""


def edit_widget(database: Database, actor: Actor, target: WidgetName, changes: Row) -> bool:
    """Set columns of a widget in one transaction; return whether one of them was different.

    The columns are those of the description, listed and is_official. Raise MissingError if there is
    no such widget.
    """

    def change(transaction: Transaction) -> bool:
        row = get_widget(transaction.read, target)
        new = {column: value for column, value in changes.items() if row[column] != value}
        if not new:
            return False
        after = {**row, **new}
        # Versions without a description have that of the widget.
        check_growth(transaction.read, target, new.get("description"))
        folded = folded_columns(after["display_name"], after["description"])
        transaction.execute(EDIT_WIDGET, {**after, **folded})
        if new.keys() & DESCRIPTION_KEYS.keys():
            before = {key: row[column] for column, key in DESCRIPTION_KEYS.items()}
            described = {key: after[column] for column, key in DESCRIPTION_KEYS.items()}
            transaction.record("describe", target, before=before, after=described)
        if "listed" in new:
            action = "relist" if new["listed"] else "unlist"
            record_listing(transaction, action, target, new["listed"])
        if "is_official" in new:
            official = row["is_official"]
            transaction.record(
                "official" if new["is_official"] else "unofficial",
                target,
                before={"isOfficial": None if official is None else bool(official)},
                after={"isOfficial": new["is_official"]},
            )
        return True

    return database.transact(change, actor)


def record_listing(
    transaction: Transaction, action: str, target: tuple[str, str, str | None], listed: bool
) -> None:
    """Record that a widget was listed or unlisted."""
    states = {"before": {"listed": not listed}, "after": {"listed": bool(listed)}}
    transaction.record(action, target, **states)


def delete(database: Database, actor: Actor, target: WidgetName) -> LatestChange:
    """Delete a version, or a widget with all its versions; return the change of the latest one."""

    def change(transaction: Transaction) -> LatestChange:
        row = get_widget(transaction.read, target)
        versions = find_versions(transaction.read, target)
        latest = latest_version(versions)
        if target.version is None:
            remove_widgets(transaction, "delete", [{**row, "versions": len(versions)}])
            return LatestChange(target, latest, None)
        ((_, _, selected),) = select_versions(transaction.read, [target])
        remove_versions(transaction, "delete", target, selected)
        ids = {each["id"] for each in selected}
        after = latest_version(each for each in versions if each["id"] not in ids)
        return LatestChange(target.widget, latest, after)

    return database.transact(change, actor)


REMOVE_WIDGETS = "DELETE FROM widget WHERE id IN (SELECT value FROM json_each(:ids))"
REMOVE_VERSIONS = "DELETE FROM version WHERE id IN (SELECT value FROM json_each(:ids))"


def remove_widgets(transaction: Transaction, action: str, rows: Sequence[Any]) -> None:
    """Delete widgets with all their versions; each row also has the number of its versions."""
    for row in rows:
        before = {
            "listed": bool(row["listed"]),
            "downloadCount": row["download_count"],
            "versions": row["versions"],
        }
        transaction.record(action, (row["scope"], row["name"], None), before=before)
    transaction.execute(REMOVE_WIDGETS, {"ids": json.dumps([row["id"] for row in rows])})
    transaction.execute(REMOVE_UNUSED_RANGES)


def remove_versions(
    transaction: Transaction, action: str, widget: WidgetName, rows: Sequence[Any]
) -> None:
    """Delete versions of a widget."""
    for row in rows:
        before = {"sha256Hash": row["sha256_hash"], **version_state(row, STATE_KEYS)}
        transaction.record(action, widget._replace(version=row["version"]), before=before)
    transaction.execute(REMOVE_VERSIONS, {"ids": json.dumps([row["id"] for row in rows])})
    transaction.execute(REMOVE_UNUSED_RANGES)
