"""The web pages: browse the catalog, look at one widget. They work without any script."""

import hashlib
import json
from pathlib import Path

from flask import Blueprint, Response, abort, current_app, render_template, request, url_for
from markupsafe import Markup

from catalog.documents import Json
from catalog.routing import catch_all, known_methods, options_or_405, public_url
from catalog.store.database import Database
from catalog.store.detail import compatible_versions, find_detail
from catalog.store.json_sql import with_bundle_urls
from catalog.store.search_params import ParameterError, parse_search
from catalog.store.sqlite import Connection
from catalog.text import quoted
from catalog.web import formatting
from catalog.web.browsing import search_page, widgets_named
from catalog.web.icons import icon_svg

PAGE_SIZE = 24  # fills rows of two, three and four
MAX_SCOPES = 200  # to choose from; a widget's own is always a link
FIELDS = ("q", "scope", "official", "compatSdk", "page")

SCRIPTS = {
    path.name: formatting.integrity(hashlib.sha256(path.read_bytes()).hexdigest())
    for path in (Path(__file__).parent / "static").glob("*.js")
}

# Nothing but our own files, no framing, and no script or style inside a page: whatever the
# catalog's text says, it stays text. Scripts are admitted by their hashes: the bundles that are
# held here have the same origin, but must not run in a page.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; "
    "script-src " + " ".join(f"'{each}'" for each in sorted(SCRIPTS.values())) + "; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

# The API's own sentence speaks of the address, which a form writes by itself.
SDK_ERROR = "An SDK version is three numbers without a v, such as 1.4.0."

pages = Blueprint(
    "pages",
    __name__,
    template_folder="templates",
    static_folder="static",
    static_url_path="/static",
)
for present in (
    formatting.number,
    formatting.short_number,
    formatting.bytes_size,
    formatting.day,
    formatting.shortened,
    formatting.is_prerelease,
    formatting.integrity,
    formatting.fetch_command,
    formatting.check_command,
    formatting.size_drawing,
    formatting.counted,
):
    pages.add_app_template_filter(present)


@pages.app_template_filter()
def script_integrity(name: str) -> str:
    """The integrity attribute of one of our scripts, the same hash as in the policy."""
    return SCRIPTS[name]


@pages.app_template_filter()
def icon(widget: Json) -> Markup:
    """The icon of a widget or version, or its letter; what comes back is safe in a page."""
    seed = f"{widget['scope']}/{widget['name']}"
    directory = str(current_app.config["ICONS"])
    return Markup(icon_svg(widget["icon"], directory, name=widget["displayName"], seed=seed))  # noqa: S704


@pages.get("/")
def browse() -> tuple[str, int]:
    typed = {name: request.args.get(name, "") for name in FIELDS}
    typed["compatSdk"] = typed["compatSdk"].strip()  # a clipboard often brings a space
    asked = {name: value for name, value in typed.items() if value}  # forms send empty fields
    errors = field_errors(asked)
    answer, links = None, []
    connection = reader()
    if not errors:
        arguments = {**asked, "limit": str(PAGE_SIZE)}
        answer = search_page(connection, arguments, public_url())
        links = page_links(asked, answer)
        named = widgets_named(connection, arguments, public_url())
        answer["total"] += len(named)
        if answer["page"] == 1:
            answer["widgets"] = named + answer["widgets"]
    page = render_template(
        "browse.html",
        typed=typed,
        errors=errors,
        answer=answer,
        links=links,
        scopes=scopes(connection, typed["scope"]),
    )
    return page, 400 if errors else 200


def reader() -> Connection:
    database: Database = current_app.extensions["database"]
    return database.reader()


def field_errors(asked: dict[str, str]) -> dict[str, str]:
    """What is wrong with each field that cannot be used."""
    errors = {}
    for name, value in asked.items():
        try:
            parse_search({name: value})
        except ParameterError as error:
            errors[name] = SDK_ERROR if name == "compatSdk" else str(error)
    return errors


def page_links(asked: dict[str, str], answer: Json) -> list[tuple[int, str] | None]:
    """The pages of an answer to go to, each with its address; None for a gap."""
    last = max(-(-answer["total"] // PAGE_SIZE), 1)
    numbers = formatting.page_numbers(min(answer["page"], last), last)
    return [
        (number, url_for("pages.browse", **{**asked, "page": str(number)})) if number else None  # type: ignore[arg-type]
        for number in numbers
    ]


SCOPES = """
SELECT scope FROM listing GROUP BY scope ORDER BY count(*) DESC, scope LIMIT :limit
"""


def scopes(connection: Connection, chosen: str) -> list[str]:
    """The scopes to choose from: those with the most widgets, and the one that is chosen."""
    found = {scope for (scope,) in connection.execute(SCOPES, {"limit": MAX_SCOPES})}
    return sorted(found | ({chosen} if chosen else set()))


@pages.get("/widgets/<scope>/<name>")
def widget(scope: str, name: str) -> tuple[str, int]:
    found = find_detail(reader(), scope, name)
    if found is None:
        abort(404, f"There is no widget {quoted(f'{scope}/{name}')}.")
    detail = json.loads(with_bundle_urls(found[1], public_url()))
    typed = request.args.get("compatSdk", "").strip()
    errors = field_errors({"compatSdk": typed} if typed else {})
    sdk = "" if errors else typed
    offered = [entry for entry in detail["versions"] if not entry["yanked"]]
    compatible = compatible_versions(reader(), scope, name, sdk) if sdk else set()
    fitting = [entry for entry in offered if entry["version"] in compatible]
    # A page of thousands of versions takes seconds to render.
    reader().check_deadline()
    page = render_template(
        "widget.html",
        widget=detail["widget"],
        versions=detail["versions"],
        latest=next(iter(offered), None),
        fitting=next(iter(fitting), None),
        fits=compatible,
        typed=typed,
        errors=errors,
        sdk=sdk,
        chart=formatting.releases_chart(detail["versions"]),
    )
    return page, 400 if errors else 200


def error_page(status: int | None, message: str | None) -> str:
    """The page that says what went wrong; it asks nothing of the database."""
    return render_template("missing.html", status=status, message=message)


def unmatched() -> Response:
    methods = known_methods(request.path)
    if methods:
        return options_or_405(methods)
    abort(404)


catch_all(pages, "/", unmatched)


@pages.after_app_request
def protect(response: Response) -> Response:
    """Say to browsers what a page may do; answers of the API are no pages."""
    if not request.path.startswith("/api/"):
        response.headers.update(HEADERS)
        if response.mimetype == "text/html":
            response.headers["Cache-Control"] = "no-cache"  # counts change
    return response
