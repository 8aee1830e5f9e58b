"""The application factory, the error responses, and the hooks that run for every request."""

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from flask import Flask, Request, Response, current_app, g, jsonify, request
from flask.globals import request_ctx
from flask.json.provider import DefaultJSONProvider
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import (
    BadRequest,
    GatewayTimeout,
    HTTPException,
    InternalServerError,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
)
from werkzeug.routing import BaseConverter, MapAdapter

from . import CORS_HEADERS, ENDPOINT, V1_PREFIX
from .api.compression import encode_response

# These modules add their routes to the internal blueprint.
from .api.internal import id_tokens, session, versions, widgets  # noqa: F401
from .api.internal.authentication import FailedAttempts
from .api.internal.blueprint import internal, require_token
from .api.operations import operations
from .api.registry import registry
from .api.response_cache import RENDERED, ResponseCache
from .api.trusted_proxy import TrustedProxy

# These modules add their routes to the v1 blueprint.
from .api.v1 import details, lists, stored_files  # noqa: F401
from .api.v1.blueprint import limit_body, v1
from .domain.messages import quoted
from .opening import Files, configure_catalog
from .store.connection.database import Database
from .store.connection.deadlines import Deadline
from .store.connection.sqlite import (
    DatabaseError,
    DeadlineExceeded,
    OutcomeUnknownError,
    is_file_error,
)
from .store.read.parameters import ParameterError
from .system.issuer_keys import IssuerKeys

# These modules add their routes to the pages blueprint.
from .web import browse, compare, compare_widgets, docs, feed, updates, widget_pages  # noqa: F401
from .web.pages import error_page, pages, redirect_from_slash
from .web.static_files import static_files

# The time allowed for rendering the error response to a request that took too long.
ERROR_SECONDS = 1
# These sentences replace Werkzeug's default descriptions.
MESSAGES: dict[str | None, str] = {
    NotFound.description: "There is nothing at this address.",
    InternalServerError.description: "Internal server error.",
}


class WidgetNameConverter(BaseConverter):
    """A widget name in a path. registry.json, which names a scope's registry, does not match."""

    regex = r"(?!registry\.json\Z)[^/]+"


class VersionNumber(BaseConverter):
    """A version number in a path. Reserved names, such as picture, do not match."""

    regex = r"(?!(?:installs|about|picture)\Z)[^/]+"


class CatalogApp(Flask):
    """A Flask application that routes only by method and path, and logs failures with an id."""

    def __init__(self, name: str) -> None:
        super().__init__(name, static_folder=None)
        self.url_map.converters |= {
            "widget_name": WidgetNameConverter,
            "version_number": VersionNumber,
        }
        # Without this setting, paths with consecutive slashes would be redirected.
        self.url_map.merge_slashes = False

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Ignore the Host and Upgrade headers in routing: unusual values would cause errors.

        url_for() still adds the path prefix of a proxy or of a mounted application.
        """
        if request is None:
            return super().create_url_adapter(request)
        return self.url_map.bind(
            "",
            script_name=request.root_path,
            path_info=request.path,
            default_method=request.method,
        )

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as is: no view is async, and Flask's check takes 3% of a read."""
        return func

    def full_dispatch_request(self) -> Response:
        """Respond 503 after the final deadline; before that, another thread retries the request."""
        # Use the request object itself: each access through a Flask proxy costs 1 µs.
        matched = request_ctx.request
        matched.environ[ENDPOINT] = matched.endpoint
        try:
            return super().full_dispatch_request()
        except DeadlineExceeded:
            deadline: Deadline = self.extensions["database"].deadline
            if not deadline.is_final:
                raise
            deadline.extend(ERROR_SECONDS)
        error = ServiceUnavailable("The request took too long.", retry_after=5)
        return self.finalize_request(self.handle_user_exception(error))

    def make_default_options_response(self) -> Response:
        """Return the path's methods in Allow, without Content-Type: the response has no body."""
        methods = cast(MapAdapter, request_ctx.url_adapter).allowed_methods()
        response = Response(headers={"Allow": ", ".join(in_order(methods))})
        del response.headers["Content-Type"]
        return response

    def log_exception(self, exc_info: Any) -> None:
        """Log the exception with a request id that is also in the response."""
        g.request_id = secrets.token_hex(8)
        # Escape the path, so that a client cannot forge log lines.
        line = f"{request.method} {request.path!a} failed: {g.request_id}"
        self.logger.error("%s", line, exc_info=exc_info)


