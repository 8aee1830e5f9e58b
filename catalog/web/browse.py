"""The browse page: a form, search results as cards, and counts for each value of a filter.

The API's q matches display names and descriptions only. People also type focus-timer or
acme/weather, so the page lists widgets with that name before the results. The filters permission
and license are no parameters of the API either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from flask import render_template, request, url_for

from ..documents import Json
from ..routing import public_url
from ..store.connection.sqlite import Connection
from ..store.read.facets import Facets, find_facets
from ..store.read.search_params import NONE, ParameterError, SearchQuery, parse_search
from ..store.read.suggestions import Suggestion, suggest_widgets
from ..validators import MAX_IDENTIFIER_LENGTH
from .formatting import format_count, page_numbers
from .forms import SDK_ERROR, read_sdk
from .queries import search_widgets

# Fills rows of two, three and four cards.
PAGE_SIZE = 24
# With more scopes, the field is a text field with suggestions.
MAX_SCOPE_OPTIONS = 20
FORM_FIELDS = (
    *("q", "compatSdk", "compatible", "scope", "official", "permission", "license", "sort"),
    "page",
)
# What a person can remove from a search that found nothing, and what is then found.
FILTERS = {
    "compatible": "for any SDK",
    "scope": "in any scope",
    "official": "made by anyone",
    "permission": "with any permissions",
    "license": "with any licence",
}
SORTS = {
    "installs": "Most installed",
    "updated": "Recently updated",
    "created": "Newest",
    "name": "Name",
}
COMPATIBLE_ERROR = "Enter your SDK version to see only widgets that run on it."


class Option(NamedTuple):
    """An option of a select element, with the number of widgets if it is shown."""

    value: str
    label: str
    widgets: int | None = None


class Link(NamedTuple):
    """A link with its text."""

    url: str
    text: str


def render_browse(connection: Connection) -> tuple[str, int]:
    """Return the page that the query string describes, and its status."""
    form = {name: request.args.get(name, "") for name in FORM_FIELDS}
    sdk = read_sdk(form["compatSdk"])
    form["compatSdk"] = form["compatSdk"].strip()
    for name in ("compatible", "official"):
        # Python clients send True.
        form[name] = form[name].lower()
    # Forms send empty fields.
    arguments = {name: value for name, value in form.items() if value}
    if sdk.sdk:
        arguments["compatSdk"] = sdk.sdk
    errors = field_errors(arguments)
    valid = {name: value for name, value in arguments.items() if name not in errors}
    query = parse_query(valid)
    facets = find_facets(connection, with_typed_name(query, valid))
    results = None if errors else load_page(connection, query, valid)
    links = page_links(arguments, results) if results else []
    is_empty = results is not None and results["total"] == 0
    page = render_template(
        "browse.html",
        form=form,
        errors=errors,
        sdk=sdk,
        results=results,
        links=links,
        options=filter_options(form, facets, errors),
        facets=facets,
        lists_scopes=facets.scopes_in_catalog <= MAX_SCOPE_OPTIONS,
        active=sum(bool(form[name]) for name in ("compatSdk", "sort", *FILTERS)),
        first_page=browse_url({**arguments, "page": ""}),
        previous_page=browse_url({**arguments, "page": query.page - 1}),
        next_page=browse_url({**arguments, "page": query.page + 1}),
        suggestions=suggest_for_words(connection, form["q"]) if is_empty else [],
        wider=wider_searches(connection, query, valid, facets) if is_empty else [],
    )
    return page, 400 if errors else 200


def field_errors(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return a message for each invalid field."""
    errors = {}
    for name, value in arguments.items():
        # This one is valid only with an SDK.
        others = {"compatSdk": "1.0.0"} if name == "compatible" else {}
        try:
            parse_search({**others, name: value})
        except ParameterError as error:
            errors[name] = SDK_ERROR if name == "compatSdk" else str(error)
    if arguments.get("compatible") == "true" and "compatSdk" not in arguments:
        errors["compatible"] = COMPATIBLE_ERROR
    return errors


def parse_query(arguments: Mapping[str, str]) -> SearchQuery:
    """Return the search of valid arguments."""
    if "compatSdk" not in arguments:
        arguments = {name: value for name, value in arguments.items() if name != "compatible"}
    return replace(
        parse_search({**arguments, "limit": str(PAGE_SIZE)}),
        permission=arguments.get("permission"),
        license=arguments.get("license"),
    )


