"""/docs, /openapi.json and /publish: the API reference, and instructions for publishing."""

import hashlib
import json
import shlex
import sqlite3
from functools import lru_cache, partial
from pathlib import Path

from flask import Response, abort, current_app, render_template, send_file

from ..domain.documents import Json
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError
from ..store.read.search_params import parse_search
from . import openapi
from .browse import search_widgets
from .pages import absolute_url, page_response, pages, site_url

OPERATIONS = openapi.load_operations()
SCHEMAS = openapi.load_schemas()
RESPONSE_HEADERS = openapi.describe_headers(OPERATIONS)
# The example search on the page: it finds the most installed widget that runs on this SDK.
FIRST_SEARCH = {"compatSdk": "1.4.0", "compatible": "true", "limit": "1"}

pages.add_app_template_filter(openapi.render_code_spans)
pages.add_app_template_filter(partial(json.dumps, indent=2, ensure_ascii=False), "indented")


@pages.get("/openapi.json")
def openapi_json() -> Response:
    description = openapi.render_description(site_url())
    return page_response(description, mimetype="application/json")


@pages.get("/docs")
def docs() -> Response:
    entry = find_first_version()
    installed = {key: entry[key] for key in ("scope", "name", "version")} if entry else {}
    page = render_template(
        "docs.html",
        info=openapi.DESCRIPTION["info"],
        tags=openapi.DESCRIPTION["tags"],
        operations=OPERATIONS,
        server_url=site_url(),
        entry=entry,
        search_command=curl(absolute_url("v1.search", **FIRST_SEARCH)),
        count_command=entry and curl(absolute_url("v1.install_version", **installed), "POST"),
        schemas=SCHEMAS,
        headers=RESPONSE_HEADERS,
    )
    return page_response(page)


def find_first_version() -> Json | None:
    """Return the version in the examples on the page; None if FIRST_SEARCH finds no widget."""
    database: Database = current_app.extensions["database"]
    try:
        results = search_widgets(database.reader(), parse_search(FIRST_SEARCH))["widgets"]
    except (DatabaseError, sqlite3.Error) as error:
        # The reference is shown even if the database cannot be read.
        database.log_error("The database cannot be read", error)
        return None
    return results[0]["latestCompatibleVersion"] if results else None


@pages.app_template_filter()
def curl(url: str, method: str = "GET") -> str:
    """Return the shell command that sends a request."""
    return f"curl -s {'' if method == 'GET' else f'-X {method} '}{shlex.quote(url)}"


@pages.get("/publish")
def publish() -> Response:
    path = find_wheel()
    page = render_template(
        "publish.html",
        server_url=site_url(),
        contact=current_app.config["CONTACT"],
        wheel=path and path.name,
        wheel_sha256=path and hash_wheel(path, path.stat().st_mtime_ns),
    )
    return page_response(page)


# The modification time is part of the cache key, so that a replaced file is hashed again.
@lru_cache(maxsize=1)
def hash_wheel(path: Path, _changed_at: int) -> str:
    """Return the SHA-256 of the wheel."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pages.get("/publish/<name>")
def wheel(name: str) -> Response:
    path = find_wheel()
    if path is None or path.name != name:
        abort(404, "There is no such file.")
    return send_file(path, mimetype="application/zip", as_attachment=True, conditional=False)


def find_wheel() -> Path | None:
    """Return the path in CATALOG_WHEEL; None if it is not set or the file is missing."""
    path = Path(current_app.config["WHEEL"])
    return path.absolute() if path.is_file() else None
