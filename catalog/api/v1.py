"""/api/v1/widgets/*: the public, versioned API with CORS for every origin.

Each GET hands respond() a cache key and two functions: revalidate() decides whether a cached
response is still valid, render() runs the SQL that writes the JSON. See response_cache.py.
"""

import json
from pathlib import Path
from typing import IO, cast

from flask import Blueprint, Response, abort, current_app, request, send_file
from flask_cors import CORS
from werkzeug.exceptions import RequestedRangeNotSatisfiable
from werkzeug.http import parse_date
from werkzeug.wsgi import wrap_file

from catalog import V1_PREFIX
from catalog.api.byte_ranges import FilePart, parse_range
from catalog.api.cached_response import etag_of
from catalog.api.response_cache import RenderResult, respond
from catalog.routing import catch_all, known_methods, options_or_405, public_url
from catalog.store.bundles import Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import Connection
from catalog.store.read.changes import ChangesQuery, find_changes, parse_changes, revalidate_changes
from catalog.store.read.detail import (
    LATEST,
    find_detail,
    find_version,
    revalidate_content,
    revalidate_detail,
)
from catalog.store.read.search import find_widgets, revalidate_search
from catalog.store.read.search_params import (
    ParameterError,
    SearchQuery,
    parse_compat_sdk,
    parse_search,
)
from catalog.store.read.updates import UpdatesQuery, find_updates, parse_updates
from catalog.text import quoted

# flask-cors adds this header unless it is there already, which saves a tenth of a hot request.
CORS_HEADERS = {"Access-Control-Allow-Origin": "*"}
# Clients may cache a response, but must revalidate it each time: counts change.
READ_HEADERS = {"Cache-Control": "no-cache", **CORS_HEADERS}
# The longest max-age in use.
YEAR = 31_536_000  # seconds
NO_SUCH_HISTORY = (
    "The token in since does not belong to the history of this catalog, which was restored or "
    "replaced in the meantime; start again without since."
)

v1 = Blueprint("v1", __name__, url_prefix=V1_PREFIX.rstrip("/"))
CORS(v1, send_wildcard=True, methods=["GET", "HEAD", "POST", "OPTIONS"], max_age=7200)


@v1.before_request
def limit_body() -> None:
    """Respond 413 to a large body. No request needs a body, but some clients send an empty one."""
    if "CONTENT_LENGTH" not in request.environ:
        return
    limit = current_app.config["MAX_BODY_BYTES"]
    if (request.content_length or 0) > limit:
        abort(413, f"No request here needs a body; at most {limit} bytes are accepted.")


@v1.get("/search")
def search() -> Response:
    try:
        query = parse_search(request.args.to_dict())
    except ParameterError as error:
        abort(400, str(error))
    return respond(
        query,
        revalidate=lambda connection, revision: revalidate_search(connection, query, revision),
        render=lambda connection: render_search(connection, query),
        headers=READ_HEADERS,
    )


def render_search(connection: Connection, query: SearchQuery) -> RenderResult:
    revision, body = find_widgets(connection, query)
    return revision, (body,)


@v1.get("/changes")
def changes() -> Response:
    try:
        query = parse_changes(request.args.to_dict())
    except ParameterError as error:
        abort(400, str(error))
    # The ETag of a detail with held bundles depends on it.
    url = public_url()
    return respond(
        ("changes", query, url),
        revalidate=revalidate_changes,
        render=lambda connection: render_changes(connection, query, url),
        headers=READ_HEADERS,
    )


def render_changes(connection: Connection, query: ChangesQuery, url: str) -> RenderResult:
    found = find_changes(connection, query, lambda detail: f'"{etag_of(detail, url)}"')
    if found is None:
        abort(410, NO_SUCH_HISTORY)
    revision, page = found
    text = json.dumps(page, ensure_ascii=False, separators=(",", ":"))
    return revision, (f"{text}\n".encode(),)


@v1.get("/updates")
def updates() -> Response:
    try:
        query = parse_updates(request.args.get("compatSdk"), request.args.getlist("installed"))
    except ParameterError as error:
        abort(400, str(error))
    return respond(
        query,
        revalidate=revalidate_content,
        render=lambda connection: render_updates(connection, query),
        headers=READ_HEADERS,
    )


def render_updates(connection: Connection, query: UpdatesQuery) -> RenderResult:
    revision, body = find_updates(connection, query)
    return revision, (body,)


