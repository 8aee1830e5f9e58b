"""Routing that api and web share: the catch-all of each path family, and the public base URL."""

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
    """Route every request below the prefix that no other route matches to the view."""
    endpoint = f"{blueprint.name}.unmatched"

    def add(state: BlueprintSetupState) -> None:
        # Not add_url_rule(), which sets methods: a rule without methods matches all of them.
        state.app.url_map.add(Rule(f"{prefix}<any_path:rest>", endpoint=endpoint))
        state.app.view_functions[endpoint] = lambda rest: view()

    blueprint.record(add)


def known_methods(path: str) -> list[str]:
    """Return the methods of the routes that match the path; none if only a catch-all does."""
    adapter = cast(MapAdapter, request_ctx.url_adapter)
    methods = []
    for method in METHODS:
        try:
            rule, _ = adapter.match(path, method, return_rule=True)
        except (MethodNotAllowed, NotFound):
            continue
        if rule.methods is not None:
            methods.append(method)
    return methods


def options_or_405(methods: list[str]) -> Response:
    """Return the response to OPTIONS on a path with these methods; raise 405 for any other."""
    allowed = [*methods, "OPTIONS"]
    if request.method == "OPTIONS":
        response = Response(headers={"Allow": ", ".join(allowed)})
        del response.headers["Content-Type"]
        return response
    raise MethodNotAllowed(
        allowed, f"This path takes {', '.join(allowed)}, not {quoted(request.method)}."
    )


def public_url() -> str:
    """Return the base URL under which the client reaches this service."""
    configured: str = current_app.config["PUBLIC_URL"]
    # request.host takes twice as long.
    environ = request.environ
    return configured or _base_url(
        environ["wsgi.url_scheme"],
        environ.get("HTTP_HOST"),
        f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}",
        environ["SCRIPT_NAME"],
    )


@lru_cache(maxsize=16)
def _base_url(scheme: str, host_header: str | None, server: str, prefix: str) -> str:
    # HTTP/1.0 allows requests without Host: use the address of the listener.
    host = get_host(scheme, host_header) or get_host(scheme, server) or "localhost"
    return f"{scheme}://{host}{prefix}"
