"""How a request finds its view, by its path with a catch-all at the end of each family, and how
its sender finds us again."""

import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from flask import Blueprint, Flask, Request, Response, current_app, g, request
from flask.blueprints import BlueprintSetupState
from flask.globals import request_ctx
from werkzeug.exceptions import MethodNotAllowed, NotFound, ServiceUnavailable
from werkzeug.routing import BaseConverter, MapAdapter, Rule
from werkzeug.sansio.utils import get_host

from catalog.documents import shown
from catalog.sqlite_file import DeadlineExceeded

V1_PREFIX = "/api/v1/widgets/"
METHODS = ("GET", "HEAD", "POST")


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


def catch_all(blueprint: Blueprint, prefix: str, view: Callable[[], Response]) -> None:
    """Let the view answer each request below the prefix that no route takes, in any method."""
    endpoint = f"{blueprint.name}.unmatched"

    def add(state: BlueprintSetupState) -> None:
        # Flask gives each rule a list of methods; a rule without one takes them all.
        state.app.url_map.add(Rule(f"{prefix}<anything:rest>", endpoint=endpoint))
        state.app.view_functions[endpoint] = lambda rest: view()

    blueprint.record(add)


def known_methods(path: str) -> list[str]:
    """The methods that a route takes on this path; none where only a catch-all does."""
    adapter = request_ctx.url_adapter
    known = []
    for method in METHODS:
        try:
            rule, _ = adapter.match(path, method, return_rule=True)
        except (MethodNotAllowed, NotFound):
            continue
        if rule.methods is not None:
            known.append(method)
    return known


def options_or_405(methods: list[str]) -> Response:
    """The answer of a known path to OPTIONS, or to a method that it does not take."""
    allowed = [*methods, "OPTIONS"]
    if request.method == "OPTIONS":
        response = Response(headers={"Allow": ", ".join(allowed)})
        del response.headers["Content-Type"]
        return response
    raise MethodNotAllowed(
        allowed, f"This path takes {', '.join(allowed)}, not {shown(request.method)}."
    )


def public_url() -> str:
    """The base URL under which the client reaches this service."""
    configured: str = current_app.config["PUBLIC_URL"]
    # Not request.host, which takes twice as long.
    environ = request.environ
    return configured or _base_url(
        environ["wsgi.url_scheme"],
        environ.get("HTTP_HOST"),
        f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}",
        environ["SCRIPT_NAME"],
    )


@lru_cache(maxsize=16)
def _base_url(scheme: str, host_header: str | None, server: str, prefix: str) -> str:
    # Without a valid Host, as HTTP/1.0 allows, the address that is served on has to do.
    host = get_host(scheme, host_header) or get_host(scheme, server) or "localhost"
    return f"{scheme}://{host}{prefix}"
