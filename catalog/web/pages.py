"""The web pages: what all of them have in common, and the one to browse the catalog.

They work without JavaScript. The modules widget_pages and scope_pages add their routes.
"""

from typing import Any

from flask import Blueprint, Response, abort, current_app, render_template, request, url_for
from markupsafe import Markup

from catalog import __version__
from catalog.documents import Json
from catalog.routing import catch_all, known_methods, options_or_405, public_url
from catalog.store.database import Database
from catalog.store.search_params import ParameterError, parse_search
from catalog.store.sqlite import Connection
from catalog.text import shorten
from catalog.web import formatting
from catalog.web.caching import page_response
from catalog.web.charts import size_drawing
from catalog.web.forms import SDK_ERROR
from catalog.web.icons import icon_svg
from catalog.web.markdown import render_markdown
from catalog.web.not_found import suggest_for_path
from catalog.web.queries import load_results, load_scopes, load_widgets_named
from catalog.web.static_files import SCRIPT_HASHES
from catalog.web.urls import absolute_url, canonical_url

# Fills rows of two, three and four cards.
PAGE_SIZE = 24
# The options of the scope filter. Each widget's page links to its scope.
MAX_SCOPES = 200
FORM_FIELDS = ("q", "scope", "official", "compatSdk", "page")

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


@pages.get("/")
def browse() -> Response:
    return page_response(render_browse)


def render_browse() -> tuple[str, int]:
    form = {name: request.args.get(name, "") for name in FORM_FIELDS}
    # Copied text often ends with a space.
    form["compatSdk"] = form["compatSdk"].strip()
    # Forms send empty fields.
    query = {name: value for name, value in form.items() if value}
    errors = field_errors(query)
    results, links = None, []
    connection = reader()
    if not errors:
        arguments = {**query, "limit": str(PAGE_SIZE)}
        results = load_results(connection, arguments, public_url())
        links = page_links(query, results)
        name_matches = load_widgets_named(connection, arguments, public_url())
        results["total"] += len(name_matches)
        if results["page"] == 1:
            results["widgets"] = name_matches + results["widgets"]
    # The selected scope is always an option.
    scopes = load_scopes(connection, MAX_SCOPES) | ({form["scope"]} if form["scope"] else set())
    page = render_template(
        "browse.html",
        form=form,
        errors=errors,
        results=results,
        links=links,
        scopes=sorted(scopes),
    )
    return page, 400 if errors else 200


def reader() -> Connection:
    """Return this thread's connection for reading."""
    database: Database = current_app.extensions["database"]
    return database.reader()


def field_errors(query: dict[str, str]) -> dict[str, str]:
    """Return a message for each invalid field."""
    errors = {}
    for name, value in query.items():
        try:
            parse_search({name: value})
        except ParameterError as error:
            errors[name] = SDK_ERROR if name == "compatSdk" else str(error)
    return errors


def page_links(query: dict[str, str], results: Json) -> list[tuple[int, str] | None]:
    """Return the number and URL of each page in the pager; None for a gap."""
    last = max(-(-results["total"] // PAGE_SIZE), 1)
    numbers = formatting.page_numbers(min(results["page"], last), last)
    arguments: dict[str, Any] = dict(query)
    return [
        (number, url_for("pages.browse", **{**arguments, "page": number})) if number else None
        for number in numbers
    ]


def error_page(status: int, message: str) -> str:
    """Return the page for an error; only that for 404 reads the database, for suggestions."""
    suggestions = suggest_for_path(request.path) if status == 404 else None
    return render_template("error.html", status=status, message=message, suggestions=suggestions)


def unmatched_page() -> Response:
    methods = known_methods(request.path)
    if methods:
        return options_or_405(methods)
    abort(404)


catch_all(pages, "/", unmatched_page)


@pages.after_app_request
def add_security_headers(response: Response) -> Response:
    """Add the headers of a page to every response outside the API."""
    if not request.path.startswith("/api/"):
        response.headers.update(SECURITY_HEADERS)
        if response.mimetype == "text/html":
            # Install counts change.
            response.headers["Cache-Control"] = "no-cache"
    return response
