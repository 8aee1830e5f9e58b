"""Changes published widgets and versions, and records each change in the audit log.

Commands and the internal API call these functions, so both have the same effect.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...domain.changes import (
    ChangedVersion,
    ChangeError,
    Edited,
    LatestVersions,
    Moderated,
    WidgetName,
)
from ...domain.documents import ABOUT_KEYS, WIDGET_FIELDS, Row
from ...domain.manifests import check_new_picture
from ...domain.pictures import check_picture
from ..bundles.bundles import Bundles
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from ..read.json_sql import latest_versions
from ..read.lookup import (
    check_is_local,
    find_versions,
    get_widget,
    match_versions,
    select_versions,
)
from ..schema.derived import REMOVE_UNUSED_RANGES, folded_columns
from .about import changed_columns, edit_about, find_about_rows, picture_file, store_files

# The version columns that can be changed, and their keys in the audit log.
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
# Writing this many bytes takes up to two seconds, and installs wait for it.
MAX_WRITTEN_BYTES = 16 * 1024 * 1024
# The approximate size of a row without its long text fields.
ROW_BYTES = 200
WRITES_TOO_MUCH = (
    f"The change would write more than {MAX_WRITTEN_BYTES} bytes, and installs would have to wait "
    "for it. Name fewer versions at once, or use a shorter text."
)

NewState = Callable[[sqlite3.Row], Row]


def set_yanked(
    database: Database,
    actor: Actor,
    targets: Sequence[WidgetName],
    yanked: bool,
    reason: str | None,
    *,
    dry_run: bool = False,
) -> list[Moderated]:
    """Yank the versions or make them available again; if reason is None, keep the stored reason."""

    def new_state(row: sqlite3.Row) -> Row:
        kept = row["yanked_reason"] if reason is None else reason or None
        return {"yanked": yanked, "yanked_reason": kept}

    action = "yank" if yanked else "unyank"
    return _set_states(database, actor, action, targets, new_state, dry_run)


def set_deprecation(
    database: Database,
    actor: Actor,
    targets: Sequence[WidgetName],
    message: str | None,
    *,
    dry_run: bool = False,
) -> list[Moderated]:
    """Set the versions' deprecation message; None removes it."""
    action = "undeprecate" if message is None else "deprecate"
    state = {"deprecation_message": message}
    return _set_states(database, actor, action, targets, lambda row: state, dry_run)


def _set_states(
    database: Database,
    actor: Actor,
    action: str,
    targets: Sequence[WidgetName],
    new_state: NewState,
    dry_run: bool,
) -> list[Moderated]:
    """Write and record the new state of each version that differs; return the changes by widget."""

    def change(transaction: Transaction) -> list[Moderated]:
        selections = select_versions(transaction.read, targets)
        for each in selections:
            check_is_local(get_widget(transaction.read, each.widget))
        results: list[Moderated] = []
        rows: dict[int, Row] = {}
        written = 0
        for widget, versions, selected in selections:
            changed: list[ChangedVersion] = []
            for row in selected:
                state = new_state(row)
                before, after = version_state(row, state), version_state(state, state)
                target = widget._replace(version=row["version"])
                already = bool(before.get("yanked", before.get("deprecationMessage") is not None))
                is_changed = before != after
                changed.append({"version": str(target), "changed": is_changed, "already": already})
                if is_changed:
                    # The audit log stores both states, and the version stores the new one.
                    texts = json.dumps([before, after, after], ensure_ascii=False)
                    written += len(texts.encode()) + 2 * ROW_BYTES
                    if written > MAX_WRITTEN_BYTES:
                        raise ChangeError(WRITES_TOO_MUCH)
                    rows[row["id"]] = {**row, **state}
                    transaction.record(action, target, before=before, after=after)
            newest_first = [rows.get(row["id"], row) for row in versions]
            results.append(Moderated(versions=changed, **latest_versions(versions, newest_first)))
        if rows:
            transaction.execute_many(SET_STATE, rows.values())
        return results

    return database.transact(change, actor, dry_run=dry_run)


def version_state(row: Any, columns: Mapping[str, object]) -> Row:
    """Return a version's values in these columns, as the audit log stores them."""
    state = {key: row[column] for column, key in STATE_KEYS.items() if column in columns}
    return {key: bool(value) if key == "yanked" else value for key, value in state.items()}


COLUMNS = {field.key: field.column for field in WIDGET_FIELDS}
DESCRIPTION_KEYS = ("displayName", "description", "icon")
EDIT_WIDGET = """
UPDATE widget
SET display_name = :display_name, description = :description, icon = :icon,
    folded_name = :folded_name, folded_text = :folded_text,
    listed = :listed, is_official = :is_official
WHERE id = :id
"""


