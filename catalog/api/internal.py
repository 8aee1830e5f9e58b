"""All other /api/* paths are internal: 401 without a token, whether or not the path exists.

With a valid token, these publish and moderate: `versions`, `widgets` and `session` add the routes.
They are for the command line of this release, have no CORS header and may change without notice.
"""

from typing import cast

from flask import Blueprint, Response, abort, current_app, g, request
from flask.globals import request_ctx
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from ..store.connection.database import Database
from ..text import quoted
from .authentication import authenticate

internal = Blueprint("internal", __name__, url_prefix="/api")
WIDGET = "/widgets/<scope>/<widget_name:name>"


@internal.before_app_request
def require_token() -> Response | None:
    """Respond 401 to a request without a valid token, whether or not its path exists."""
    path = request.path
    if not path.startswith("/api/") or path.startswith("/api/v1/"):
        return None
    if request.routing_exception is None and request.blueprint != internal.name:
        return None
    # On a public path, a wrong method is 405 and a trailing slash 404.
    if request.routing_exception is not None and is_public(path.removesuffix("/")):
        return None
    return authenticate()


def is_public(path: str) -> bool:
    """Return whether the path is one of the public API, which all have GET."""
    adapter = cast(MapAdapter, request_ctx.url_adapter)
    try:
        rule, _ = adapter.match(path, "GET", return_rule=True)
    except HTTPException:
        return False
    return not rule.endpoint.startswith(f"{internal.name}.")


@internal.after_app_request
def forbid_storing(response: Response) -> Response:
    """Keep caches from storing what was sent to the holder of a token."""
    if "token" in g:
        response.headers["Cache-Control"] = "no-store"
    return response


def database() -> Database:
    """Return the database of the catalog."""
    catalog: Database = current_app.extensions["database"]
    return catalog


def is_dry_run() -> bool:
    """Return whether the request has dryRun=true; respond 400 to a value that is no boolean."""
    value = request.args.get("dryRun", "false").lower()
    if value not in ("true", "false"):
        abort(400, f"dryRun must be true or false, not {quoted(value)}.")
    return value == "true"
