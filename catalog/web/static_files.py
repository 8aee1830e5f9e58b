"""/static/: our own style sheet, scripts and icon, with a hash of the content in their URLs.

Pages use /static/catalog.<hash>.css, which browsers cache for a year and never revalidate. The same
file at /static/catalog.css is revalidated each time.
"""

import hashlib
import re
from pathlib import Path

from flask import Blueprint, Response, request, send_from_directory, url_for

from .formatting import sri_hash

FOLDER = Path(__file__).parent / "static"
SHA256_HASHES = {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()
}
HASH_LENGTH = 16  # characters
# A file name with a hash: its stem, hash and extension.
HASHED_NAME = re.compile(rf"([^.]+)\.([0-9a-f]{{{HASH_LENGTH}}})(\.[a-z]+)")
IMMUTABLE = "max-age=31536000, immutable"
SCRIPT_HASHES = {
    name: sri_hash(digest) for name, digest in SHA256_HASHES.items() if name.endswith(".js")
}

static_files = Blueprint("static_files", __name__)


@static_files.get("/static/<path:filename>")
def static_file(filename: str) -> Response:
    match = HASHED_NAME.fullmatch(filename)
    plain_name = f"{match[1]}{match[3]}" if match else filename
    etag = SHA256_HASHES.get(plain_name, False)
    response = send_from_directory(FOLDER, plain_name, conditional=False, etag=etag)
    # A new release may contain a changed file with the same or an earlier modification time.
    response.headers.pop("Last-Modified", None)
    # A different hash means that a page from another release requested the file.
    if match and filename == hashed_name(plain_name):
        response.headers["Cache-Control"] = IMMUTABLE
    # Range is ignored, and the whole file is sent.
    response.make_conditional(request.environ)
    return response


def hashed_name(name: str) -> str:
    """Return a file's name with a hash of its content inserted before the extension."""
    stem, _, extension = name.partition(".")
    return f"{stem}.{SHA256_HASHES[name][:HASH_LENGTH]}.{extension}"


# This is not a filter: Jinja would apply a filter only once, when it compiles a template, with the
# URL prefix of the current request.
@static_files.app_template_global()
def static_url(name: str) -> str:
    """Return the URL of one of our files, which changes with its content."""
    return url_for("static_files.static_file", filename=hashed_name(name))


@static_files.app_template_filter()
def script_integrity(name: str) -> str:
    """Return a script's integrity attribute; the Content-Security-Policy has the same hash."""
    return SCRIPT_HASHES[name]
