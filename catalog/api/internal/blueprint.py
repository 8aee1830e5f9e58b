"""The internal paths: every path below /api/ that is not public.

Without a token, every internal path responds 401, even a path that does not exist. The only
exception is POST /api/session, which exchanges an id token for a token. With a valid token, the
routes in `versions`, `widgets` and `session` publish and moderate. These routes are only for this
release's commands, send no CORS headers and may change without notice.
"""

from typing import cast

from flask import Blueprint, Response, current_app, g, request
from flask.globals import request_ctx
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from ...domain.request_kinds import SESSION_PATH
from ...store.connection.database import Database
from .authentication import authenticate

internal = Blueprint("internal", __name__, url_prefix="/api")
WIDGET = "/widgets/<scope>/<widget_name:name>"


def require_token() -> Response | None:
    """Respond 401 to a request without a valid token, even if its path does not exist."""
    if request.method == "POST" and request.path == SESSION_PATH:
        # Because g.token is set, forbid_storing() also protects the new token in this response.
        g.token = None
        return None
    if request.routing_exception is None and request.blueprint != internal.name:
        return None
    # On a public path, a wrong method gets 405 and a trailing slash 404.
    if request.routing_exception is not None and is_public(request.path.removesuffix("/")):
        return None
    return authenticate()


def is_public(path: str) -> bool:
    """Return whether the path is public; every public path supports GET."""
    adapter = cast(MapAdapter, request_ctx.url_adapter)
    try:
        rule, _ = adapter.match(path, "GET", return_rule=True)
    except HTTPException:
        return False
    return not rule.endpoint.startswith(f"{internal.name}.")


@internal.after_app_request
def forbid_storing(response: Response) -> Response:
    """Tell caches not to store new tokens or responses to requests with a token."""
    if "token" in g:
        response.headers["Cache-Control"] = "no-store"
    return response


def database() -> Database:
    """Return the catalog's database."""
    catalog: Database = current_app.extensions["database"]
    return catalog
