"""Internal paths for versions: publish, yank and deprecate."""

from flask import Response, abort, current_app, g, jsonify

from ...domain.changes import BundleSummary, NewVersion, WidgetName
from ...domain.documents import Json, Row
from ...domain.messages import NotAllowedError, quoted
from ...domain.timestamps import now
from ...domain.validators import check_nonempty_text, check_sha256, check_text, check_whole_number
from ...store.bundles.bundles import Bundles
from ...store.read.tokens import Token
from ...store.write import moderation, publishing
from .authentication import authorized, check_official, parse_boolean
from .blueprint import WIDGET, database, internal
from .bodies import read_object, read_version

# Changes run one after another, so none may wait long for the lock on the bundle directory.
LOCK_TIMEOUT = 2  # seconds
# The fields of a manifest that describe the bundle.
BUNDLE_FIELDS = {
    "bundleUrl": check_nonempty_text,
    "bundleSize": check_whole_number,
    "sha256Hash": check_sha256,
}


@internal.put(f"{WIDGET}/<version>")
@authorized
def publish(token: Token, scope: str, name: str, version: str) -> Response:
    """Publish a version; publishing the same version again is a no-op."""
    with read_version() as (manifest, bundle, readme, picture):
        if not isinstance(manifest, dict):
            abort(400, "The manifest must be a JSON object.")
        given = {key: manifest.pop(key) for key in BUNDLE_FIELDS if key in manifest}
        check_path(manifest, {"scope": scope, "name": name, "version": version})
        if manifest.get("isOfficial"):
            check_official(token)
        summary = summarize(given, bundle.summary if bundle else None)
        content = bundle.chunks() if bundle else None
        stores_again = parse_boolean("store")
        url = given.get("bundleUrl")
        new = NewVersion(manifest, summary, content, url, readme, picture, stores_again)
        result = publishing.publish(
            database(), service_bundles(), current_app.config, token.actor, new, dry_run=g.dry_run
        )
    if warning := token.expiry_warning(now()):
        result["warnings"].append(warning)
    response = jsonify(result)
    response.status_code = 201 if result["published"] and not g.dry_run else 200
    return response


def check_path(manifest: Json, names: dict[str, str]) -> None:
    """Respond 400 if the manifest and the path name different versions."""
    for key, value in names.items():
        if manifest.get(key) != value:
            abort(
                400,
                f"The {key} in the manifest is {quoted(manifest.get(key))}, but the path has "
                f"{quoted(value)}.",
            )


def summarize(given: Row, uploaded: BundleSummary | None) -> BundleSummary:
    """Return the bundle's size and hash; respond 400 if a field is missing, invalid or wrong."""
    checked: Row = {}
    for key, value in given.items():
        try:
            checked[key] = BUNDLE_FIELDS[key](value)
        except NotAllowedError as error:
            abort(400, f"{error.about(key, value)}.")
    size, sha256 = checked.get("bundleSize"), checked.get("sha256Hash")
    if uploaded is None:
        if "bundleUrl" not in checked and not current_app.config["BUNDLE_URL"]:
            abort(400, "Without a bundle, the manifest must have bundleUrl.")
        if size is None or sha256 is None:
            abort(400, "Without a bundle, the manifest must have bundleSize and sha256Hash.")
        return BundleSummary(size, sha256)
    if size not in (None, uploaded.size) or sha256 not in (None, uploaded.sha256):
        abort(
            400,
            f"The bundle has {uploaded.size} bytes and the SHA-256 {uploaded.sha256}, "
            "which does not match the manifest.",
        )
    return uploaded


def service_bundles() -> Bundles:
    """Return the bundle directory with a short timeout for its lock."""
    return Bundles(current_app.extensions["bundles"].directory, LOCK_TIMEOUT)


@internal.post(f"{WIDGET}/<version>/<any(yank, unyank):action>")
@authorized
def yank(token: Token, scope: str, name: str, version: str, action: str) -> Response:
    """Yank versions, or make them available again."""
    yanked = action == "yank"
    reason = optional_text(read_object({"reason"} if yanked else set()), "reason")
    targets = named_versions(scope, name, version)
    (result,) = moderation.set_yanked(
        database(), token.actor, targets, yanked, reason if yanked else "", dry_run=g.dry_run
    )
    return jsonify(result)


@internal.post(f"{WIDGET}/<version>/<any(deprecate, undeprecate):action>")
@authorized
def deprecate(token: Token, scope: str, name: str, version: str, action: str) -> Response:
    """Set or remove the deprecation message of versions."""
    body = read_object({"message"} if action == "deprecate" else set())
    message = optional_text(body, "message")
    if action == "deprecate" and not message:
        abort(400, "The body must contain a non-empty message.")
    targets = named_versions(scope, name, version)
    (result,) = moderation.set_deprecation(
        database(), token.actor, targets, message, dry_run=g.dry_run
    )
    return jsonify(result)


def named_versions(scope: str, name: str, text: str) -> list[WidgetName]:
    """Return the versions and ranges in a comma-separated list."""
    return [WidgetName(scope, name, each) for each in text.split(",")]


def optional_text(body: Json, key: str) -> str | None:
    """Return a string from the body, or None if it is absent; respond 400 if it is invalid."""
    try:
        return None if body.get(key) is None else check_text(body[key])
    except NotAllowedError as error:
        abort(400, f"{error.about(key, body[key])}.")
