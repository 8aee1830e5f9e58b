"""The application factory: its path families and the one shape of an error."""

import secrets
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flask import Flask, Request, Response, current_app, g, jsonify, request
from flask.json.provider import DefaultJSONProvider
from werkzeug.exceptions import (
    HTTPException,
    InternalServerError,
    NotFound,
    ServiceUnavailable,
)
from werkzeug.routing import BaseConverter, MapAdapter

from catalog import V1_PREFIX
from catalog.api.internal import internal
from catalog.api.operations import operations
from catalog.api.registry import registry
from catalog.api.response_cache import NO_SNIFFING, PreparedResponse, ResponseCache
from catalog.api.v1 import v1
from catalog.commands import commands
from catalog.serving.proxies import TrustedProxy
from catalog.settings import DEFAULTS, check_settings, trusted_networks
from catalog.store.bundles import Bundles
from catalog.store.database import Database
from catalog.store.sqlite import DatabaseError, DeadlineExceeded, is_file_error
from catalog.web.docs import docs
from catalog.web.pages import error_page, pages

# In place of what Werkzeug says where nobody says more.
SENTENCES: dict[str | None, str] = {
    NotFound.description: "There is nothing at this address.",
    InternalServerError.description: "Something went wrong here; the request is not to blame.",
}


class Anything(BaseConverter):
    """The rest of a path, whatever it holds: nothing, slashes or line ends."""

    regex = "(?s:.*)"
    part_isolating = False
    weight = 1000  # every other rule comes first


class Service(Flask):
    """A Flask in which a path means what it says, whatever else a request says of itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name, static_folder=None)
        self.url_map.converters["anything"] = Anything
        self.url_map.merge_slashes = False  # no redirects
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # the catch-alls know what to say

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Match by method and path alone: a strange Host or Upgrade is no reason for an error.

        The path prefix of a proxy or of a mounted application stays in front of every address
        that url_for() makes.
        """
        if request is None:
            return super().create_url_adapter(request)
        return self.url_map.bind(
            "",
            script_name=request.root_path,
            path_info=request.path,
            default_method=request.method,
        )

    def dispatch_request(self) -> Any:
        """Respond with 503 where the last deadline has passed; before, the request is retried."""
        try:
            return super().dispatch_request()
        except DeadlineExceeded:
            if not self.extensions["database"].deadline.is_final:
                raise
            raise ServiceUnavailable("The request took too long.", retry_after=5) from None

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself: Flask would look, for each request, whether one is a coroutine."""
        return func

    def log_exception(self, exc_info: Any) -> None:
        """Log a fault of ours under a number that its answer carries too.

        What a caller wrote cannot make a line of the log.
        """
        g.request_id = secrets.token_hex(8)
        line = f"{request.method} {request.path!a} failed: {g.request_id}"
        self.logger.error("%s", line, exc_info=exc_info)


class JsonProvider(DefaultJSONProvider):
    """JSON with the keys in the order of the specification, in UTF-8."""

    sort_keys = False
    ensure_ascii = False


def create_app(settings: Mapping[str, object] | None = None) -> Flask:
    """A service on one database; settings given here win over the environment's."""
    app = Service(__name__)
    app.config.from_mapping(DEFAULTS)
    # Read as text: as JSON, a database of the name 1 would be a number.
    app.config.from_prefixed_env("CATALOG", loads=str)
    app.config.from_mapping(settings or {})
    check_settings(app.config)
    app.json = JsonProvider(app)
    app.jinja_options = {"lstrip_blocks": True}

    app.extensions["response_cache"] = ResponseCache()
    app.extensions["database"] = database = Database(app.config["DATABASE"])
    # Of its own unless told otherwise: flask gc removes what the one catalog does not name.
    beside = database.path.with_name(f"{database.path.name}-bundles")
    app.extensions["bundles"] = Bundles(Path(app.config["BUNDLES"] or beside))
    for blueprint in (v1, registry, operations, internal, pages, docs, commands):
        app.register_blueprint(blueprint)
    app.teardown_appcontext(lambda _: database.release())
    app.register_error_handler(HTTPException, error_body)
    app.register_error_handler(DatabaseError, unavailable)
    app.register_error_handler(sqlite3.DatabaseError, unavailable)
    app.after_request(forbid_sniffing)
    if proxies := trusted_networks(app.config["TRUSTED_PROXY"]):
        app.wsgi_app = TrustedProxy(app.wsgi_app, proxies)  # type: ignore[method-assign]
    return app


def error_body(error: HTTPException) -> Response:
    """Every error of the API is a JSON object, any other a page; headers such as Allow stay."""
    response = Response(headers=error.get_headers(), status=error.code)
    description = error.description or ""
    message = SENTENCES.get(description, description)
    if request_id := g.get("request_id"):
        message += f" It is in the log under {request_id}."
        response.headers["X-Request-Id"] = request_id
    if request.path.startswith(V1_PREFIX):
        response.headers["Cache-Control"] = "no-cache"
    if request.path.startswith("/api/"):
        response.data = jsonify(error=message).data
        response.mimetype = "application/json"
    else:
        response.data = error_page(error.code or 500, message)
        response.mimetype = "text/html"
    return response


def forbid_sniffing(response: Response) -> Response:
    """Have no browser guess that a response is something else than its Content-Type says."""
    if not isinstance(response, PreparedResponse):
        response.headers.update(NO_SNIFFING)
    return response


def unavailable(error: Exception) -> Response:
    """A database that cannot be read or written now may be in a moment."""
    if isinstance(error, sqlite3.Error) and not is_file_error(error):
        raise error  # a fault of ours
    current_app.logger.error("The database cannot be used: %s", error)
    return error_body(ServiceUnavailable("The catalog is not available now.", retry_after=5))
