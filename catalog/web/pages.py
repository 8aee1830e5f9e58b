"""The common parts of all web pages: responses, headers, links, templates and the error page.

The pages work without JavaScript. The other modules in this folder add their routes to the
blueprint.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from flask import Blueprint, Response, current_app, redirect, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from markupsafe import Markup
from werkzeug import Response as BaseResponse

from .. import __version__
from ..domain.documents import Json
from ..domain.messages import shorten
from ..domain.replacement import find_replacement
from ..domain.semver_ranges import is_prerelease
from ..store.connection.database import Database
from ..store.connection.deadlines import Deadline
from ..store.connection.sqlite import Connection, DatabaseError
from ..store.read.json_sql import with_bundle_urls
from ..store.read.suggestions import Suggestion, suggest_widgets
from ..system.public_url import public_url
from . import formatting
from .icons import icon_svg
from .markdown import first_paragraph, render_markdown
from .parameters import linked_sdk
from .permission_words import has_network_access, permission_words
from .static_files import SCRIPT_HASHES

# Pages load only our own files, run no inline script or style, and cannot be framed. Scripts are
# allowed by hash, not by 'self': stored bundles have the same origin but must not run in a page.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; "
    "script-src " + " ".join(f"'{each}'" for each in sorted(SCRIPT_HASHES.values())) + "; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

# The deadline is checked after this many pieces of a template; each takes a few µs.
PIECES_PER_CHECK = 100
# These documents do not depend on the SDK version, so links to them do not contain it.
WITHOUT_SDK = ("pages.feed", "pages.openapi_json")

MAX_WORDS_LENGTH = 100  # characters
FILE_EXTENSION = re.compile(r"\.[a-z]{2,5}$")
SEPARATORS = re.compile(r"[-_.+@\s]+")

pages = Blueprint("pages", __name__, template_folder="templates")
for template_filter in (
    formatting.format_number,
    formatting.format_short_number,
    formatting.format_bytes,
    formatting.format_day,
    formatting.format_age,
    formatting.format_count,
    is_prerelease,
    formatting.is_readable,
    formatting.sri_hash,
    formatting.file_name,
    formatting.fetch_command,
    formatting.check_command,
    formatting.import_map,
    has_network_access,
    permission_words,
    shorten,
    first_paragraph,
    render_markdown,
):
    pages.add_app_template_filter(template_filter)


@pages.app_context_processor
def template_globals() -> dict[str, Any]:
    """Return the names that every template may use."""
    return {
        "absolute_url": absolute_url,
        "canonical_url": canonical_url,
        "linked_sdk": linked_sdk,
        "release": __version__,
    }


@pages.app_template_filter()
def icon(widget: Json) -> Markup:
    """Return the icon of a widget or version as SVG that is safe in a page."""
    seed = f"{widget['scope']}/{widget['name']}"
    directory = str(current_app.config["ICONS"])
    return Markup(icon_svg(widget["icon"], directory, name=widget["displayName"], seed=seed))  # noqa: S704


@pages.app_template_filter()
def install_url(entry: Json) -> str:
    """Return the URL that adds a version to the operator's dashboard; empty if not configured."""
    template: str = current_app.config["INSTALL_URL"]
    return re.sub(r"\{(scope|name|version)\}", lambda key: quote(entry[key[1]], safe=""), template)


@pages.app_template_filter()
def link_replacement(message: str, length: int) -> str:
    """Return a deprecation message with a link to the replacement; shorten a long message."""
    replacement = find_replacement(message)
    if replacement is None or len(message) > length:
        return shorten(message, length)
    before, scope, name = replacement
    url = url_for("pages.widget", scope=scope, name=name)
    return Markup('{}<a href="{}">{}/{}</a>.').format(before, url, scope, name)


@pages.record
def check_deadline_in_templates(state: BlueprintSetupState) -> None:
    """Make template rendering raise DeadlineExceeded after the deadline."""
    deadline: Deadline = state.app.extensions["database"].deadline

    def join(pieces: Iterable[str]) -> str:
        texts = []
        for number, piece in enumerate(pieces):
            if number % PIECES_PER_CHECK == 0:
                deadline.check()
            texts.append(piece)
        return "".join(texts)

    # Jinja joins the pieces of every template with this function.
    state.app.jinja_env.concat = join  # type: ignore[method-assign]