def edit_widget(
    database: Database,
    bundles: Bundles,
    actor: Actor,
    target: WidgetName,
    changes: Mapping[str, Any],
    picture: bytes | None = None,
    *,
    dry_run: bool = False,
) -> Edited:
    """Change a widget's description, listed, isOfficial and about in one transaction.

    Store a new picture's file; if the change is refused, raise ChangeError and leave no file.
    """
    if picture is not None:
        changes = {**changes, "picture": check_picture(check_new_picture(picture))}

    def change(transaction: Transaction) -> Edited:
        row = get_widget(transaction.read, target)
        if changes.keys() != {"listed"}:
            check_is_local(row)
        stored = find_about_rows(transaction, [row["id"]]).get(row["id"])
        if new_about := changed_columns(stored, changes):
            edit_about(transaction, target, stored, new_about)
        fields = {key: value for key, value in changes.items() if key not in ABOUT_KEYS}
        new = {key: value for key, value in fields.items() if row[COLUMNS[key]] != value}
        if not new:
            return {"widget": str(target), "changed": bool(new_about)}
        after = {**row, **{COLUMNS[key]: value for key, value in new.items()}}
        folded = folded_columns(after)
        transaction.execute(EDIT_WIDGET, {**after, **folded})
        if new.keys() & {*DESCRIPTION_KEYS}:
            before = {key: row[COLUMNS[key]] for key in DESCRIPTION_KEYS}
            described = {key: after[COLUMNS[key]] for key in DESCRIPTION_KEYS}
            transaction.record("describe", target, before=before, after=described)
        if "listed" in new:
            action = "relist" if new["listed"] else "unlist"
            record_listing(transaction, action, target, new["listed"])
        if "isOfficial" in new:
            official = row["is_official"]
            transaction.record(
                "official" if new["isOfficial"] else "unofficial",
                target,
                before={"isOfficial": None if official is None else bool(official)},
                after={"isOfficial": new["isOfficial"]},
            )
        return {"widget": str(target), "changed": True}

    if picture is None or dry_run:
        return database.transact(change, actor, dry_run=dry_run)
    with store_files(bundles, [picture_file(picture)]):
        return database.transact(change, actor)


def record_listing(
    transaction: Transaction, action: str, target: tuple[str, str, str | None], listed: bool
) -> None:
    """Record that a widget was listed or unlisted."""
    states = {"before": {"listed": not listed}, "after": {"listed": bool(listed)}}
    transaction.record(action, target, **states)


def delete(database: Database, actor: Actor, target: WidgetName) -> LatestVersions:
    """Delete a version, or a widget with all its versions."""

    def change(transaction: Transaction) -> LatestVersions:
        row = get_widget(transaction.read, target)
        versions = find_versions(transaction.read, target)
        if target.version is None:
            remove_widgets(transaction, "delete", [{**row, "versions": len(versions)}])
            return latest_versions(versions, [])
        removed = match_versions(versions, target)
        named = {target._replace(version=each["version"]): each for each in removed}
        remove_versions(transaction, "delete", named)
        return latest_versions(versions, [each for each in versions if each not in removed])

    return database.transact(change, actor)


# Returns the rows that remove_widgets() expects.
REMOVABLE_WIDGETS = """
SELECT id, scope, name, listed, download_count,
    (SELECT count(*) FROM version WHERE widget_id = widget.id) AS versions
FROM widget
"""
REMOVE_WIDGETS = "DELETE FROM widget WHERE id IN (SELECT value FROM json_each(:ids))"
REMOVE_VERSIONS = "DELETE FROM version WHERE id IN (SELECT value FROM json_each(:ids))"
# The next mirror run fetches and restores a copy without an ETag.
FORGET_ETAGS = """
UPDATE mirrored SET etag = NULL WHERE widget_id IN (SELECT value FROM json_each(:ids))
"""


def remove_widgets(transaction: Transaction, action: str, rows: Sequence[Any]) -> None:
    """Delete widgets with all their versions; each row contains the widget's version count."""
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
    transaction: Transaction, action: str, versions: Mapping[WidgetName, Any]
) -> None:
    """Delete the given versions; the mapping's keys are their names, and its values their rows."""
    for version, row in versions.items():
        before = {"sha256Hash": row["sha256_hash"], **version_state(row, STATE_KEYS)}
        transaction.record(action, version, before=before)
    if action != "mirror":
        widgets = {row["widget_id"] for row in versions.values()}
        transaction.execute(FORGET_ETAGS, {"ids": json.dumps([*widgets])})
    ids = [row["id"] for row in versions.values()]
    transaction.execute(REMOVE_VERSIONS, {"ids": json.dumps(ids)})
    transaction.execute(REMOVE_UNUSED_RANGES)
