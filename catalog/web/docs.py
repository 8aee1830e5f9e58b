"""/docs and /openapi.json: the API reference, for people and for programs."""

import json
import re
import shlex
import sqlite3
from typing import NamedTuple

from flask import Blueprint, Response, current_app, render_template, request
from werkzeug.http import generate_etag

from .. import V1_PREFIX
from ..documents import Json
from ..routing import public_url
from ..store.connection.database import Database
from ..store.connection.sqlite import Connection, DatabaseError
from ..store.read.detail import LATEST
from ..store.read.updates import parse_updates
from . import openapi
from .caching import page_response
from .openapi import Operation
from .queries import load_results, load_updates, load_widget

OPERATIONS = openapi.load_operations()
SCHEMAS = openapi.load_schemas()
RESPONSE_HEADERS = openapi.describe_headers(OPERATIONS)
SEARCH_OPERATION = next(operation for operation in OPERATIONS if operation.id == "searchWidgets")

# Bounds of what an example shows of a long text or list.
MAX_EXAMPLE_TEXT = 300
MAX_EXAMPLE_ITEMS = 20
# Characters that change the direction of the text after them.
BIDI_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

docs = Blueprint("docs", __name__)
docs.add_app_template_filter(openapi.render_code_spans)


@docs.get("/openapi.json")
def openapi_json() -> Response:
    description = openapi.render_description(public_url())
    response = Response(description, mimetype="application/json")
    response.set_etag(generate_etag(description))
    response.headers["Cache-Control"] = "no-cache"
    response.make_conditional(request)
    return response


@docs.get("/docs")
def reference() -> Response:
    database: Database = current_app.extensions["database"]
    try:
        return page_response(render_reference(load_examples(database.reader())))
    except (DatabaseError, sqlite3.Error) as error:
        # The reference does not need the database: show the examples of openapi.json.
        database.faults.log("The database cannot be read", error)
        return Response(render_reference(None), mimetype="text/html")


def render_reference(catalog_examples: "CatalogExamples | None") -> str:
    return render_template(
        "docs.html",
        info=openapi.DESCRIPTION["info"],
        tags=openapi.DESCRIPTION["tags"],
        examples=[build_example(operation, catalog_examples) for operation in OPERATIONS],
        entry=catalog_examples and catalog_examples.entry,
        server_url=public_url(),
        schemas=SCHEMAS,
        headers=RESPONSE_HEADERS,
    )


class CatalogExamples(NamedTuple):
    """Examples from this catalog: parameters and responses by operation id.

    unavailable: the operations whose example has no response here.
    entry: the version that the first steps of the page lead to.
    """

    values: dict[str, dict[str, str]]
    responses: dict[str, object]
    unavailable: set[str]
    entry: Json | None


def load_examples(connection: Connection) -> CatalogExamples | None:
    """Return examples from this catalog; None if it has no listed widget."""
    query = openapi.example_values(SEARCH_OPERATION)
    results = load_results(connection, query, public_url())
    if not results["widgets"]:
        del query["q"]
        results = load_results(connection, query, public_url())
    if not results["widgets"]:
        return None
    first = results["widgets"][0]
    widget = {"scope": first["scope"], "name": first["name"]}
    detail = load_widget(connection, **widget, public_url=public_url())
    if detail is None:
        # It was removed after the search.
        return None
    version, is_held = _example_bundle(detail)
    updates_query, updates = _example_updates(connection, detail, query["compatSdk"])
    return CatalogExamples(
        values={
            "searchWidgets": query,
            "getUpdates": updates_query,
            "getWidget": widget,
            "getWidgetVersion": {**widget, "version": LATEST},
            "countInstall": widget,
            "getBundle": {**widget, "version": version},
            "getRegistry": {"scope": first["scope"]},
        },
        responses={
            "searchWidgets": results,
            "getUpdates": updates,
            "getWidget": detail,
            "getWidgetVersion": first["latestVersion"],
            "getRegistry": _example_registry(detail),
        },
        unavailable={
            *(() if is_held else ("getBundle",)),
            *(() if first["latestVersion"] else ("getWidgetVersion",)),
        },
        entry=first["latestCompatibleVersion"],
    )


def _example_bundle(detail: Json) -> tuple[str, bool]:
    """Return the newest version with a held bundle, else the newest; and whether it is held."""
    own_prefix = f"{public_url()}{V1_PREFIX}"
    entries: list[Json] = detail["versions"]
    held = [entry for entry in entries if entry["bundleUrl"].startswith(own_prefix)]
    return str((held or entries)[0]["version"]) if entries else "1.0.0", bool(held)


def _example_updates(connection: Connection, detail: Json, sdk: str) -> tuple[dict[str, str], Json]:
    """Return the parameters and the response for the oldest version of the widget."""
    path = "{scope}/{name}".format(**detail["widget"])
    numbers = [str(entry["version"]) for entry in detail["versions"]] or ["1.0.0"]
    installed = f"{path}@{numbers[-1]}"
    query = parse_updates(sdk, [installed])
    response = load_updates(connection, query, public_url())
    return {"compatSdk": sdk, "installed": installed}, response


def _example_registry(detail: Json) -> Json:
    """Return a registry with one widget: rendering a whole scope could take long."""
    widget = {key: value for key, value in detail["widget"].items() if key != "downloadCount"}
    widget |= {"latestVersion": detail["latestVersion"], "versions": detail["versions"]}
    return {"scope": widget["scope"], "widgets": [widget]}


class OperationExample(NamedTuple):
    """An operation with example values, request target, shell command and response body.

    is_live: whether this service has that response, so that the page can send the request.
    """

    operation: Operation
    values: dict[str, str]
    target: str
    command: str
    response: str
    is_abridged: bool
    is_live: bool


def build_example(
    operation: Operation, catalog_examples: CatalogExamples | None
) -> OperationExample:
    """Return the example of an operation: from the catalog, else from openapi.json."""
    values = openapi.example_values(operation)
    body = operation.example
    is_live = not operation.path_parameters
    if catalog_examples is not None:
        values = catalog_examples.values.get(operation.id, values)
        body = catalog_examples.responses.get(operation.id, body)
        is_live = operation.id not in catalog_examples.unavailable
    target = openapi.build_target(operation, values)
    method = "" if operation.method == "GET" else f"-X {operation.method} "
    return OperationExample(
        operation,
        values,
        target,
        command=f"curl -s {method}{shlex.quote(f'{public_url()}{target}')}",
        response="" if body is None else format_example(abridge(body)),
        is_abridged=abridge(body) != body,
        is_live=is_live,
    )


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