@pages.app_url_defaults
def keep_sdk(endpoint: str, values: dict[str, Any]) -> None:
    """Add the SDK version to every link to a page, unless the link sets it to None."""
    if endpoint.startswith("pages.") and endpoint not in WITHOUT_SDK:
        values.setdefault("compatSdk", linked_sdk() or None)


def site_url() -> str:
    """Return the base URL that the client uses for this service."""
    return public_url(current_app.config["PUBLIC_URL"], request.environ)


def absolute_url(endpoint: str, **values: Any) -> str:
    """Return the absolute URL of a view, for use outside of pages."""
    values.setdefault("compatSdk", None)
    return site_url() + url_for(endpoint, **values).removeprefix(request.script_root)


def canonical_url() -> str:
    """Return the URL of this page without its query string."""
    return absolute_url(request.endpoint or "pages.browse", **(request.view_args or {}))


def reader() -> Connection:
    """Return this thread's connection for reading."""
    database: Database = current_app.extensions["database"]
    return database.reader()


def parse_body(body: bytes) -> Any:
    """Parse a JSON body from the API; URLs of stored bundles begin with the public URL."""
    return json.loads(with_bundle_urls(body, site_url()))


def page_response(
    content: str | bytes, status: int = 200, *, mimetype: str = "text/html"
) -> Response:
    """Return a page as a response; with status 200, its ETag is a hash of its bytes.

    If-None-Match is checked later, when the response is complete.
    """
    response = Response(content, status, mimetype=mimetype)
    if status == 200:
        digest = hashlib.sha1(response.get_data(), usedforsecurity=False)
        response.set_etag(digest.hexdigest())
    return response


@pages.after_app_request
def add_security_headers(response: Response) -> Response:
    """Add the page headers to every response outside the API."""
    if not request.path.startswith("/api/"):
        response.headers.update(SECURITY_HEADERS)
        # Pages show install counts, so clients must revalidate them.
        response.headers.setdefault("Cache-Control", "no-cache")
    return response


def redirect_from_slash() -> BaseResponse | None:
    """Redirect to a page if its path has extra slashes at either end; the API never redirects."""
    path = f"/{request.path.strip('/')}"
    if request.url_rule or path == request.path or request.method not in ("GET", "HEAD"):
        return None
    adapter = current_app.create_url_adapter(request)
    if path.startswith("/api/") or not adapter or not adapter.test(path, "GET"):
        return None
    query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
    # The path is encoded, so that the redirect cannot lead to another host.
    return redirect(f"{quote(request.script_root)}{quote(path)}{query}")


def error_page(status: int, message: str) -> str:
    """Return the page for an error; only a 404 page reads the database, for suggestions."""
    scope, name = read_path(request.path)
    words = SEPARATORS.sub(" ", "".join(filter(str.isprintable, name))).strip()
    # A missing file needs no suggestions, and suggestions for a POST would delay installs.
    is_page = request.method in ("GET", "HEAD") and not request.path.startswith("/static/")
    is_searched = status == 404 and is_page and words
    return render_template(
        "error.html",
        status=status,
        message=message,
        words=words if status == 404 else "",
        suggestions=find_similar(scope, name) if is_searched else [],
    )


def read_path(path: str) -> tuple[str, str]:
    """Return the scope and name in a path: /widgets/acme/clock and /clock.html both name clock."""
    segments = [segment for segment in path.split("/") if segment]
    if segments[:1] == ["widgets"] and len(segments) > 2:
        scope, name = segments[1:3]
    else:
        scope, name = "", segments[-1] if segments else ""
    return scope, FILE_EXTENSION.sub("", name)[:MAX_WORDS_LENGTH]


def find_similar(scope: str, name: str) -> list[Suggestion]:
    """Return the widgets with similar names; none if the catalog cannot be read."""
    try:
        return suggest_widgets(reader(), name, scope)
    except (DatabaseError, sqlite3.Error) as error:
        database: Database = current_app.extensions["database"]
        database.log_error("Cannot suggest widgets", error)
    return []
