"""What api and web share: catch-all routes, the public base URL, ETags of encoded responses."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import cast

from flask import Blueprint, Response, current_app, request
from flask.blueprints import BlueprintSetupState
from flask.globals import request_ctx
from werkzeug.datastructures import ETags
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import MapAdapter, Rule
from werkzeug.sansio.utils import get_host

from catalog.text import quoted

METHODS = ("GET", "HEAD", "POST")
# In the WSGI environment: the name of the endpoint that Flask chose. A request has none if no route
# matches, or if the server refuses it.
ENDPOINT = "catalog.endpoint"


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


# A longer Accept-Encoding is ignored: parsing it would take time, and caching it memory.
MAX_HEADER_LENGTH = 1000  # characters
# The weight of an encoding, from 0 to 1 with three decimal places (RFC 9110, 12.4.2).
WEIGHT = re.compile(r"[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*", re.IGNORECASE)


# Clients send few different headers.
@lru_cache(maxsize=16)
def prefers_gzip(accept_encoding: str) -> bool:
    """Return whether a client with this Accept-Encoding gets gzip, if there is a choice.

    Werkzeug's parser would block the I/O thread: 12 µs for a usual header, 9 ms for one of 10 kB.
    """
    if len(accept_encoding) > MAX_HEADER_LENGTH:
        return False
    qualities: dict[str, float] = {}
    for item in accept_encoding.split(","):
        encoding, semicolon, weight = item.partition(";")
        match = WEIGHT.fullmatch(weight)
        if match or not semicolon:
            name = encoding.strip(" \t").lower().removeprefix("x-")
            quality = float(match[1]) if match else 1.0
            qualities[name] = max(quality, qualities.get(name, 0.0))
    any_other = qualities.get("*", 0.0)
    gzip = qualities.get("gzip", any_other)
    return gzip > 0 and gzip >= qualities.get("identity", any_other)


def gzip_etag(etag: str) -> str:
    """Return the ETag of the compressed form of a body with this ETag."""
    return f"{etag}-gzip"


def find_known_etag(known: ETags, etag: str, with_gzip: bool) -> str | None:
    """Return the ETag of a representation that the client has and accepts; None if it has none.

    A client that accepts gzip may have the other one, from a response that was not compressed.
    """
    if with_gzip and known.contains_weak(gzip_etag(etag)):
        return gzip_etag(etag)
    return etag if known.contains_weak(etag) else None


def accept_encoding() -> str:
    """Return the Accept-Encoding header of the request, empty if there is none."""
    header: str = request.environ.get("HTTP_ACCEPT_ENCODING", "")
    return header