@v1.get("/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    sdk = requested_sdk()
    return respond(
        ("detail", scope, name, sdk),
        revalidate=lambda connection, revision: revalidate_detail(
            connection, scope, name, revision
        ),
        render=lambda connection: render_detail(connection, scope, name, sdk),
        headers=READ_HEADERS,
    )


def requested_sdk() -> str | None:
    """Return compatSdk; respond 400 if it is invalid."""
    # Each use of a Flask proxy costs 2 µs, and most requests have no query.
    if not request.query_string:
        return None
    try:
        return parse_compat_sdk(request.args.get("compatSdk"))
    except ParameterError as error:
        abort(400, str(error))


def render_detail(connection: Connection, scope: str, name: str, sdk: str | None) -> RenderResult:
    result = find_detail(connection, scope, name, sdk)
    if result is None:
        abort(404, no_widget(scope, name))
    revision, body = result
    return revision, (body,)


@v1.post("/<scope>/<name>")
def install(scope: str, name: str) -> Response:
    is_found = current_app.extensions["database"].count_install(scope, name)
    if not is_found:
        abort(404, no_widget(scope, name))
    return Response('{"success":true}\n', headers=CORS_HEADERS, mimetype="application/json")


def no_widget(scope: str, name: str) -> str:
    return f"There is no widget {quoted(f'{scope}/{name}')}."


@v1.get("/<scope>/<name>/<version>")
def one_version(scope: str, name: str, version: str) -> Response:
    sdk = requested_sdk()
    return respond(
        ("version", scope, name, version, sdk),
        revalidate=revalidate_content,
        render=lambda connection: render_version(connection, scope, name, version, sdk),
        headers=READ_HEADERS,
    )


def render_version(
    connection: Connection, scope: str, name: str, version: str, sdk: str | None
) -> RenderResult:
    result = find_version(connection, scope, name, version, sdk)
    if result is None:
        abort(404, no_widget(scope, name))
    revision, body = result
    if body is None:
        abort(404, no_version(scope, name, version, sdk))
    return revision, (body,)


def no_version(scope: str, name: str, version: str, sdk: str | None) -> str:
    if version != LATEST:
        return f"There is no version {quoted(f'{scope}/{name}@{version}')}."
    condition = f"runs on SDK {sdk}" if sdk else "is available"
    return f"No version of {quoted(f'{scope}/{name}')} {condition}."


FIND_HELD_BUNDLE = """
SELECT sha256_hash, EXISTS (SELECT 1 FROM mirrored WHERE widget_id = widget.id) AS is_copy
FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name AND listed AND version = :version AND bundle_path IS NOT NULL
"""


@v1.get("/<scope>/<name>/<version>/bundle.js")
def bundle(scope: str, name: str, version: str) -> Response:
    database: Database = current_app.extensions["database"]
    bundles: Bundles = current_app.extensions["bundles"]
    values = {"scope": scope, "name": name, "version": version}
    # Werkzeug would prefer Range to If-None-Match, and respond 416 to a malformed range.
    range_header = request.environ.pop("HTTP_RANGE", None)
    # If-Match is for writes. Werkzeug would respond 412, with the whole bundle.
    request.environ.pop("HTTP_IF_MATCH", None)
    row = database.reader().execute(FIND_HELD_BUNDLE, values).fetchone()
    try:
        if row is None:
            raise FileNotFoundError
        path = bundles.path(row["sha256_hash"]).absolute()
        response = send_file(
            path,
            mimetype="text/javascript",
            download_name="bundle.js",
            etag=row["sha256_hash"],
            # The upstream may replace the bytes of a copied widget.
            max_age=None if row["is_copy"] else YEAR,
        )
        is_whole = request.method == "GET" and response.status_code == 200
        if range_header and is_whole and matches_if_range(response):
            send_part(response, path, range_header)
    except (FileNotFoundError, NotADirectoryError):
        abort(404, f"No bundle of {quoted(f'{scope}/{name}@{version}')} is held here.")
    response.cache_control.immutable = not row["is_copy"]
    return response


def matches_if_range(response: Response) -> bool:
    """Return whether If-Range is absent or names exactly what the response would send."""
    condition = request.headers.get("If-Range")
    if condition is None:
        return True
    # RFC 9110 requires a strong match, and a weak tag begins with W/.
    if condition.strip() == response.headers["ETag"]:
        return True
    return '"' not in condition and parse_date(condition) == response.last_modified


def send_part(response: Response, path: Path, range_header: str) -> None:
    """Reduce a response with a whole file to the requested part.

    The server reads the part from the file while it sends, so it is never whole in memory.
    """
    size = response.content_length or 0
    part = parse_range(range_header, size)
    if part is None:
        return
    response.close()
    if not part:
        raise RequestedRangeNotSatisfiable(size)
    response.response = wrap_file(request.environ, cast(IO[bytes], FilePart(path.open("rb"), part)))
    response.status_code = 206
    response.content_length = len(part)
    response.content_range.set(part.start, part.stop, size)


def unmatched() -> Response:
    methods = known_methods(request.path)
    # A preflight must succeed, or the browser hides the 404 that follows.
    if methods or request.method == "OPTIONS":
        return options_or_405(methods)
    abort(404)


catch_all(v1, V1_PREFIX, unmatched)
