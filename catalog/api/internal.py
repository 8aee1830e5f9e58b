"""All other /api/* paths are internal: 401 without a token, whether or not the path exists.

With a valid token, these publish and moderate. They are for the command line of this release, have
no CORS header and may change without notice.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Blueprint, Response, abort, current_app, jsonify, request
from werkzeug.exceptions import MethodNotAllowed, ServiceUnavailable
from werkzeug.routing import Map, Rule

from catalog.api.authentication import TOKEN_KEY, authenticate, forbid
from catalog.api.internal_changes import database, deprecate, edit, is_dry_run, yank
from catalog.api.uploads import UploadedVersion
from catalog.documents import DocumentError, Json, Row
from catalog.rights import ADMIN, required_right
from catalog.routing import catch_all, known_methods, options_or_405
from catalog.semver_ranges import MAX_SAFE_INTEGER
from catalog.store.bundles import Bundles
from catalog.store.connection.sqlite import WouldBlock
from catalog.store.write import publishing
from catalog.store.write.audit import read_entries
from catalog.store.write.lookup import (
    ChangeError,
    ConflictError,
    MissingError,
)
from catalog.store.write.manifests import BundleSummary
from catalog.store.write.publishing import Upload
from catalog.store.write.tokens import Token, describe_token
from catalog.text import quoted
from catalog.validators import (
    check_nonempty_text,
    check_sha256,
    check_timestamp,
    check_whole_number,
)

AUDIT_LIMIT = 100
# Changes wait for each other, so none may wait long for the directory of bundles.
LOCK_TIMEOUT = 2  # seconds
BUNDLE_KEYS = ("bundleUrl", "bundleSize", "sha256Hash")

internal = Blueprint("internal", __name__)


def unmatched_internal() -> Response:
    """Respond 401; but 405 on a public path, and 404 under /api/v1/ or for a trailing slash."""
    methods = known_methods(request.path)
    if methods:
        return options_or_405(methods)
    has_extra_slash = request.path.endswith("/") and known_methods(request.path[:-1])
    if has_extra_slash or request.path.startswith("/api/v1/"):
        abort(404)
    token = authenticate()
    return handle(token) if isinstance(token, Token) else token


catch_all(internal, "/api/", unmatched_internal)


@internal.after_request
def forbid_storing(response: Response) -> Response:
    """Keep caches from storing what was sent to the holder of a token."""
    if TOKEN_KEY in request.environ:
        response.headers["Cache-Control"] = "no-store"
    return response


def handle(token: Token) -> Response:
    """Respond to a request with a valid token."""
    try:
        view, arguments = ROUTES.bind("").match(request.path, request.method)
    except MethodNotAllowed as error:
        return options_or_405(sorted(error.valid_methods or []))
    right = required_right(request.method, request.path)
    if right is None:
        # No other request may be made without a right, even if rights.py does not know its path.
        if view is not show_session:
            abort(404)
    elif missing := token.missing_right(right.permission, right.scope):
        forbid(missing)
    with error_statuses():
        response: Response = view(token, **arguments)
    return response


@contextmanager
def error_statuses() -> Iterator[None]:
    """Respond to a change that is refused with the status of its reason."""
    try:
        yield
    except MissingError as error:
        abort(404, str(error))
    except ConflictError as error:
        abort(409, str(error))
    except (ChangeError, DocumentError) as error:
        abort(400, str(error))
    except sqlite3.IntegrityError:
        abort(409, "The catalog was changed at the same time; try again.")
    except TimeoutError:
        raise ServiceUnavailable(
            "A command on the server stores bundles now.", retry_after=10
        ) from None
    except OSError as error:
        current_app.logger.error("A bundle cannot be stored: %s", error)
        raise ServiceUnavailable("The bundle cannot be stored now.", retry_after=5) from error


def show_session(token: Token) -> Response:
    """Respond with who the token is, its rights and its expiry, and the limit of an upload."""
    return jsonify(**describe_token(token), maxBundleBytes=current_app.config["MAX_BUNDLE_BYTES"])


def show_audit(token: Token) -> Response:
    """Respond with the record of changes, the newest first."""
    # The texts of a hundred entries may have megabytes.
    if database().deadline.on_io_thread:
        raise WouldBlock
    parameters = request.args
    try:
        since, widget = parameters.get("since"), parameters.get("widget")
        scope, name = widget.split("/") if widget else ("", "")
        options = {
            "limit": min(check_number(parameters.get("limit", AUDIT_LIMIT)), AUDIT_LIMIT),
            "before": check_number(parameters.get("before", MAX_SAFE_INTEGER)),
        }
        since = check_timestamp(since) if since else ""
    except ValueError:
        abort(
            400,
            "widget must be scope/name, since an ISO 8601 time, limit and before whole numbers "
            "from 1.",
        )
    with database().read() as connection:
        names = (scope, name) if widget else None
        entries = read_entries(connection, names, since=since, **options)
    return jsonify(entries=entries)


def check_number(text: Any) -> int:
    """Return the whole number from 1; raise ValueError if it is none."""
    number = int(text)
    if not 1 <= number <= MAX_SAFE_INTEGER:
        raise ValueError
    return number


def publish(token: Token, scope: str, name: str, version: str) -> Response:
    """Publish a version; the same one again changes nothing."""
    with UploadedVersion() as upload:
        upload.read()
        manifest = upload.manifest
        given: Row = {}
        if isinstance(manifest, dict):
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
                summarize(given, upload.summary),
                upload.chunks(),
                given.get("bundleUrl"),
            ),
            dry_run=is_dry_run(),
        )
    response = jsonify(
        version=str(result.target),
        published=result.is_new,
        stored=result.is_stored,
        warnings=result.warnings,
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
    try:
        if "bundleUrl" in given:
            check_nonempty_text(given["bundleUrl"])
        size = check_whole_number(given["bundleSize"]) if "bundleSize" in given else None
        sha256 = check_sha256(given["sha256Hash"]) if "sha256Hash" in given else None
    except ValueError as allowed:
        abort(400, f"bundleUrl, bundleSize and sha256Hash: one of them is not {allowed}.")
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


_WIDGET = "/api/widgets/<scope>/<name>"
ROUTES = Map(
    [
        Rule("/api/session", methods=["GET"], endpoint=show_session),
        Rule("/api/audit", methods=["GET"], endpoint=show_audit),
        Rule(f"{_WIDGET}/<version>", methods=["PUT"], endpoint=publish),
        Rule(f"{_WIDGET}/<version>/<any(yank, unyank):action>", methods=["POST"], endpoint=yank),
        Rule(
            f"{_WIDGET}/<version>/<any(deprecate, undeprecate):action>",
            methods=["POST"],
            endpoint=deprecate,
        ),
        Rule(_WIDGET, methods=["PATCH"], endpoint=edit),
    ],
    merge_slashes=False,
)
