"""The browse page and the page of a scope: search results as cards, filters with their counts.

The API's q matches display names and descriptions only. People also type focus-timer, acme or
@acme/weather, so these pages find names and scopes too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from flask import Response, abort, current_app, redirect, render_template, url_for
from werkzeug import Response as BaseResponse

from ..documents import Json
from ..store.connection.sqlite import Connection, snapshot
from ..store.read.facets import Facets, find_facets
from ..store.read.search import find_widgets
from ..store.read.search_params import NONE, WITHOUT, SearchQuery, parse_search
from ..store.read.suggestions import suggest_widgets
from ..text import quoted
from ..validators import MAX_IDENTIFIER_LENGTH
from .formatting import format_count, page_numbers
from .pages import page_response, pages, parse_body, reader
from .parameters import read_parameters

# Fills rows of two, three and four cards.
PAGE_SIZE = 24
# With more scopes, the field is a text field with suggestions.
MAX_SCOPE_OPTIONS = 20
# What a person can remove from a search that found nothing, and what is then found.
FILTERS = {
    "compatible": "for any SDK",
    "scope": "in any scope",
    "official": "made by anyone",
    "permission": "with any permissions",
    "license": "with any licence",
}
DEFAULTS = {"compatible": "false"}
FIELDS = ("q", *FILTERS, "sort", "page")
SORTS = {
    "installs": "Most installed",
    "updated": "Recently updated",
    "created": "Newest",
    "name": "Name",
}


class Option(NamedTuple):
    """An option of a select element, with the number of widgets if it is shown."""

    value: str
    label: str
    widgets: int | None = None


@pages.get("/")
def browse() -> Response:
    connection, parameters = reader(), read_parameters(*FIELDS)
    query = parse_query(parameters.valid)
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
        scopes=find_scopes(connection, query.typed),
        lists_scopes=facets.scopes_in_catalog <= MAX_SCOPE_OPTIONS,
        # The order is no filter, and compatible=false is the default.
        active=sum(form[name] not in ("", DEFAULTS.get(name)) for name in ("compatSdk", *FILTERS)),
        suggestions=suggest_for_words(connection, form["q"]) if is_empty else [],
        wider=wider_searches(connection, query, valid, facets) if is_empty else {},
    )
    return page_response(page, parameters.status)


def parse_query(arguments: Mapping[str, str]) -> SearchQuery:
    """Return the search of valid arguments, which also finds a typed name or scope."""
    query = parse_search({**arguments, "limit": str(PAGE_SIZE)})
    typed = arguments.get("q", "").strip().removeprefix("@")
    # No name is longer.
    is_name = query.q and 0 < len(typed) <= 2 * MAX_IDENTIFIER_LENGTH + len("/")
    return replace(query, typed=typed if is_name else None)


def search_widgets(connection: Connection, query: SearchQuery) -> Json:
    """Return the results of a search, as the API has them."""
    results: Json = parse_body(find_widgets(connection, query)[1])
    add_pictures(connection, results["widgets"])
    return results


PICTURES = """
SELECT given.key, picture FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN about ON widget_id = widget.id
WHERE picture IS NOT NULL
"""


def add_pictures(connection: Connection, widgets: list[Json]) -> None:
    """Give each widget the picture that it has, if the file is here."""
    names = json.dumps([(each["scope"], each["name"]) for each in widgets])
    for index, text in connection.execute(PICTURES, {"names": names}):
        picture = json.loads(text)
        if current_app.extensions["bundles"].holds(picture["sha256Hash"]):
            widgets[index]["picture"] = picture


# A few scopes differ only in case.
SCOPES_NAMED = """
SELECT scope, count(*) AS widgets FROM listing WHERE scope = :scope COLLATE NOCASE
GROUP BY scope ORDER BY widgets DESC, scope LIMIT 3
"""


def find_scopes(connection: Connection, typed: str | None) -> list[Any]:
    """Return the scopes that a person typed, each with the number of its listed widgets."""
    scope = (typed or "").removesuffix("/")
    return connection.execute(SCOPES_NAMED, {"scope": scope}).fetchall() if scope else []


def pager_links(
    endpoint: str, arguments: Mapping[str, Any], page: int, total: int, size: int = PAGE_SIZE
) -> list[tuple[int, str] | None]:
    """Return the number and URL of each page in a pager; None for a gap."""
    last = max(-(-total // size), 1)
    return [
        (number, url_for(endpoint, **{**arguments, "page": number})) if number else None
        for number in page_numbers(min(page, last), last)
    ]


def filter_options(
    form: Mapping[str, str], facets: Facets, errors: Mapping[str, str]
) -> dict[str, list[Option]]:
    """Return the options of each select element. The selected one is always among them."""
    # Without words, the default order is that of most installs.
    sorts = [("", "Best match"), *SORTS.items()] if form["q"].strip() else [*SORTS.items()]
    options = {
        "scope": [
            Option("", "All"),
            *(Option(scope, scope, count) for scope, count in sorted(facets.scopes)),
        ],
        "official": [
            Option("", "Anyone"),
            Option("true", "Official only", facets.official),
            Option("false", "Not official", facets.not_official),
        ],
        "permission": [
            Option("", "Any"),
            *_with_none(facets.permissions),
            *(Option(WITHOUT + name, f"Without {name}", count) for name, count in facets.lacking),
        ],
        "license": [Option("", "Any"), *_with_none(facets.licenses)],
        "sort": [Option(value, label) for value, label in sorts],
    }
    if not form["q"].strip() and not form["sort"]:
        options["sort"][0] = Option("", SORTS["installs"])
    for name, choices in options.items():
        if form[name] not in {choice.value for choice in choices}:
            choices.append(Option(form[name], form[name], None if name in errors else 0))
    return options


def _with_none(counts: Iterable[tuple[str, int]]) -> list[Option]:
    """Return the options of a filter, first that for the widgets that have no value."""
    options = [Option(value, "None" if value == NONE else value, count) for value, count in counts]
    return sorted(options, key=lambda option: option.value != NONE)


def suggest_for_words(connection: Connection, q: str) -> list[Any]:
    """Return the widgets that may be meant by words, a name or scope/name."""
    scope, _, name = q.strip().removeprefix("@").rpartition("/")
    return suggest_widgets(connection, name, scope=scope)


def wider_searches(
    connection: Connection, query: SearchQuery, valid: Mapping[str, str], facets: Facets
) -> dict[str, str]:
    """Return the URLs of searches without one filter, or else without all, that find something."""
    totals = dict(facets.without)
    if query.compatible:
        totals["compatible"] = find_facets(connection, replace(query, compatible=False)).total
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


# Installs as far as they are known.
SCOPE_TOTALS = """
SELECT count(*) AS widgets, coalesce(sum(max(downloads, 0)), 0) AS installs,
    (SELECT count(*) FROM listing CROSS JOIN version USING (widget_id) WHERE scope = :scope)
        AS versions,
    (SELECT iif(count(DISTINCT homepage) = 1, min(homepage), NULL)
        FROM listing CROSS JOIN about USING (widget_id) WHERE scope = :scope) AS homepage
FROM listing WHERE scope = :scope
"""


@pages.get("/widgets/<scope>")
def scope(scope: str) -> Response:
    connection, parameters = reader(), read_parameters("page")
    query = replace(parse_query(parameters.valid), scope=scope)
    with snapshot(connection):
        totals = connection.execute(SCOPE_TOTALS, {"scope": scope}).fetchone()
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
