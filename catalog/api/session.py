"""Internal paths that show the holder of a token its rights, and the record of changes."""

from flask import Response, abort, jsonify, request

from ..rights import ADMIN
from ..semver_ranges import MAX_SAFE_INTEGER
from ..store.connection.sqlite import WouldBlock
from ..store.write.audit import read_entries
from ..store.write.tokens import Token, describe_token
from ..text import quoted
from ..validators import check_timestamp
from .authentication import forbid, needs
from .internal import database, internal

AUDIT_LIMIT = 100


@internal.get("/session")
@needs(None)
def show_session(token: Token) -> Response:
    """Respond with who the token is, its rights and its expiry."""
    return jsonify(describe_token(token))


@internal.get("/audit")
@needs(None)
def show_audit(token: Token) -> Response:
    """Respond with the record of changes in the scopes of the token, the newest first."""
    # The texts of a hundred entries may have megabytes.
    if database().deadline.on_io_thread:
        raise WouldBlock
    parameters = request.args
    try:
        since, widget = parameters.get("since"), parameters.get("widget")
        scope, name = widget.split("/") if widget else ("", "")
        options = {
            "limit": min(parse_position(parameters.get("limit", str(AUDIT_LIMIT))), AUDIT_LIMIT),
            "before": parse_position(parameters.get("before", str(MAX_SAFE_INTEGER))),
        }
        since = check_timestamp(since) if since else ""
    except ValueError:
        abort(
            400,
            "widget must be scope/name, since an ISO 8601 time, limit and before whole numbers "
            "from 1.",
        )
    scopes = None if ADMIN in token.permissions else token.scopes
    if widget and scopes is not None and scope not in scopes:
        forbid(f"The token {token.name} is not for the scope {quoted(scope)}.")
    with database().read() as connection:
        names = (scope, name) if widget else None
        entries = read_entries(connection, names, scopes, since=since, **options)
    return jsonify(entries=entries)


def parse_position(text: str) -> int:
    """Return a whole number from 1; raise ValueError."""
    # int() accepts more, such as 1_0.
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_SAFE_INTEGER):
        raise ValueError
    return int(text)
