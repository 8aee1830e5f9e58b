"""The web pages: what all of them have in common, and the one to browse the catalog.

They work without JavaScript. The modules widget_pages and scope_pages add their routes.
"""

from collections.abc import Iterable
from typing import Any

from flask import Blueprint, Response, current_app, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from markupsafe import Markup

from .. import __version__
from ..documents import Json
from ..store.connection.database import Database
from ..store.connection.deadlines import Deadline
from ..store.connection.sqlite import Connection
from ..text import find_replacement, shorten
from . import formatting
from .browse import render_browse
from .caching import page_response
from .charts import size_drawing
from .icons import icon_svg
from .markdown import render_markdown
from .not_found import suggest_for_path
from .static_files import SCRIPT_HASHES
from .urls import absolute_url, canonical_url

# Pages load only our own files, run no inline script or style, and cannot be framed. Scripts are
# allowed by hash, not by 'self': held bundles have the same origin but must not run in a page.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; "
    "script-src " + " ".join(f"'{each}'" for each in sorted(SCRIPT_HASHES.values())) + "; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

# A few hundred of them take a millisecond.
PIECES_PER_CHECK = 100

pages = Blueprint("pages", __name__, template_folder="templates")
for template_filter in (
    formatting.format_number,
    formatting.format_short_number,
    formatting.format_bytes,
    formatting.format_day,
    formatting.format_count,
    shorten,
    formatting.is_prerelease,
    formatting.sri_hash,
    formatting.fetch_command,
    formatting.check_command,
    size_drawing,
    render_markdown,
):
    pages.add_app_template_filter(template_filter)


@pages.app_context_processor
def template_globals() -> dict[str, Any]:
    """Return what every template may use."""
    return {"absolute_url": absolute_url, "canonical_url": canonical_url, "release": __version__}


@pages.app_template_filter()
def icon(widget: Json) -> Markup:
    """Return the icon of a widget or version as SVG that is safe in a page."""
    seed = f"{widget['scope']}/{widget['name']}"
    directory = str(current_app.config["ICONS"])
    return Markup(icon_svg(widget["icon"], directory, name=widget["displayName"], seed=seed))  # noqa: S704


@pages.app_template_filter()
def link_replacement(message: str, length: int) -> str:
    """Return a warning, shortened or with a link to the widget that replaces this one."""
    replacement = find_replacement(message)
    if replacement is None or len(message) > length:
        return shorten(message, length)
    before, scope, name = replacement
    url = url_for("pages.widget", scope=scope, name=name)
    return Markup('{}<a href="{}">{}/{}</a>.').format(before, url, scope, name)


@pages.record
def check_deadline_in_templates(state: BlueprintSetupState) -> None:
    """Have a template raise DeadlineExceeded while it is rendered."""
    deadline: Deadline = state.app.extensions["database"].deadline

    def join(pieces: Iterable[str]) -> str:
        texts = []
        for number, piece in enumerate(pieces):
            if number % PIECES_PER_CHECK == 0:
                deadline.check()
            texts.append(piece)
        return "".join(texts)

    # Jinja joins the pieces of every template with it.
    state.app.jinja_env.concat = join  # type: ignore[method-assign]


@pages.get("/")
def browse() -> Response:
    return page_response(render_browse(reader()))


def reader() -> Connection:
    """Return this thread's connection for reading."""
    database: Database = current_app.extensions["database"]
    return database.reader()


def error_page(status: int, message: str) -> str:
    """Return the page for an error; only that for 404 reads the database, for suggestions."""
    suggestions = suggest_for_path(request.path) if status == 404 else None
    return render_template("error.html", status=status, message=message, suggestions=suggestions)


@pages.after_app_request
def add_security_headers(response: Response) -> Response:
    """Add the headers of a page to every response outside the API."""
    if not request.path.startswith("/api/"):
        response.headers.update(SECURITY_HEADERS)
        if response.mimetype == "text/html":
            # Install counts change.
            response.headers["Cache-Control"] = "no-cache"
    return response
