"""/api/v1/widgets/*: the public, versioned API with CORS for every origin.

Each GET hands render_for_cache() two functions: revalidate() tells whether a cached response is
still valid, render() runs the SQL that writes the JSON. See response_cache.py.
"""

import json
from hashlib import sha1

from flask import Blueprint, Response, abort, current_app, request, send_file, url_for
from flask_cors import CORS

from .. import V1_PREFIX
from ..public_url import public_url
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.sqlite import Connection, today
from ..store.read.about import find_about
from ..store.read.changes import ChangesQuery, find_changes, parse_changes, revalidate_changes
from ..store.read.detail import (
    LATEST,
    find_detail,
    find_version,
    revalidate_content,
    revalidate_detail,
)
from ..store.read.installs import find_installs, parse_days, revalidate_installs
from ..store.read.json_sql import with_bundle_urls
from ..store.read.search import find_widgets, revalidate_search
from ..store.read.search_params import parse_compat_sdk, parse_search
from ..store.read.updates import find_updates, parse_updates
from ..text import bundle_file_name, quoted
from .response_cache import RenderResult, render_for_cache

# flask-cors adds this header unless it is there already, which saves a tenth of a request.
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


@v1.before_app_request
def limit_body() -> None:
    """Respond 413 to a large body. No request needs a body, but some clients send an empty one."""
    environ = request.environ
    if "CONTENT_LENGTH" not in environ or not request.path.startswith(V1_PREFIX):
        return
    limit = current_app.config["MAX_BODY_BYTES"]
    if (request.content_length or 0) > limit:
        abort(413, f"No request here needs a body; at most {limit} bytes are accepted.")


@v1.get("/search")
def search() -> Response:
    query = parse_search(request.args.to_dict())
    return render_for_cache(
        lambda connection, revision: revalidate_search(connection, query, revision),
        lambda connection: find_widgets(connection, query),
        READ_HEADERS,
    )


@v1.get("/changes")
def changes() -> Response:
    query = parse_changes(request.args.to_dict())
    # The ETag of a detail with held bundles depends on it.
    url = public_url()
    return render_for_cache(
        revalidate_changes,
        lambda connection: render_changes(connection, query, url),
        READ_HEADERS,
    )


def render_changes(connection: Connection, query: ChangesQuery, url: str) -> RenderResult:
    found = find_changes(connection, query, lambda detail: detail_etag(detail, url))
    if found is None:
        abort(410, NO_SUCH_HISTORY)
    revision, page = found
    text = json.dumps(page, ensure_ascii=False, separators=(",", ":"))
    return revision, f"{text}\n".encode()


def detail_etag(detail: bytes, url: str) -> str:
    """Return the ETag header of the response with this detail."""
    digest = sha1(with_bundle_urls(detail, url), usedforsecurity=False)
    return f'"{digest.hexdigest()}"'


@v1.get("/updates")
def updates() -> Response:
    query = parse_updates(request.args.get("compatSdk"), request.args.getlist("installed"))
    return render_for_cache(
        revalidate_content, lambda connection: find_updates(connection, query), READ_HEADERS
    )


