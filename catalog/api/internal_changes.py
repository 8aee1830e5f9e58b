"""Requests of the internal API that change what is published."""

import sqlite3
from collections.abc import Callable
from typing import Any

from flask import Response, abort, jsonify

from catalog.api.authentication import forbid, needs
from catalog.api.bodies import read_object
from catalog.api.internal import WIDGET, database, internal, is_dry_run
from catalog.documents import Json, Row
from catalog.store.write import moderation
from catalog.store.write.lookup import (
    WidgetName,
    find_latest,
    find_versions,
    get_widget,
    select_versions,
)
from catalog.store.write.moderation import latest_after
from catalog.store.write.tokens import ADMIN, DESCRIBE, YANK, Token
from catalog.text import quoted
from catalog.validators import check_boolean, check_nonempty_text, check_text


@internal.post(f"{WIDGET}/<version>/<any(yank, unyank):action>")
@needs(YANK)
def yank(token: Token, scope: str, name: str, version: str, action: str) -> Response:
    """Yank versions, or make them available again."""
    yanked = action == "yank"
    reason = optional_text(read_object({"reason"} if yanked else set()), "reason")
    target = WidgetName(scope, name)
    rows = find_versions(database(), target)
    selected = named_versions(target, version)
    changes = moderation.set_yanked(
        database(), token.actor, selected, yanked, reason if yanked else "", dry_run=is_dry_run()
    )
    planned = latest_after(rows, selected, yanked)
    return jsonify(
        versions=[change_json(change) for change in changes],
        previousLatestVersion=latest_after(rows, [], yanked),
        latestVersion=planned if is_dry_run() else find_latest(database(), target),
    )


@internal.post(f"{WIDGET}/<version>/<any(deprecate, undeprecate):action>")
@needs(YANK)
def deprecate(token: Token, scope: str, name: str, version: str, action: str) -> Response:
    """Set or remove the warning of versions."""
    message = None
    if action == "deprecate":
        message = optional_text(read_object({"message"}), "message")
        if not message:
            abort(400, "The body must have a message that is not empty.")
    else:
        read_object(set())
    rows = named_versions(WidgetName(scope, name), version)
    changes = moderation.set_deprecation(
        database(), token.actor, rows, message, dry_run=is_dry_run()
    )
    return jsonify(versions=[change_json(change) for change in changes])


def named_versions(widget: WidgetName, text: str) -> list[sqlite3.Row]:
    """Return the rows of the versions or ranges in the text, which has commas between them."""
    get_widget(database(), widget)
    targets = [widget._replace(version=each) for each in text.split(",")]
    return select_versions(database(), targets)


def change_json(change: moderation.VersionChange) -> Json:
    return {"version": str(change.target), "changed": change.is_changed}


def optional_text(body: Json, key: str) -> str | None:
    """Return a text of the body; respond 400 if it is none."""
    try:
        return None if body.get(key) is None else check_text(body[key])
    except ValueError as allowed:
        abort(400, f"{key} must be {allowed}.")


def nullable_text(value: Any) -> str | None:
    """Text, or null; an empty one is null."""
    return None if value is None else check_text(value) or None


# The column of each key, and what validates its value.
WIDGET_KEYS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "displayName": ("display_name", check_nonempty_text),
    "description": ("description", nullable_text),
    "icon": ("icon", nullable_text),
    "listed": ("listed", check_boolean),
    "isOfficial": ("is_official", check_boolean),
}


@internal.patch(WIDGET)
@needs(DESCRIBE)
def edit(token: Token, scope: str, name: str) -> Response:
    """Change the description of a widget, list or unlist it, mark it as official or not."""
    changes: Row = {}
    for key, value in read_object(set(WIDGET_KEYS)).items():
        column, check = WIDGET_KEYS[key]
        try:
            changes[column] = check(value)
        except ValueError as allowed:
            abort(400, f"{key} must be {allowed}, not {quoted(value)}.")
    if is_dry_run():
        abort(400, "dryRun is for PUT and POST.")
    if not changes:
        abort(400, f"The body must have one of {', '.join(WIDGET_KEYS)}.")
    if "is_official" in changes and ADMIN not in token.permissions:
        forbid(f"The token {token.name} needs the permission admin for isOfficial.")
    target = WidgetName(scope, name)
    changed = moderation.edit_widget(database(), token.actor, target, changes)
    return jsonify(widget=str(target), changed=changed)
