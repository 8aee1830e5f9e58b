"""How a request finds its view, by its path with a catch-all at the end of each family, and how
its sender finds us again."""

from collections.abc import Callable
from functools import lru_cache
from typing import cast

from flask import Blueprint, Response, current_app, request
from flask.blueprints import BlueprintSetupState
from flask.globals import request_ctx
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import MapAdapter, Rule
from werkzeug.sansio.utils import get_host

from catalog.text import quoted

METHODS = ("GET", "HEAD", "POST")


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
    adapter = cast(MapAdapter, request_ctx.url_adapter)
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
        allowed, f"This path takes {', '.join(allowed)}, not {quoted(request.method)}."
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
