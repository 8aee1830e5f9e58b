"""Every other /api/* path: it needs a session, and says no more than that."""

from flask import Blueprint, Response, abort, jsonify, request

from catalog.routing import catch_all, known_methods, options_or_405

internal = Blueprint("internal", __name__)


def unmatched() -> Response:
    methods = known_methods(request.path)
    if methods:
        return options_or_405(methods)
    slipped = request.path.endswith("/") and known_methods(request.path[:-1])
    if slipped or request.path.startswith("/api/v1/"):
        abort(404)
    response = jsonify(error="This path is internal and needs a session.")
    response.status_code = 401
    response.headers["WWW-Authenticate"] = 'Session realm="internal"'
    return response


catch_all(internal, "/api/", unmatched)
