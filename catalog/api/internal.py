"""All other /api/* paths are internal: 401, whether or not the path exists."""

from flask import Blueprint, Response, abort, jsonify, request

from catalog.routing import catch_all, known_methods, options_or_405

internal = Blueprint("internal", __name__)


def unmatched_internal() -> Response:
    """Respond 401; but 405 on a public path, and 404 under /api/v1/ or for a trailing slash."""
    methods = known_methods(request.path)
    if methods:
        return options_or_405(methods)
    has_extra_slash = request.path.endswith("/") and known_methods(request.path[:-1])
    if has_extra_slash or request.path.startswith("/api/v1/"):
        abort(404)
    response = jsonify(error="This path is internal and needs a session.")
    response.status_code = 401
    response.headers["WWW-Authenticate"] = 'Session realm="internal"'
    return response


catch_all(internal, "/api/", unmatched_internal)
