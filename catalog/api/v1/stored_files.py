"""The routes that send stored bundles and pictures."""

from pathlib import Path

from flask import Response, abort, current_app, request, send_file

from ...domain.file_names import bundle_file_name
from ...domain.messages import quoted
from ...store.bundles.bundles import Bundles
from ...store.bundles.compressed import compress_bundle, find_compressed
from ...store.connection.database import Database
from ...store.read.about import find_about
from ...store.read.stored_bundles import find_stored_bundle
from ..compression import GZIP, VARY, find_known_etag, gzip_etag, prefers_gzip
from .blueprint import v1

# The longest max-age in common use: one year.
YEAR = 31_536_000  # seconds


@v1.get("/<scope>/<name>/picture")
def picture(scope: str, name: str) -> Response:
    database: Database = current_app.extensions["database"]
    found = find_about(database.reader(), current_app.extensions["bundles"], scope, name)
    shown = found[1]["picture"] if found else None
    requested = request.args.get("sha256")
    if shown is None or requested not in (None, shown["sha256Hash"]):
        abort(404, f"{quoted(f'{scope}/{name}')} has no such picture.")
    response = send_stored(
        shown["sha256Hash"],
        shown["type"],
        f"{name[:80]}.{shown['type'].removeprefix('image/')}",
        is_immutable=requested is not None,
    )
    if response is None:
        abort(404, f"The picture of {quoted(f'{scope}/{name}')} is not stored here.")
    return response


@v1.get("/<scope>/<name>/<version>/bundle.js")
def bundle(scope: str, name: str, version: str) -> Response:
    database: Database = current_app.extensions["database"]
    found = find_stored_bundle(database.reader(), scope, name, version)
    response = None
    if found is not None:
        sha256, is_copy = found
        requested = request.args.get("sha256")
        if requested not in (None, sha256):
            abort(
                404, f"The bundle of {quoted(f'{scope}/{name}@{version}')} has a different SHA-256."
            )
        # Without a hash in its URL, a copied bundle is mutable: the upstream may replace it.
        is_immutable = not is_copy or requested is not None
        file_name = bundle_file_name(name, version)
        compressed = find_accepted_gzip(sha256)
        response = send_stored(
            sha256,
            "text/javascript",
            file_name,
            is_immutable=is_immutable,
            compressed=compressed,
        )
    if response is None:
        abort(404, f"No bundle for {quoted(f'{scope}/{name}@{version}')} is stored here.")
    response.headers.extend(VARY)
    return response


def find_accepted_gzip(sha256: str) -> Path | None:
    """Return the compressed bundle if it is smaller and the client prefers gzip, else None.

    Earlier releases stored bundles without a compressed form; the first request creates it.
    """
    if not prefers_gzip(request.environ.get("HTTP_ACCEPT_ENCODING", "")):
        return None
    bundles: Bundles = current_app.extensions["bundles"]
    deadline = current_app.extensions["database"].deadline
    # After the final deadline, finish the response anyway: a late response is better than none.
    check = (lambda: None) if deadline.is_final else deadline.check
    compress_bundle(bundles, sha256, check=check)
    return find_compressed(bundles, sha256)


def send_stored(
    sha256: str,
    mimetype: str,
    file_name: str,
    *,
    is_immutable: bool,
    compressed: Path | None = None,
) -> Response | None:
    """Return a response with a stored file or its compressed form; None if the file is missing."""
    bundles: Bundles = current_app.extensions["bundles"]
    # Ignore If-Match, which is meant for writes: Werkzeug would respond 412 with the whole file.
    request.environ.pop("HTTP_IF_MATCH", None)
    known = request.environ.get("HTTP_IF_NONE_MATCH", "")
    known_etag = find_known_etag(known, sha256, with_gzip=compressed is not None)
    try:
        response = send_file(
            (compressed or bundles.path(sha256)).absolute(),
            mimetype=mimetype,
            download_name=file_name,
            etag=known_etag or (gzip_etag(sha256) if compressed else sha256),
            max_age=YEAR if is_immutable else None,
            conditional=False,
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    response.cache_control.immutable = is_immutable
    # Let cross-origin isolated pages (COEP) load the file.
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    if not is_immutable:
        # An older file can replace this one, so clients must compare ETags, not dates.
        response.headers.pop("Last-Modified", None)
    # Range is ignored, because bundles are small.
    response.make_conditional(request.environ)
    if compressed and response.status_code == 200:
        response.headers.update(GZIP)
    return response
