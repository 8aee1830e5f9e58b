"""Internal routes that edit a widget's description, list or unlist it, and mark it official."""

from flask import Response, abort, g, jsonify

from ...domain.changes import WidgetName
from ...domain.documents import ABOUT_FIELDS, ABOUT_KEYS, WIDGET_FIELDS, Row
from ...domain.messages import NotAllowedError
from ...domain.pictures import MAX_PICTURE_BYTES
from ...store.read.tokens import Token
from ...store.write.moderation import edit_widget
from .authentication import authorized, check_official
from .blueprint import WIDGET, database, internal
from .bodies import check_body_accepted, read_changes, read_limited
from .versions import service_bundles

EDITABLE = ("displayName", "description", "icon", "listed", "isOfficial", *ABOUT_KEYS)
CHECKS = {field.key: field.check for field in WIDGET_FIELDS + ABOUT_FIELDS if field.key in EDITABLE}
# Fields whose empty value is stored as null.
NULLABLE = ("description", "icon", *ABOUT_KEYS)


@internal.patch(WIDGET)
@authorized
def edit(token: Token, scope: str, name: str) -> Response:
    """Change the fields that describe a widget, and whether it is listed or official."""
    body, picture = read_changes({*EDITABLE})
    changes: Row = {}
    for key, value in body.items():
        try:
            is_null = key in NULLABLE and value in (None, "")
            changes[key] = None if is_null else CHECKS[key](value)
        except NotAllowedError as error:
            abort(400, f"{error.about(key, value)}.")
    if changes.get("picture") or (picture is not None and "picture" in changes):
        abort(400, "Send the picture as a file in the picture part, or picture: null to remove it.")
    if not changes and picture is None:
        abort(400, f"The body must have at least one of {', '.join(EDITABLE)}.")
    if "isOfficial" in changes:
        check_official(token)
    return change_widget(token, WidgetName(scope, name), changes, picture)


def change_widget(
    token: Token, widget: WidgetName, changes: Row, picture: bytes | None
) -> Response:
    """Change a widget in one transaction, and respond with the changes."""
    files = database(), service_bundles()
    return jsonify(edit_widget(*files, token.actor, widget, changes, picture, dry_run=g.dry_run))


@internal.put(f"{WIDGET}/picture")
@authorized
def put_picture(token: Token, scope: str, name: str) -> Response:
    """Use the request body as the widget's picture."""
    check_body_accepted(MAX_PICTURE_BYTES, "a picture")
    return change_widget(token, WidgetName(scope, name), {}, read_limited(MAX_PICTURE_BYTES))
