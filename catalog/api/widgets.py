"""Internal paths of widgets: what people read about them, whether they are listed, official."""

from flask import Response, abort, jsonify

from ..changes import WidgetName
from ..documents import ABOUT_FIELDS, ABOUT_KEYS, WIDGET_FIELDS, Row
from ..pictures import MAX_PICTURE_BYTES
from ..rights import ADMIN, DESCRIBE
from ..store.write.moderation import edit_widget, set_picture
from ..store.write.tokens import Token
from ..text import NotAllowedError
from .authentication import forbid, needs
from .bodies import check_body_accepted, read_limited, read_object
from .internal import WIDGET, database, internal, is_dry_run
from .versions import service_bundles

EDITABLE = ("displayName", "description", "icon", "listed", "isOfficial", *ABOUT_KEYS)
CHECKS = {field.key: field.check for field in WIDGET_FIELDS + ABOUT_FIELDS if field.key in EDITABLE}
# An empty one is null.
NULLABLE = ("description", "icon", *ABOUT_KEYS)


@internal.patch(WIDGET)
@needs(DESCRIBE)
def edit(token: Token, scope: str, name: str) -> Response:
    """Change the description of a widget, list or unlist it, mark it as official or not."""
    changes: Row = {}
    for key, value in read_object({*EDITABLE}).items():
        try:
            is_null = key in NULLABLE and value in (None, "")
            changes[key] = None if is_null else CHECKS[key](value)
        except NotAllowedError as error:
            abort(400, f"{error.about(key, value)}.")
    if changes.get("picture"):
        abort(400, "A picture is sent with PUT; here it can only be null, which removes it.")
    if is_dry_run():
        abort(400, "dryRun is for PUT and POST.")
    if not changes:
        abort(400, f"The body must have one of {', '.join(EDITABLE)}.")
    if "isOfficial" in changes and ADMIN not in token.permissions:
        forbid(f"The token {token.name} needs the permission admin for isOfficial.")
    return jsonify(edit_widget(database(), token.actor, WidgetName(scope, name), changes))


@internal.put(f"{WIDGET}/picture")
@needs(DESCRIBE)
def put_picture(token: Token, scope: str, name: str) -> Response:
    """Set the picture of a widget to the body."""
    check_body_accepted(MAX_PICTURE_BYTES, "a picture")
    content = read_limited(MAX_PICTURE_BYTES)
    target = WidgetName(scope, name)
    return jsonify(set_picture(database(), service_bundles(), token.actor, target, content))
