"""All other /api/* paths are internal: 401 without a token, whether or not the path exists.

With a valid token, these publish and moderate. They are for the command line of this release, have
no CORS header and may change without notice.
"""

import re
from collections.abc import Callable
from typing import cast

from flask import Blueprint, Response, abort, current_app, g, jsonify, request
from flask.globals import request_ctx
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from ..documents import Json, Row
from ..rights import ADMIN, PUBLISH
from ..semver_ranges import MAX_SAFE_INTEGER
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.sqlite import WouldBlock
from ..store.connection.transaction import now
from ..store.write import publishing
from ..store.write.audit import read_entries
from ..store.write.manifests import BundleSummary
from ..store.write.publishing import Upload
from ..store.write.tokens import Token, describe_token
from ..text import NotAllowedError, quoted
from ..validators import (
    check_nonempty_text,
    check_sha256,
    check_timestamp,
    check_whole_number,
)
from .authentication import authenticate, forbid, needs
from .bodies import read_version

AUDIT_LIMIT = 100
# Changes wait for each other, so none may wait long for the directory of bundles.
LOCK_TIMEOUT = 2  # seconds
# What validates the values that a manifest may have about its bundle.
BUNDLE_KEYS: dict[str, Callable[[object], object]] = {
    "bundleUrl": check_nonempty_text,
    "bundleSize": check_whole_number,
    "sha256Hash": check_sha256,
}

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


@internal.get("/session")
@needs(None)
def show_session(token: Token) -> Response:
    """Respond with who the token is, its rights and its expiry."""
    return jsonify(describe_token(token))


@internal.get("/audit")
@needs(None)
def show_audit(token: Token) -> Response:
    """Respond with the record of changes in the scopes of the token, the newest first."""
    # The texts of a hundred entries may have megabytes.
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
            "widget must be scope/name, since an ISO 8601 time, limit and before whole numbers "
            "from 1.",
        )
    scopes = None if ADMIN in token.permissions else token.scopes
    if widget and scopes is not None and scope not in scopes:
        forbid(f"The token {token.name} is not for the scope {quoted(scope)}.")
    with database().read() as connection:
        names = (scope, name) if widget else None
        entries = read_entries(connection, names, scopes, since=since, **options)
    return jsonify(entries=entries)


def parse_position(text: str) -> int:
    """Return a whole number from 1; raise ValueError."""
    if not re.fullmatch("[0-9]{1,16}", text) or not 1 <= int(text) <= MAX_SAFE_INTEGER:
        raise ValueError
    return int(text)


@internal.put(f"{WIDGET}/<version>")
@needs(PUBLISH)
def publish(token: Token, scope: str, name: str, version: str) -> Response:
    """Publish a version; the same one again changes nothing."""
    with read_version() as (manifest, bundle):
        if not isinstance(manifest, dict):
            abort(400, "The manifest must be one JSON object.")
        given = {key: manifest.pop(key) for key in BUNDLE_KEYS if key in manifest}
        check_path(manifest, {"scope": scope, "name": name, "version": version})
        if manifest.get("isOfficial") and ADMIN not in token.permissions:
            forbid(f"The token {token.name} needs the permission admin for isOfficial.")
        result = publishing.publish(
            database(),
            service_bundles(),
            current_app.config,
            token.actor,
            Upload(
                manifest,
                summarize(given, bundle.summary if bundle else None),
                bundle.chunks() if bundle else None,
                given.get("bundleUrl"),
            ),
            dry_run=is_dry_run(),
        )
    response = jsonify(
        version=str(result.target),
        published=result.is_new,
        stored=result.is_stored,
        warnings=[*result.warnings, *filter(None, [token.expiry_warning(now())])],
        isUnlisted=result.is_unlisted,
        isOfficialIgnored=result.is_official_ignored,
        previousLatestVersion=result.latest_before,
        latestVersion=result.latest,
        document=result.document,
    )
    response.status_code = 201 if result.is_new and result.document is None else 200
    return response


def check_path(manifest: Json, names: dict[str, str]) -> None:
    """Respond 400 if the manifest is of another version than the path."""
    for key, value in names.items():
        if manifest.get(key) != value:
            abort(
                400, f"The manifest has the {key} {quoted(manifest.get(key))}, not {quoted(value)}."
            )


def summarize(given: Row, uploaded: BundleSummary | None) -> BundleSummary:
    """Return size and hash of the bundle; respond 400 if they are invalid, missing or wrong."""
    for key, check in BUNDLE_KEYS.items():
        try:
            if key in given:
                given[key] = check(given[key])
        except NotAllowedError as error:
            abort(400, f"{error.about(key, given[key])}.")
    size, sha256 = given.get("bundleSize"), given.get("sha256Hash")
    if uploaded is None:
        if not (given.get("bundleUrl") or current_app.config["BUNDLE_URL"]):
            abort(400, "Without a bundle, the manifest must have bundleUrl.")
        if size is None or sha256 is None:
            abort(400, "Without a bundle, the manifest must have bundleSize and sha256Hash.")
        return BundleSummary(size, sha256)
    if size not in (None, uploaded.size) or sha256 not in (None, uploaded.sha256):
        abort(
            400,
            f"The bundle has {uploaded.size} bytes and the SHA-256 {uploaded.sha256}, "
            "which is not what the manifest says.",
        )
    return uploaded


def service_bundles() -> Bundles:
    """Return the bundles, which wait only shortly for a command that writes to their directory."""
    return Bundles(current_app.extensions["bundles"].directory, LOCK_TIMEOUT)
