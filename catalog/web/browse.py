"""The browse and scope pages: search results as cards, and filters with counts.

The API's q matches only display names and descriptions. People also type focus-timer, acme,
@acme/weather or a keyword, so these pages also find names, scopes and keywords.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flask import Response, abort, current_app, redirect, render_template, url_for
from werkzeug import Response as BaseResponse

from ..domain.documents import Json
from ..domain.messages import quoted
from ..store.connection.sqlite import Connection, snapshot
from ..store.read.facets import Facets, find_facets
from ..store.read.scopes import find_scopes, read_scope_totals
from ..store.read.search import find_close_query, find_widgets
from ..store.read.search_params import SearchQuery, parse_page_search
from ..store.read.suggestions import suggest_widgets
from .filters import FILTERS, count_filters, filter_options, search_heading
from .formatting import format_count, page_numbers
from .pages import page_response, pages, parse_body, reader
from .parameters import read_parameters

# This number fills rows of two, four and five cards. More pictures would make the page load slowly.
PAGE_SIZE = 20
# With more scopes, users type the scope into a text field with suggestions.
MAX_SCOPE_OPTIONS = 20
FIELDS = ("q", *FILTERS, "sort", "page")


@pages.get("/")
def browse() -> Response:
    connection, parameters = reader(), read_parameters(*FIELDS)
    query = parse_query(parameters.valid)
    facets = find_facets(connection, query)
    if not facets.total and (close := find_close_query(connection, query)):
        query = close
        facets = find_facets(connection, query)
    results = search_widgets(connection, query)
    form, valid = parameters.sent, parameters.valid
    is_empty = results["total"] == 0
    page = render_template(
        "browse.html",
        parameters=parameters,
        results=results,
        links=pager_links("pages.browse", valid, results["page"], results["total"]),
        options=filter_options(form, facets, parameters.errors),
        heading=search_heading(parameters),
        is_close=query.least_words is not None,
        scopes=find_scopes(connection, form["q"].strip().removeprefix("@").removesuffix("/")),
        lists_scopes=facets.scopes_in_catalog <= MAX_SCOPE_OPTIONS,
        is_empty_catalog=facets.scopes_in_catalog == 0,
        filters=count_filters(parameters),
        suggestions=suggest_for_words(connection, form["q"]) if is_empty else [],
        wider=wider_searches(connection, query, valid, facets) if is_empty else {},
    )
    return page_response(page, parameters.status)


def parse_query(arguments: Mapping[str, str]) -> SearchQuery:
    """Return the search that these valid arguments describe, limited to one page of results."""
    return parse_page_search({**arguments, "limit": str(PAGE_SIZE)})


def search_widgets(connection: Connection, query: SearchQuery) -> Json:
    """Return search results in the same form as the API."""
    results: Json = parse_body(find_widgets(connection, query, find_stored_picture)[1])
    return results


def find_stored_picture(scope: str, name: str, picture: Json) -> Json | None:
    """Return a search result's picture; None if its file is not stored here."""
    return picture if current_app.extensions["bundles"].has(picture["sha256Hash"]) else None


def pager_links(
    endpoint: str, arguments: Mapping[str, Any], page: int, total: int, size: int = PAGE_SIZE
) -> list[tuple[int, str] | None]:
    """Return the number and URL of each page in a pager; None for a gap."""
    last = max(-(-total // size), 1)
    return [
        (number, url_for(endpoint, **{**arguments, "page": number})) if number else None
        for number in page_numbers(min(page, last), last)
    ]


def suggest_for_words(connection: Connection, q: str) -> list[Any]:
    """Return the widgets whose names are similar to the query, which is a name or scope/name."""
    scope, _, name = q.strip().removeprefix("@").rpartition("/")
    return suggest_widgets(connection, name, scope)


def wider_searches(
    connection: Connection, query: SearchQuery, valid: Mapping[str, str], facets: Facets
) -> dict[str, str]:
    """Return links to searches with one filter removed; if those find nothing, with all removed."""
    totals = dict(facets.without)
    # The facets do not include total counts for searches without these filters.
    for name, wider in (("compatible", {"compatible": False}), ("keyword", {"keyword": None})):
        if getattr(query, name):
            totals[name] = find_facets(connection, replace(query, **wider)).total
    arguments: dict[str, Any] = {name: value for name, value in valid.items() if name != "page"}
    links = {
        f"{format_count(totals[name], 'widget')} {text}": url_for(
            "pages.browse", **{**arguments, name: None}
        )
        for name, text in FILTERS.items()
        if totals.get(name)
    }
    if links or len(totals) < 2:
        return links
    unfiltered = {name: value for name, value in arguments.items() if name not in FILTERS}
    total = find_facets(connection, parse_query(unfiltered)).total
    text = f"{format_count(total, 'widget')} without filters"
    return {text: url_for("pages.browse", **unfiltered)} if total else {}


@pages.get("/widgets")
def all_widgets() -> BaseResponse:
    return redirect(url_for("pages.browse"))


@pages.get("/widgets/<scope>")
def scope(scope: str) -> Response:
    connection, parameters = reader(), read_parameters("page")
    query = replace(parse_query(parameters.valid), scope=scope)
    with snapshot(connection):
        totals = read_scope_totals(connection, scope)
        if not totals["widgets"]:
            abort(404, f"There is no widget in the scope {quoted(scope)}.")
        results = search_widgets(connection, query)
    connection.check_deadline()
    page = render_template(
        "scope.html",
        scope=scope,
        totals=totals,
        parameters=parameters,
        results=results,
        links=pager_links("pages.scope", {"scope": scope}, query.page, totals["widgets"]),
    )
    return page_response(page, parameters.status)