class JsonProvider(DefaultJSONProvider):
    """JSON in UTF-8, with the keys in the specification's order."""

    sort_keys = False
    ensure_ascii = False


def create_app(settings: Mapping[str, object] | None = None) -> Flask:
    """Return the application for one catalog; raise SettingError if a setting is invalid.

    Settings in the argument take precedence over environment variables.
    """
    return make_service(configure_catalog(settings or {}))


def make_service(files: Files) -> Flask:
    """Return the application for the catalog in these files."""
    app = CatalogApp(__name__)
    app.config.from_mapping(files.config)
    app.json = JsonProvider(app)
    app.jinja_options = {**app.jinja_options, "lstrip_blocks": True}

    app.extensions["failed_attempts"] = FailedAttempts()
    app.extensions["issuer_keys"] = IssuerKeys()
    app.extensions["database"] = database = files.database
    app.extensions["bundles"] = files.bundles
    for blueprint in (v1, registry, operations, internal, pages, static_files):
        app.register_blueprint(blueprint)
    app.register_error_handler(HTTPException, error_response)
    app.register_error_handler(ParameterError, parameter_error_response)
    app.register_error_handler(DatabaseError, database_error_response)
    app.register_error_handler(sqlite3.DatabaseError, database_error_response)
    app.before_request(check_request)
    app.after_request(complete_response)
    cache = ResponseCache(app.wsgi_app, database, app.config["PUBLIC_URL"])
    app.extensions["response_cache"] = app.wsgi_app = cache  # type: ignore[method-assign]
    proxies = app.config["TRUSTED_PROXY"]
    if proxies:
        app.wsgi_app = TrustedProxy(app.wsgi_app, proxies)  # type: ignore[method-assign]
    return app


def check_request() -> BaseResponse | None:
    """Run the check for the kind of path: public API, internal API or page."""
    path = request_ctx.request.path
    if path.startswith(V1_PREFIX):
        limit_body()
        return None
    if path.startswith("/api/"):
        return None if path.startswith("/api/v1/") else require_token()
    return redirect_from_slash()


def in_order(methods: Iterable[str]) -> list[str]:
    """Return the methods sorted by name, with OPTIONS last."""
    return sorted(methods, key=lambda method: (method == "OPTIONS", method))


def error_response(error: HTTPException) -> Response:
    """Return JSON for an API error, otherwise a page; keep headers such as Allow."""
    if isinstance(error, MethodNotAllowed):
        methods = in_order(error.valid_methods or [])
        error = MethodNotAllowed(
            methods, f"This path supports {', '.join(methods)}, not {quoted(request.method)}."
        )
    response = Response(headers=error.get_headers(), status=error.code)
    description = error.description or ""
    message = MESSAGES.get(description, description)
    if request_id := g.get("request_id"):
        message += f" It is in the log under {request_id}."
        response.headers["X-Request-Id"] = request_id
    if request.path.startswith(V1_PREFIX):
        # flask-cors adds its headers only to paths that match a route.
        response.headers.update({**CORS_HEADERS, "Cache-Control": "no-cache"})
    if request.path.startswith("/api/"):
        response.data = jsonify(error=message).data
        response.mimetype = "application/json"
    else:
        response.data = error_page(error.code or 500, message)
        response.mimetype = "text/html"
    return response


def parameter_error_response(error: ParameterError) -> Response:
    """Return 400 with a message that explains why the parameter is invalid."""
    return error_response(BadRequest(str(error)))


def database_error_response(error: Exception) -> Response:
    """Return 503, or 504 if the outcome of a write is unknown; re-raise errors in our SQL."""
    if isinstance(error, sqlite3.Error) and not is_file_error(error):
        raise error
    database: Database = current_app.extensions["database"]
    database.log_error("The database cannot be used", error)
    if isinstance(error, OutcomeUnknownError):
        return error_response(GatewayTimeout("The outcome of the change is unknown."))
    return error_response(
        ServiceUnavailable("The catalog is temporarily unavailable.", retry_after=5)
    )


def complete_response(response: Response) -> Response:
    """Disable MIME sniffing, and encode the response."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    if RENDERED not in request.environ:
        encode_response(response)
    return response
