"""/docs and /openapi.json: the API reference, for people and for programs."""

import json
import re
import shlex
import sqlite3
from typing import Any, NamedTuple

from flask import Response, current_app, render_template
from werkzeug.http import generate_etag

from .. import V1_PREFIX
from ..documents import Json
from ..public_url import public_url
from ..store.connection.database import Database
from ..store.connection.sqlite import Connection, DatabaseError
from ..store.read.detail import LATEST, find_detail
from ..store.read.search_params import parse_search
from ..store.read.updates import parse_updates
from . import openapi
from .browse import search_widgets
from .openapi import Operation
from .pages import page_response, pages, parse_body
from .updates import load_updates

OPERATIONS = openapi.load_operations()
SCHEMAS = openapi.load_schemas()
RESPONSE_HEADERS = openapi.describe_headers(OPERATIONS)
SEARCH_OPERATION = next(operation for operation in OPERATIONS if operation.id == "searchWidgets")

# Bounds of what an example shows of a long text or list.
MAX_EXAMPLE_TEXT = 300
MAX_EXAMPLE_ITEMS = 20
# Characters that change the direction of the text after them.
BIDI_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

pages.add_app_template_filter(openapi.render_code_spans)


@pages.get("/openapi.json")
def openapi_json() -> Response:
    description = openapi.render_description(public_url())
    response = Response(description, mimetype="application/json")
    response.set_etag(generate_etag(description))
    response.headers["Cache-Control"] = "no-cache"
    return response


@pages.get("/docs")
def docs() -> Response:
    database: Database = current_app.extensions["database"]
    try:
        return page_response(render_reference(load_examples(database.reader())))
    except (DatabaseError, sqlite3.Error) as error:
        # The reference does not need the database: show the examples of openapi.json.
        database.faults.log("The database cannot be read", error)
        return Response(render_reference({}), mimetype="text/html")


def render_reference(examples: "dict[str, CatalogExample]") -> str:
    search = examples.get("searchWidgets")
    return render_template(
        "docs.html",
        info=openapi.DESCRIPTION["info"],
        tags=openapi.DESCRIPTION["tags"],
        examples=[build_example(each, examples.get(each.id), bool(search)) for each in OPERATIONS],
        # The version that the first steps of the page lead to.
        entry=search and search.response["widgets"][0]["latestCompatibleVersion"],
        server_url=public_url(),
        schemas=SCHEMAS,
        headers=RESPONSE_HEADERS,
    )


@pages.get("/publish")
def publish() -> Response:
    settings = {"server_url": public_url(), "contact": current_app.config["CONTACT"]}
    return page_response(render_template("publish.html", **settings))


class CatalogExample(NamedTuple):
    """The parameters of a request to this catalog, and its response; None for that of openapi.json.

    is_live: whether this catalog has the response.
    """

    values: dict[str, str]
    response: Any = None
    is_live: bool = True


def load_examples(connection: Connection) -> dict[str, CatalogExample]:
    """Return examples from this catalog by operation; none if it has no listed widget."""
    query = openapi.example_values(SEARCH_OPERATION)
    results = search_widgets(connection, parse_search(query))
    if not results["widgets"]:
        del query["q"]
        results = search_widgets(connection, parse_search(query))
    if not results["widgets"]:
        return {}
    first = results["widgets"][0]
    widget = {"scope": first["scope"], "name": first["name"]}
    found = find_detail(connection, **widget)
    if found is None:
        # It was removed after the search.
        return {}
    detail = parse_body(found[1])
    numbers = [entry["version"] for entry in detail["versions"]] or ["1.0.0"]
    own_prefix = f"{public_url()}{V1_PREFIX}"
    held = [each for each in detail["versions"] if each["bundleUrl"].startswith(own_prefix)]
    bundle = held[0]["version"] if held else numbers[0]
    installed = "{scope}/{name}@{version}".format(**widget, version=numbers[-1])
    updates = {"compatSdk": query["compatSdk"], "installed": installed}
    update = load_updates(connection, parse_updates(updates["compatSdk"], [installed]))
    # One widget: rendering a whole scope could take long.
    entry = {key: value for key, value in detail["widget"].items() if key != "downloadCount"}
    entry |= {"latestVersion": detail["latestVersion"], "versions": detail["versions"]}
    registry = {"scope": widget["scope"], "widgets": [entry]}
    latest = first["latestVersion"]
    return {
        "searchWidgets": CatalogExample(query, results),
        "getUpdates": CatalogExample(updates, update),
        "getWidget": CatalogExample(widget, detail),
        "getWidgetVersion": CatalogExample({**widget, "version": LATEST}, latest, bool(latest)),
        "countInstall": CatalogExample(widget),
        "getBundle": CatalogExample({**widget, "version": bundle}, None, bool(held)),
        "getRegistry": CatalogExample({"scope": widget["scope"]}, registry),
    }


def build_example(operation: Operation, own: CatalogExample | None, has_catalog: bool) -> Json:
    """Return the example of an operation: from the catalog, else from openapi.json.

    is_live: whether this service has that response, so that the page can send the request.
    """
    values = own.values if own else openapi.example_values(operation)
    body = own.response if own and own.response is not None else operation.example
    target = openapi.build_target(operation, values)
    method = "" if operation.method == "GET" else f"-X {operation.method} "
    return {
        "operation": operation,
        # In a template, example.values is the method of a dict.
        "parameters": values,
        "target": target,
        "command": f"curl -s {method}{shlex.quote(f'{public_url()}{target}')}",
        "response": "" if body is None else format_example(abridge(body)),
        "is_abridged": abridge(body) != body,
        "is_live": own.is_live if own else has_catalog or "{" not in operation.path,
    }


def abridge(value: object) -> object:
    """Return the value with one object of each list, and the start of long texts and lists."""
    if isinstance(value, dict):
        return {key: abridge(inner) for key, inner in value.items()}
    if isinstance(value, list):
        items = value[:1] if value and isinstance(value[0], dict) else value[:MAX_EXAMPLE_ITEMS]
        return [abridge(item) for item in items]
    if isinstance(value, str) and len(value) > MAX_EXAMPLE_TEXT:
        return value[: MAX_EXAMPLE_TEXT - 1] + "…"
    return value


def format_example(value: object) -> str:
    """Return the value as indented JSON, with escapes for bidirectional control characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return BIDI_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