def with_typed_name(query: SearchQuery, arguments: Mapping[str, str]) -> SearchQuery:
    """Return the search for widgets that have q as their name, unless no name is so long."""
    typed = arguments.get("q", "").strip()
    is_name = query.q and len(typed) <= 2 * MAX_IDENTIFIER_LENGTH + len("/")
    return replace(query, name=typed, page=1) if is_name else query


def load_page(connection: Connection, query: SearchQuery, arguments: Mapping[str, str]) -> Json:
    """Return the results; on the first page, widgets with the typed name come before the others."""
    results = search_widgets(connection, query, public_url())
    results["last_page"] = max(-(-results["total"] // PAGE_SIZE), 1)
    typed = with_typed_name(query, arguments)
    if typed.name is not None:
        named = search_widgets(connection, typed, public_url())
        results["total"] += len(named["widgets"])
        if query.page == 1:
            results["widgets"] = named["widgets"] + results["widgets"]
    return results


def browse_url(arguments: Mapping[str, Any]) -> str:
    """Return the URL of the page with these arguments, without the empty ones."""
    return url_for("pages.browse", **{name: value for name, value in arguments.items() if value})


def page_links(arguments: Mapping[str, str], results: Json) -> list[tuple[int, str] | None]:
    """Return the number and URL of each page in the pager; None for a gap."""
    last = results["last_page"]
    numbers = page_numbers(min(results["page"], last), last)
    return [
        (number, browse_url({**arguments, "page": number})) if number else None
        for number in numbers
    ]


def filter_options(
    form: Mapping[str, str], facets: Facets, errors: Mapping[str, str]
) -> dict[str, list[Option]]:
    """Return the options of each select element. The selected one is always among them."""
    # Without words, the default order is that of most installs.
    sorts = [("", "Best match"), *SORTS.items()] if form["q"].strip() else [*SORTS.items()]
    options = {
        "scope": [Option("", "All scopes"), *map(_option, sorted(facets.scopes))],
        "official": [
            Option("", "Anyone"),
            Option("true", "Official only", facets.official),
            Option("false", "Not official", facets.not_official),
        ],
        "permission": [
            Option("", "Any permissions"),
            *_with_none(facets.permissions, "No permissions"),
        ],
        "license": [Option("", "Any licence"), *_with_none(facets.licenses, "No licence")],
        "sort": [Option(value, label) for value, label in sorts],
    }
    if not form["q"].strip() and not form["sort"]:
        options["sort"][0] = Option("", SORTS["installs"])
    for name, choices in options.items():
        if form[name] not in {choice.value for choice in choices}:
            choices.append(Option(form[name], form[name], None if name in errors else 0))
    return options


def _option(value_and_count: tuple[str, int]) -> Option:
    value, count = value_and_count
    return Option(value, value, count)


def _with_none(counts: Iterable[tuple[str, int]], label: str) -> list[Option]:
    """Return the options of a filter, with a label for the widgets that have no value."""
    options = [Option(value, label if value == NONE else value, count) for value, count in counts]
    return sorted(options, key=lambda option: option.value != NONE)


def suggest_for_words(connection: Connection, q: str) -> list[Suggestion]:
    """Return the widgets that may be meant by words, a name or scope/name."""
    scope, _, name = q.strip().rpartition("/")
    return suggest_widgets(connection, name, scope=scope)


def wider_searches(
    connection: Connection, query: SearchQuery, arguments: Mapping[str, str], facets: Facets
) -> list[Link]:
    """Return searches without one of the filters, or else without all, that find something."""
    totals = dict(facets.without)
    if query.compatible:
        others = with_typed_name(replace(query, compatible=False), arguments)
        totals["compatible"] = find_facets(connection, others).total
    arguments = {**arguments, "page": ""}
    links = [
        Link(browse_url({**arguments, name: ""}), f"{format_count(totals[name], 'widget')} {text}")
        for name, text in FILTERS.items()
        if totals.get(name)
    ]
    if links or len(totals) < 2:
        return links
    unfiltered = {**arguments, **dict.fromkeys(FILTERS, "")}
    words_only = parse_query({name: value for name, value in unfiltered.items() if value})
    total = find_facets(connection, with_typed_name(words_only, arguments)).total
    text = f"{format_count(total, 'widget')} without filters"
    return [Link(browse_url(unfiltered), text)] if total else []
