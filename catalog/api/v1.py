"""/api/v1/widgets/*: the public, versioned API, open to every origin."""

import sqlite3
from pathlib import Path
from typing import IO, cast

from flask import Blueprint, Response, abort, current_app, request, send_file
from flask_cors import CORS
from werkzeug.exceptions import RequestedRangeNotSatisfiable
from werkzeug.http import parse_date
from werkzeug.wsgi import wrap_file

from catalog import V1_PREFIX
from catalog.api.byte_ranges import FilePart, requested_part
from catalog.api.response_cache import RenderResult, respond
from catalog.routing import catch_all, known_methods, options_or_405
from catalog.store import detail as detail_sql
from catalog.store import writes
from catalog.store.bundles import Bundles
from catalog.store.database import Database
from catalog.store.search import find_widgets, revalidate
from catalog.store.search_params import ParameterError, SearchQuery, parse_search
from catalog.store.sqlite import Connection
from catalog.text import quoted

# What flask-cors would say in the end: it finds it said, and a tenth of the time is saved.
OPEN = {"Access-Control-Allow-Origin": "*"}
# Counts change: an answer may be kept by who asks each time whether it still holds.
ASK_AGAIN = {"Cache-Control": "no-cache", **OPEN}
YEAR = 31_536_000  # seconds; no cache is asked to keep anything longer

v1 = Blueprint("v1", __name__, url_prefix=V1_PREFIX.rstrip("/"))
CORS(v1, send_wildcard=True, methods=["GET", "HEAD", "POST", "OPTIONS"], max_age=7200)


@v1.get("/search")
def search() -> Response:
    try:
        wanted = parse_search(request.args.to_dict())
    except ParameterError as error:
        abort(400, str(error))
    return respond(
        wanted,
        revalidate=lambda connection, seen: revalidate(connection, wanted, seen),
        render=lambda connection: render_search(connection, wanted),
        headers=ASK_AGAIN,
    )


def render_search(connection: Connection, wanted: SearchQuery) -> RenderResult:
    revision, body = find_widgets(connection, wanted)
    return revision, (body,)


@v1.get("/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    return respond(
        ("detail", scope, name),
        revalidate=lambda connection, seen: detail_sql.revalidate(connection, scope, name, seen),
        render=lambda connection: render_detail(connection, scope, name),
        headers=ASK_AGAIN,
    )


def render_detail(connection: sqlite3.Connection, scope: str, name: str) -> RenderResult:
    made = detail_sql.find_detail(connection, scope, name)
    if made is None:
        abort(404, no_widget(scope, name))
    revision, body = made
    return revision, (body,)


@v1.post("/<scope>/<name>")
def count_install(scope: str, name: str) -> Response:
    (counted,) = current_app.extensions["database"].write(writes.count_install(scope, name))
    if not counted:
        abort(404, no_widget(scope, name))
    return Response('{"success":true}\n', headers=OPEN, mimetype="application/json")


HELD_BUNDLE = """
SELECT sha256_hash, EXISTS (SELECT 1 FROM mirrored WHERE widget_id = widget.id) AS is_copy
FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name AND listed AND version = :version AND bundle_path IS NOT NULL
"""


@v1.get("/<scope>/<name>/<version>/bundle.js")
def bundle(scope: str, name: str, version: str) -> Response:
    database: Database = current_app.extensions["database"]
    bundles: Bundles = current_app.extensions["bundles"]
    named = {"scope": scope, "name": name, "version": version}
    # Werkzeug would let Range win over If-None-Match, and respond 416 to what it cannot parse.
    wanted = request.environ.pop("HTTP_RANGE", None)
    # If-Match is for writes: Werkzeug would respond 412, with the whole bundle.
    request.environ.pop("HTTP_IF_MATCH", None)
    row = database.reader().execute(HELD_BUNDLE, named).fetchone()
    try:
        if row is None:
            raise FileNotFoundError
        path = bundles.path(row["sha256_hash"]).absolute()
        response = send_file(
            path,
            mimetype="text/javascript",
            download_name="bundle.js",
            etag=row["sha256_hash"],
            # Another service decides which bytes a copy has, and may replace them.
            max_age=None if row["is_copy"] else YEAR,
        )
        is_whole = request.method == "GET" and response.status_code == 200
        if wanted and is_whole and is_unchanged(response):
            send_part(response, path, wanted)
    except (FileNotFoundError, NotADirectoryError):
        abort(404, f"No bundle of {quoted(f'{scope}/{name}@{version}')} is held here.")
    response.cache_control.immutable = not row["is_copy"]
    return response


def is_unchanged(response: Response) -> bool:
    """Whether If-Range, where there is one, names exactly what the response would send."""
    condition = request.headers.get("If-Range")
    if condition is None:
        return True
    # A weak tag is not this text, and RFC 9110 wants a strong match.
    if condition.strip() == response.headers["ETag"]:
        return True
    return '"' not in condition and parse_date(condition) == response.last_modified


def send_part(response: Response, path: Path, wanted: str) -> None:
    """Render of a response with a whole file one with the part that was asked for.

    The server takes it from the file while sending: no part of it is in memory for longer.
    """
    size = response.content_length or 0
    part = requested_part(wanted, size)
    if part is None:
        return
    response.close()
    if not part:
        raise RequestedRangeNotSatisfiable(size)
    response.response = wrap_file(request.environ, cast(IO[bytes], FilePart(path.open("rb"), part)))
    response.status_code = 206
    response.content_length = len(part)
    response.content_range.set(part.start, part.stop, size)


def no_widget(scope: str, name: str) -> str:
    return f"There is no widget {quoted(f'{scope}/{name}')}."


def unmatched() -> Response:
    methods = known_methods(request.path)
    if methods or request.method == "OPTIONS":  # a preflight must pass to let the 404 be read
        return options_or_405(methods)
    abort(404)


catch_all(v1, V1_PREFIX, unmatched)


@v1.before_request
def refuse_large_body() -> None:
    """No call has a body; some clients send an empty object all the same."""
    if "CONTENT_LENGTH" not in request.environ:
        return
    most = current_app.config["MAX_BODY_BYTES"]
    if (request.content_length or 0) > most:
        abort(413, f"No request here needs a body; at most {most} bytes are accepted.")
