"""Internal paths that show a token's permissions and the audit log."""

from flask import Response, abort, jsonify, request

from ...domain.semver_ranges import MAX_SAFE_INTEGER
from ...domain.validators import check_timestamp
from ...store.connection.sqlite import WouldBlock
from ...store.read.audit import read_entries
from ...store.read.tokens import Token, describe_token
from .authentication import authorized
from .blueprint import database, internal

AUDIT_LIMIT = 100


@internal.get("/session")
@authorized
def show_session(token: Token) -> Response:
    """Respond with the token's name, scopes, permissions and expiry."""
    return jsonify(describe_token(token))


@internal.get("/audit")
@authorized
def show_audit(token: Token) -> Response:
    """Respond with the audit log for the widgets that the token may access, newest first."""
    # Do not block the I/O thread: a hundred entries can contain megabytes of text.
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
            "widget must be scope/name, since must be an ISO 8601 time, and limit and before "
            "must be positive whole numbers.",
        )
    if widget and (missing := token.access.find_missing_widget(scope, name)):
        abort(403, f"The {token.title} {missing}.")
    with database().read() as connection:
        names = (scope, name) if widget else None
        entries = read_entries(connection, names, token.access, since=since, **options)
    return jsonify(entries=entries)


def parse_position(text: str) -> int:
    """Return a positive integer; raise ValueError for any other string."""
    # int() also accepts other forms, such as 1_0.
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_SAFE_INTEGER):
        raise ValueError
    return int(text)
