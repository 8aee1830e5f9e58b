"""/docs and /openapi.json: the API described, for people and for programs."""

import json
import re
import shlex
import sqlite3
from typing import NamedTuple

from flask import Blueprint, Response, current_app, render_template, request
from werkzeug.http import generate_etag

from catalog import V1_PREFIX
from catalog.documents import Json
from catalog.routing import public_url
from catalog.store.database import Database
from catalog.store.detail import find_detail
from catalog.store.json_sql import with_bundle_urls
from catalog.store.sqlite import Connection, DatabaseError
from catalog.web import openapi
from catalog.web.browsing import search_page
from catalog.web.openapi import Operation

OPERATIONS = openapi.operations()
SCHEMAS = openapi.schemas()
HEADERS = openapi.headers()
SEARCH = next(one for one in OPERATIONS if one.id == "searchWidgets")

# What an example shows of a long text or list.
MAX_SHOWN = 300
MAX_LISTED = 20
# What turns the direction of the text after it.
TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

reference = Blueprint("reference", __name__)
reference.add_app_template_filter(openapi.prose)


@reference.get("/openapi.json")
def openapi_json() -> Response:
    text = openapi.text_for(public_url())
    response = Response(text, mimetype="application/json")
    response.set_etag(generate_etag(text))
    response.headers["Cache-Control"] = "no-cache"
    response.make_conditional(request)
    return response


@reference.get("/docs")
def docs() -> str:
    try:
        database: Database = current_app.extensions["database"]
        example = find_example(database.reader())
    except (DatabaseError, sqlite3.Error) as error:
        # How to call the API is no less true; the examples are then the description's own.
        current_app.logger.error("The database cannot be read: %s", error)
        example = None
    return render_template(
        "docs.html",
        info=openapi.DESCRIPTION["info"],
        tags=openapi.DESCRIPTION["tags"],
        calls=[make_call(operation, example) for operation in OPERATIONS],
        entry=example and example.entry,
        address=public_url(),
        schemas=SCHEMAS,
        headers=HEADERS,
    )


class Example(NamedTuple):
    """Requests and responses by operation, those that have no response here, and the version
    that the first steps lead to."""

    values: dict[str, dict[str, str]]
    answers: dict[str, object]
    missing: set[str]
    entry: Json | None


def find_example(connection: Connection) -> Example | None:
    """Examples from this catalog; None if there is no widget in it."""
    asked = openapi.example_values(SEARCH)
    found = search_page(connection, asked, public_url())
    if not found["widgets"]:
        del asked["q"]
        found = search_page(connection, asked, public_url())
    if not found["widgets"]:
        return None
    first = found["widgets"][0]
    named = {"scope": first["scope"], "name": first["name"]}
    made = find_detail(connection, **named)
    if made is None:
        return None  # it was removed just now
    detail = json.loads(with_bundle_urls(made[1], public_url()))
    version, is_held = _bundle_of(detail)
    return Example(
        values={
            "searchWidgets": asked,
            "getWidget": named,
            "countInstall": named,
            "getBundle": {**named, "version": version},
            "getRegistry": {"scope": first["scope"]},
        },
        answers={
            "searchWidgets": found,
            "getWidget": detail,
            "getRegistry": _registry_of(detail),
        },
        missing=set() if is_held else {"getBundle"},
        entry=first["latestCompatibleVersion"],
    )


def _bundle_of(detail: Json) -> tuple[str, bool]:
    """The newest version whose bundle is held here, else the newest; whether it is held."""
    ours = f"{public_url()}{V1_PREFIX}"
    entries: list[Json] = detail["versions"]
    held = [entry for entry in entries if entry["bundleUrl"].startswith(ours)]
    return str((held or entries)[0]["version"]) if entries else "1.0.0", bool(held)


def _registry_of(detail: Json) -> Json:
    """A registry with one widget in it: to make a whole one for an example could take long."""
    widget = {key: value for key, value in detail["widget"].items() if key != "downloadCount"}
    rest = {"latestVersion": detail["latestVersion"], "versions": detail["versions"]}
    return {"scope": widget["scope"], "widgets": [{**widget, **rest}]}


class Call(NamedTuple):
    """An operation with an example: its values, path and query, shell command and response.

    is_live: whether the example has that response here, so that it can be tried.
    """

    operation: Operation
    values: dict[str, str]
    address: str
    command: str
    answer: str
    is_abridged: bool
    is_live: bool


def make_call(operation: Operation, example: Example | None) -> Call:
    """The example of an operation."""
    values = openapi.example_values(operation)
    answer = operation.example
    is_live = not operation.in_path
    if example is not None:
        values = example.values.get(operation.id, values)
        answer = example.answers.get(operation.id, answer)
        is_live = operation.id not in example.missing
    address = openapi.address(operation, values)
    method = "" if operation.method == "GET" else f"-X {operation.method} "
    return Call(
        operation,
        values,
        address,
        command=f"curl -s {method}{shlex.quote(f'{public_url()}{address}')}",
        answer="" if answer is None else json_text(abridged(answer)),
        is_abridged=abridged(answer) != answer,
        is_live=is_live,
    )


def abridged(value: object) -> object:
    """The value with the first object of each list, and the beginning of what else is long."""
    if isinstance(value, dict):
        return {key: abridged(inner) for key, inner in value.items()}
    if isinstance(value, list):
        few = value[:1] if value and isinstance(value[0], dict) else value[:MAX_LISTED]
        return [abridged(inner) for inner in few]
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return value[: MAX_SHOWN - 1] + "…"
    return value


def json_text(value: object) -> str:
    """The value as JSON over several lines, in which every character is where it seems to be."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return TURNS.sub(lambda turn: f"\\u{ord(turn[0]):04x}", text)
