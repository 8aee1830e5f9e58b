"""Internal paths of widgets: their description, and whether they are listed and official."""

from flask import Response, abort, jsonify

from ..changes import WidgetName
from ..documents import WIDGET_FIELDS, Row
from ..rights import ADMIN, DESCRIBE
from ..store.write.moderation import edit_widget
from ..store.write.tokens import Token
from ..text import quoted
from .authentication import forbid, needs
from .bodies import read_object
from .internal import WIDGET, database, internal, is_dry_run

EDITABLE = ("displayName", "description", "icon", "listed", "isOfficial")
CHECKS = {field.key: field.check for field in WIDGET_FIELDS if field.key in EDITABLE}
# An empty one is null.
NULLABLE = ("description", "icon")


@internal.patch(WIDGET)
@needs(DESCRIBE)
def edit(token: Token, scope: str, name: str) -> Response:
    """Change the description of a widget, list or unlist it, mark it as official or not."""
    changes: Row = {}
    for key, value in read_object({*EDITABLE}).items():
        try:
            is_null = key in NULLABLE and value in (None, "")
            changes[key] = None if is_null else CHECKS[key](value)
        except ValueError as allowed:
            abort(400, f"{key} must be {allowed}, not {quoted(value)}.")
    if is_dry_run():
        abort(400, "dryRun is for PUT and POST.")
    if not changes:
        abort(400, f"The body must have one of {', '.join(EDITABLE)}.")
    if "isOfficial" in changes and ADMIN not in token.permissions:
        forbid(f"The token {token.name} needs the permission admin for isOfficial.")
    return jsonify(edit_widget(database(), token.actor, WidgetName(scope, name), changes))
