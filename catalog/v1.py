"""/api/v1/widgets/*: the public, versioned API, open to every origin."""

import sqlite3

from flask import Blueprint, Response, abort, current_app, jsonify, request, send_file
from flask_cors import CORS

from catalog import resources, store
from catalog.answers import Made, respond
from catalog.bundles import Bundles
from catalog.db import Database
from catalog.documents import shown
from catalog.routing import V1_PREFIX, catch_all, known_methods, options_or_405, public_url
from catalog.search import ParameterError, find_widgets, parse_search, still_holds

YEAR = 31_536_000  # seconds; no cache is asked to keep anything longer

v1 = Blueprint("v1", __name__, url_prefix=V1_PREFIX.rstrip("/"))
CORS(v1, send_wildcard=True, methods=["GET", "HEAD", "POST", "OPTIONS"], max_age=7200)


@v1.get("/search")
def search() -> Response:
    try:
        wanted = parse_search(request.args.to_dict(), public_url())
    except ParameterError as error:
        abort(400, str(error))
    database: Database = current_app.extensions["database"]
    return respond(
        wanted,
        look=lambda seen: still_holds(database.reader(), wanted, seen),
        make=lambda: find_widgets(database.reader(), wanted),
    )


# A detail holds until the catalog or this one counter changes.
UNCHANGED = """
SELECT 1 FROM revision JOIN widget ON scope = :scope AND name = :name
WHERE revision.id = 1 AND content = :content AND download_count IS :download_count
"""


@v1.get("/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    database: Database = current_app.extensions["database"]
    named = {"scope": scope, "name": name, "public_url": public_url()}

    def look(seen: dict[str, int]) -> dict[str, int] | None:
        return seen if database.reader().execute(UNCHANGED, named | seen).fetchone() else None

    key = ("detail", *named.values())
    return respond(key, look, lambda: make_detail(database.reader(), named))


DETAIL = f"""
SELECT content, download_count, CAST(
    '{{"widget":' || {resources.WIDGET} || ',"versions":' || {resources.VERSION_ENTRIES}
    || ',"latestVersion":' || {resources.LATEST_VERSION} || '}}' AS BLOB)
FROM revision JOIN widget ON scope = :scope AND name = :name AND listed
WHERE revision.id = 1
"""


def make_detail(connection: sqlite3.Connection, named: dict[str, str | None]) -> Made:
    row = connection.execute(DETAIL, named).fetchone()
    if row is None:
        abort(404, no_widget(named["scope"], named["name"]))
    content, download_count, body = row
    return {"content": content, "download_count": download_count}, body


@v1.post("/<scope>/<name>")
def count_install(scope: str, name: str) -> Response:
    (counted,) = current_app.extensions["database"].write(store.count_install(scope, name))
    if not counted:
        abort(404, no_widget(scope, name))
    return jsonify(success=True)


HELD_BUNDLE = """
SELECT sha256_hash FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name AND listed AND version = :version AND bundle_path IS NOT NULL
"""


@v1.get("/<scope>/<name>/<version>/bundle.js")
def bundle(scope: str, name: str, version: str) -> Response:
    database: Database = current_app.extensions["database"]
    bundles: Bundles = current_app.extensions["bundles"]
    named = {"scope": scope, "name": name, "version": version}
    row = database.reader().execute(HELD_BUNDLE, named).fetchone()
    try:
        if row is None:
            raise FileNotFoundError
        response = send_file(
            bundles.path(row["sha256_hash"]).absolute(),
            mimetype="text/javascript",
            download_name="bundle.js",
            etag=row["sha256_hash"],
            max_age=YEAR,
        )
    except (FileNotFoundError, NotADirectoryError):
        abort(404, f"No bundle of {shown(f'{scope}/{name}@{version}')} is held here.")
    response.cache_control.immutable = True
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def no_widget(scope: str, name: str) -> str:
    return f"There is no widget {shown(f'{scope}/{name}')}."


def unmatched() -> Response:
    methods = known_methods(request.path)
    if methods or request.method == "OPTIONS":  # a preflight must pass to let the 404 be read
        return options_or_405(methods)
    abort(404)


catch_all(v1, V1_PREFIX, unmatched)


@v1.before_request
def refuse_large_body() -> None:
    """No call has a body; some clients send an empty object all the same."""
    most = current_app.config["MAX_BODY_BYTES"]
    if (request.content_length or 0) > most:
        abort(413, f"No request here needs a body; at most {most} bytes are accepted.")


@v1.after_request
def ask_again(response: Response) -> Response:
    """Let clients keep an answer if they ask each time whether it still holds: counts change.

    What cannot change, a bundle, has said otherwise already.
    """
    if response.headers.get("ETag"):
        response.headers.setdefault("Cache-Control", "no-cache")
    return response
