"""Requests of the internal API that change what is published."""

from collections.abc import Callable
from typing import Any

from flask import Response, abort, jsonify

from ..documents import Json, Row
from ..rights import ADMIN, DESCRIBE, YANK
from ..store.write import moderation
from ..store.write.lookup import WidgetName
from ..store.write.tokens import Token
from ..text import NotAllowedError
from ..validators import check_boolean, check_nonempty_text, check_text
from .authentication import forbid, needs
from .bodies import read_object
from .internal import WIDGET, database, internal, is_dry_run


@internal.post(f"{WIDGET}/<version>/<any(yank, unyank):action>")
@needs(YANK)
def yank(token: Token, scope: str, name: str, version: str, action: str) -> Response:
    """Yank versions, or make them available again."""
    yanked = action == "yank"
    reason = optional_text(read_object({"reason"} if yanked else set()), "reason")
    targets = named_versions(scope, name, version)
    changes, (latest,) = moderation.set_yanked(
        database(), token.actor, targets, yanked, reason if yanked else "", dry_run=is_dry_run()
    )
    return jsonify(
        versions=[change_json(change) for change in changes],
        previousLatestVersion=latest.before,
        latestVersion=latest.after,
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
    targets = named_versions(scope, name, version)
    changes = moderation.set_deprecation(
        database(), token.actor, targets, message, dry_run=is_dry_run()
    )
    return jsonify(versions=[change_json(change) for change in changes])


def named_versions(scope: str, name: str, text: str) -> list[WidgetName]:
    """Return the versions or ranges in the text, which has commas between them."""
    return [WidgetName(scope, name, each) for each in text.split(",")]


def change_json(change: moderation.VersionChange) -> Json:
    return {"version": str(change.target), "changed": change.is_changed}


def optional_text(body: Json, key: str) -> str | None:
    """Return a text of the body; respond 400 if it is none."""
    try:
        return None if body.get(key) is None else check_text(body[key])
    except NotAllowedError as error:
        abort(400, f"{error.about(key, body[key])}.")


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
        except NotAllowedError as error:
            abort(400, f"{error.about(key, value)}.")
    if is_dry_run():
        abort(400, "dryRun is for PUT and POST.")
    if not changes:
        abort(400, f"The body must have one of {', '.join(WIDGET_KEYS)}.")
    if "is_official" in changes and ADMIN not in token.permissions:
        forbid(f"The token {token.name} needs the permission admin for isOfficial.")
    target = WidgetName(scope, name)
    changed = moderation.edit_widget(database(), token.actor, target, changes)
    return jsonify(widget=str(target), changed=changed)
