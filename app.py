"""The application: its settings, its path families and the one shape of an error."""

import re
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path

from click import ClickException
from flask import Flask, Response, current_app, g, jsonify, request
from werkzeug.exceptions import (
    HTTPException,
    InternalServerError,
    NotFound,
    ServiceUnavailable,
)

from catalog import logs, server
from catalog.answers import NO_SNIFFING, Ready, ResponseCache
from catalog.bundles import Bundles
from catalog.commands import commands
from catalog.db import Database
from catalog.documents import shown, web_address
from catalog.internal import internal
from catalog.operations import operations
from catalog.pages import error_page, pages
from catalog.proxies import TrustedProxy, trusted_networks
from catalog.reference import reference
from catalog.registry import registry
from catalog.routing import V1_PREFIX, Service
from catalog.semver_ranges import is_version
from catalog.sqlite_file import DatabaseError, is_fault_of_the_file
from catalog.v1 import v1

DEFAULTS = {
    "DATABASE": "catalog.db",
    "HOST": "127.0.0.1",
    "PORT": "8080",
    "THREADS": "8",
    "BACKLOG": "256",
    "MAX_CONNECTIONS": "900",
    "MAX_CONNECTIONS_PER_CLIENT": "225",
    "MAX_HEAD_BYTES": "32768",
    "MAX_BODY_BYTES": "4096",
    "REQUEST_TIMEOUT": "20",
    "IDLE_TIMEOUT": "75",
    "STOP_TIMEOUT": "10",
    "TRUSTED_PROXY": "",
    "LOG_LEVEL": "info",
    "LOG_FORMAT": "text",
    "MINIMUM_CLI_VERSION": "1.0.0",
    "BUNDLE_URL": "",
    "BUNDLES": "",
    "PUBLIC_URL": "",
    "MIRROR_WORKERS": "4",
    "ICONS": "",
}

# The settings that are whole numbers, with the least and the greatest.
NUMBERS = {
    "PORT": (0, 65535),
    "THREADS": (1, 64),
    "BACKLOG": (1, 65535),
    "MAX_CONNECTIONS": (10, 100_000),
    "MAX_CONNECTIONS_PER_CLIENT": (0, 100_000),
    "MAX_HEAD_BYTES": (1024, 1024 * 1024),
    "MAX_BODY_BYTES": (0, 1024 * 1024),
    "REQUEST_TIMEOUT": (1, 3600),
    "IDLE_TIMEOUT": (1, 3600),
    "STOP_TIMEOUT": (1, 3600),
    "MIRROR_WORKERS": (1, 32),
}

# In place of what Werkzeug says where nobody says more.
SENTENCES = {
    NotFound.description: "There is nothing at this address.",
    InternalServerError.description: "Something went wrong here; the request is not to blame.",
}


def create_app(settings: Mapping[str, object] | None = None) -> Flask:
    """A service on one database; settings given here win over the environment's."""
    app = Service(__name__)
    app.config.from_mapping(DEFAULTS)
    # Read as text: as JSON, a database of the name 1 would be a number.
    app.config.from_prefixed_env("CATALOG", loads=str)
    app.config.from_mapping(settings or {})
    check_settings(app.config)
    app.json.sort_keys = False
    app.json.ensure_ascii = False
    app.jinja_options = {"lstrip_blocks": True}

    app.extensions["response_cache"] = ResponseCache()
    app.extensions["database"] = database = Database(app.config["DATABASE"])
    # Of its own unless told otherwise: flask gc removes what the one catalog does not name.
    beside = database.path.with_name(f"{database.path.name}-bundles")
    app.extensions["bundles"] = Bundles(Path(app.config["BUNDLES"] or beside))
    for blueprint in (v1, registry, operations, internal, pages, reference, commands):
        app.register_blueprint(blueprint)
    app.teardown_appcontext(lambda _: database.release())
    app.register_error_handler(HTTPException, error_body)
    app.register_error_handler(DatabaseError, unavailable)
    app.register_error_handler(sqlite3.DatabaseError, unavailable)
    app.after_request(forbid_sniffing)
    if proxies := trusted_networks(app.config["TRUSTED_PROXY"]):
        app.wsgi_app = TrustedProxy(app.wsgi_app, proxies)
    return app


def check_settings(config: dict[str, object]) -> None:
    """Turn numbers into numbers; a setting that cannot be used stops the start by its name."""
    for name, (low, high) in NUMBERS.items():
        text = str(config[name])
        if not (re.fullmatch("[0-9]{1,7}", text) and low <= int(text) <= high):
            raise bad_setting(name, f"a whole number from {low} to {high}", text)
        config[name] = int(text)
    for name in ("DATABASE", "HOST"):
        if not str(config[name]):
            raise bad_setting(name, "filled in", "")
    for name, words in (("LOG_LEVEL", logs.LEVELS), ("LOG_FORMAT", logs.FORMATS)):
        if config[name] not in words:
            raise bad_setting(name, " or ".join(words), str(config[name]))
    try:
        trusted_networks(str(config["TRUSTED_PROXY"]))
    except ValueError as error:
        allowed = "addresses or networks with commas between"
        raise bad_setting("TRUSTED_PROXY", allowed, str(config["TRUSTED_PROXY"])) from error
    if config["ICONS"] and not Path(str(config["ICONS"])).is_dir():
        raise bad_setting("ICONS", "a directory of Iconify JSON files", str(config["ICONS"]))
    if not is_version(str(config["MINIMUM_CLI_VERSION"])):
        raise bad_setting("MINIMUM_CLI_VERSION", "a version", str(config["MINIMUM_CLI_VERSION"]))
    public_url = str(config["PUBLIC_URL"])
    if public_url:
        config["PUBLIC_URL"] = base_url(public_url)


def base_url(address: str) -> str:
    """The address of a service, to which a path can be added."""
    try:
        if set("?#") & set(web_address(address)):
            raise ValueError
    except ValueError:
        allowed = "an absolute http or https URL without ? and #"
        raise bad_setting("PUBLIC_URL", allowed, address) from None
    return address.rstrip("/")


def bad_setting(name: str, allowed: str, value: str) -> ClickException:
    return ClickException(f"CATALOG_{name} must be {allowed}, not {shown(value)}.")


def error_body(error: HTTPException) -> Response:
    """Every error of the API is a JSON object, any other a page; headers such as Allow stay."""
    response = error.get_response()
    message = SENTENCES.get(error.description, error.description)
    if request_id := g.get("request_id"):
        message += f" It is in the log under {request_id}."
        response.headers["X-Request-Id"] = request_id
    if request.path.startswith(V1_PREFIX):
        response.headers["Cache-Control"] = "no-cache"
    if request.path.startswith("/api/"):
        response.data = jsonify(error=message).data
        response.mimetype = "application/json"
    else:
        response.data = error_page(error.code, message)
        response.mimetype = "text/html"
    return response


def forbid_sniffing(response: Response) -> Response:
    """Have no browser guess that a response is something else than its Content-Type says."""
    if not isinstance(response, Ready):
        response.headers.update(NO_SNIFFING)
    return response


def unavailable(error: Exception) -> Response:
    """A database that cannot be read or written now may be in a moment."""
    if isinstance(error, sqlite3.Error) and not is_fault_of_the_file(error):
        raise error  # a fault of ours
    current_app.logger.error("The database cannot be used: %s", error)
    return error_body(ServiceUnavailable("The catalog is not available now.", retry_after=5))


if __name__ == "__main__":
    try:
        server.serve(create_app())
    except ClickException as error:
        sys.exit(f"Error: {error.message}")
