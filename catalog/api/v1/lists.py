"""The routes that read many widgets: search, changes, updates and import maps."""

import json
from hashlib import sha1

from flask import Response, abort, current_app, request

from ...domain.documents import Json
from ...domain.pictures import picture_url
from ...store.bundles.bundles import Bundles
from ...store.connection.sqlite import Connection
from ...store.read.changes import ChangesQuery, find_changes, parse_changes, revalidate_changes
from ...store.read.detail import revalidate_content
from ...store.read.import_map import find_import_map, parse_import_map
from ...store.read.json_sql import with_bundle_urls
from ...store.read.search import find_widgets, revalidate_search
from ...store.read.search_params import parse_search
from ...store.read.updates import find_updates, parse_updates
from ..response_cache import RenderResult, render_for_cache, request_url
from .blueprint import READ_HEADERS, v1

NO_SUCH_HISTORY = (
    "The token in since is from another history: the catalog was restored or replaced. "
    "Start again without since."
)


@v1.get("/search")
def search() -> Response:
    query = parse_search(request.args.to_dict())

    def render(connection: Connection) -> RenderResult:
        pictures = PictureRenderer()
        revision, body = find_widgets(connection, query, pictures.render)
        return None if pictures.is_any_missing else revision, body

    return render_for_cache(
        lambda connection, revision: revalidate_search(connection, query, revision),
        render,
        READ_HEADERS,
    )


class PictureRenderer:
    """Renders the pictures in search results, and records whether any file is missing."""

    def __init__(self) -> None:
        self.is_any_missing = False
        self._bundles: Bundles = current_app.extensions["bundles"]
        self._url = request_url()

    def render(self, scope: str, name: str, picture: Json) -> Json | None:
        """Return the picture of a search result; None if its file is not stored here."""
        if not self._bundles.has(picture["sha256Hash"]):
            self.is_any_missing = True
            return None
        size = {key: picture[key] for key in ("width", "height")}
        return {"url": picture_url(self._url, scope, name, picture["sha256Hash"]), **size}


@v1.get("/changes")
def changes() -> Response:
    query = parse_changes(request.args.to_dict())
    # The ETag of a detail with stored bundles depends on the base URL.
    url = request_url()
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
    query = parse_updates(request.args.to_dict(), request.args.getlist("installed"))
    return render_for_cache(
        revalidate_content, lambda connection: find_updates(connection, query), READ_HEADERS
    )


@v1.get("/importmap")
def import_map() -> Response:
    query = parse_import_map(request.args.to_dict(), request.args.getlist("widget"))
    url = request_url()
    return render_for_cache(
        revalidate_content,
        lambda connection: find_import_map(connection, query, url),
        READ_HEADERS,
        mimetype="application/importmap+json",
    )