@v1.get("/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    sdk = requested_sdk()

    def render(connection: Connection) -> RenderResult:
        result = find_detail(connection, scope, name, sdk)
        if result is None:
            abort(404, no_widget(scope, name))
        return result

    return render_for_cache(
        lambda connection, revision: revalidate_detail(connection, scope, name, revision),
        render,
        READ_HEADERS,
    )


def requested_sdk() -> str | None:
    """Return compatSdk; raise ParameterError if it is invalid."""
    # Parsing takes time, and most requests have no query.
    return parse_compat_sdk(request.args.get("compatSdk")) if request.query_string else None


@v1.post("/<scope>/<name>")
def install(scope: str, name: str) -> Response:
    if not current_app.extensions["database"].count_install(scope, name, today()):
        abort(404, no_widget(scope, name))
    return counted()


@v1.post("/<scope>/<name>/<version_number:version>")
def install_version(scope: str, name: str, version: str) -> Response:
    if not current_app.extensions["database"].count_install(scope, name, today(), version):
        abort(404, f"There is no version {quoted(f'{scope}/{name}@{version}')}.")
    return counted()


def counted() -> Response:
    return Response('{"success":true}\n', headers=CORS_HEADERS, mimetype="application/json")


@v1.get("/<scope>/<name>/installs")
def installs(scope: str, name: str) -> Response:
    days = parse_days(request.args.to_dict())

    def render(connection: Connection) -> RenderResult:
        result = find_installs(connection, scope, name, days, today())
        if result is None:
            abort(404, no_widget(scope, name))
        return result

    return render_for_cache(
        lambda connection, revision: revalidate_installs(connection, scope, name, revision),
        render,
        READ_HEADERS,
    )


@v1.get("/<scope>/<name>/about")
def about(scope: str, name: str) -> Response:
    def render(connection: Connection) -> RenderResult:
        found = find_about(connection, current_app.extensions["bundles"], scope, name)
        if found is None:
            abort(404, no_widget(scope, name))
        revision, said = found
        if said["picture"]:
            path = url_for(
                "v1.picture", scope=scope, name=name, sha256=said["picture"]["sha256Hash"]
            )
            url = public_url() + path.removeprefix(request.script_root)
            said["picture"] = {"url": url, **said["picture"]}
        text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
        return revision, f"{text}\n".encode()

    return render_for_cache(revalidate_content, render, READ_HEADERS)


@v1.get("/<scope>/<name>/picture")
def picture(scope: str, name: str) -> Response:
    database: Database = current_app.extensions["database"]
    found = find_about(database.reader(), current_app.extensions["bundles"], scope, name)
    shown = found[1]["picture"] if found else None
    requested = request.args.get("sha256")
    if shown is None or requested not in (None, shown["sha256Hash"]):
        abort(404, f"{quoted(f'{scope}/{name}')} has no such picture.")
    response = send_held(
        shown["sha256Hash"],
        shown["type"],
        f"{name[:80]}.{shown['type'].removeprefix('image/')}",
        is_immutable=requested is not None,
    )
    if response is None:
        abort(404, f"The picture of {quoted(f'{scope}/{name}')} is not held here.")
    return response


def no_widget(scope: str, name: str) -> str:
    return f"There is no widget {quoted(f'{scope}/{name}')}."


@v1.get("/<scope>/<name>/<version>")
def one_version(scope: str, name: str, version: str) -> Response:
    sdk = requested_sdk()

    def render(connection: Connection) -> RenderResult:
        result = find_version(connection, scope, name, version, sdk)
        if result is None:
            abort(404, no_widget(scope, name))
        revision, body = result
        if body is None:
            abort(404, no_version(scope, name, version, sdk))
        return revision, body

    return render_for_cache(revalidate_content, render, READ_HEADERS)


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
    values = {"scope": scope, "name": name, "version": version}
    row = database.reader().execute(FIND_HELD_BUNDLE, values).fetchone()
    response = None
    if row is not None:
        file_name = bundle_file_name(name, version)
        # The upstream may replace the bytes of a copied widget.
        is_immutable = not row["is_copy"]
        response = send_held(
            row["sha256_hash"], "text/javascript", file_name, is_immutable=is_immutable
        )
    if response is None:
        abort(404, f"No bundle of {quoted(f'{scope}/{name}@{version}')} is held here.")
    return response


def send_held(sha256: str, mimetype: str, file_name: str, *, is_immutable: bool) -> Response | None:
    """Return the response with a held file; None if the file is missing."""
    bundles: Bundles = current_app.extensions["bundles"]
    # If-Match is for writes. Werkzeug would respond 412, with the whole file.
    request.environ.pop("HTTP_IF_MATCH", None)
    try:
        response = send_file(
            bundles.path(sha256).absolute(),
            mimetype=mimetype,
            download_name=file_name,
            etag=sha256,
            max_age=YEAR if is_immutable else None,
            conditional=False,
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    response.cache_control.immutable = is_immutable
    # Without ranges.
    response.make_conditional(request.environ)
    return response
