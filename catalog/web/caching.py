"""Conditional requests for pages: an ETag by revision, and 304 without rendering the page.

A page is the same while everything in its ETag is the same: the database file and its revision,
with the count of installs, this release, the URL of the request, and what the view adds. No page
is cached in the service. A change that a page does not show changes its ETag too.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flask import Response, current_app, request

from catalog import __version__
from catalog.routing import accept_encoding, find_known_etag, prefers_gzip, public_url
from catalog.store.database import Database

# A page, or a page with its status.
Page = str | tuple[str, int]


def _hash_sources() -> str:
    """Return a hash of the code and templates of the pages: they change between releases too."""
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.read_bytes())
    return digest.hexdigest()


RELEASE = _hash_sources()


def page_response(render: Callable[[], Page], *inputs: object) -> Response:
    """Return the page that render() returns, with an ETag; 304 if the client has it already.

    The page may depend on the catalog, on the URL and on the inputs, such as the current day.
    """
    etag = page_etag(*inputs)
    known = request.if_none_match
    # A star stands for any page that exists, and only render() knows whether it does.
    if not known.star_tag:
        known_etag = find_known_etag(known, etag, prefers_gzip(accept_encoding()))
        if known_etag is not None:
            unchanged = Response(status=304, mimetype="text/html")
            unchanged.set_etag(known_etag)
            return unchanged
    page = render()
    text, status = page if isinstance(page, tuple) else (page, 200)
    response = Response(text, status, mimetype="text/html")
    if status == 200:
        response.set_etag(etag)
        response.make_conditional(request)
    return response


REVISION = "SELECT history, content, downloads FROM revision"


def page_etag(*inputs: object) -> str:
    """Return the ETag of the requested page; read it before anything that the page shows."""
    database: Database = current_app.extensions["database"]
    # A file at the same path can have the same revision with another content.
    inode = 0
    with suppress(OSError):
        inode = database.path.stat().st_ino
    revision = tuple(database.reader().execute(REVISION).fetchone())
    request_parts = (public_url(), request.script_root, request.path, request.query_string)
    parts = (RELEASE, inode, revision, request_parts, current_app.config["ICONS"], inputs)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]
