"""/api/v1/widgets/*: the public, versioned API, open to every origin."""

from flask import Blueprint, Response, abort, current_app, jsonify, request
from flask_cors import CORS

from catalog import resources, store
from catalog.conditional import revalidate
from catalog.documents import shown
from catalog.routing import catch_all, known_methods, options_or_405
from catalog.search import ParameterError, find_widgets, parse_search

PREFIX = "/api/v1/widgets/"
MAX_BODY_BYTES = 4096  # no call has a body; some clients send an empty object all the same

v1 = Blueprint("v1", __name__, url_prefix=PREFIX.rstrip("/"))
CORS(v1, send_wildcard=True, methods=["GET", "HEAD", "POST", "OPTIONS"], max_age=7200)


@v1.get("/search")
def search() -> Response:
    try:
        wanted = parse_search(request.args)
    except ParameterError as error:
        abort(400, str(error))
    with current_app.extensions["database"].read() as connection:
        return jsonify(find_widgets(connection, wanted))


WIDGET = "SELECT * FROM widget WHERE scope = :scope AND name = :name AND listed"

VERSIONS = f"""
SELECT {resources.VERSION_ENTRY_COLUMNS}
FROM version JOIN widget ON widget.id = version.widget_id
WHERE version.widget_id = :widget_id
ORDER BY published_at DESC, precedence DESC, version DESC
"""


@v1.get("/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    with current_app.extensions["database"].read() as connection:
        widget = connection.execute(WIDGET, {"scope": scope, "name": name}).fetchone()
        if widget is None:
            abort(404, no_widget(scope, name))
        rows = connection.execute(VERSIONS, {"widget_id": widget["id"]})
        versions = [resources.version_entry(row) for row in rows]
    return jsonify(
        widget=resources.widget(widget),
        versions=versions,
        latestVersion=resources.latest_version(versions),
    )


@v1.post("/<scope>/<name>")
def count_install(scope: str, name: str) -> Response:
    (counted,) = current_app.extensions["database"].write(store.count_install(scope, name))
    if not counted:
        abort(404, no_widget(scope, name))
    return jsonify(success=True)


def no_widget(scope: str, name: str) -> str:
    return f"There is no widget {shown(f'{scope}/{name}')}."


def unmatched() -> Response:
    methods = known_methods(request.path)
    if methods or request.method == "OPTIONS":  # a preflight must pass to let the 404 be read
        return options_or_405(methods)
    abort(404)


catch_all(v1, PREFIX, unmatched)


@v1.before_request
def refuse_large_body() -> None:
    if (request.content_length or 0) > MAX_BODY_BYTES:
        abort(413, f"No request here needs a body; at most {MAX_BODY_BYTES} bytes are accepted.")


@v1.after_request
def allow_revalidation(response: Response) -> Response:
    """Let clients keep an answer and ask whether it still holds, since counts change often."""
    if request.method in ("GET", "HEAD") and response.status_code == 200:
        response.cache_control.no_cache = True
        revalidate(response)
    return response
