"""What api, web and serving share: the public base URL, ETags of encoded responses."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from flask import current_app, request
from werkzeug.http import parse_etags
from werkzeug.sansio.utils import get_host

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

# In the environ of a request: the name of the endpoint that Flask chose. A request has none if no
# route matches, or if the server refuses it.
ENDPOINT = "catalog.endpoint"


def public_url() -> str:
    """Return the base URL under which the client reaches this service."""
    configured: str = current_app.config["PUBLIC_URL"]
    return configured or base_url(request.environ)


def base_url(environ: "WSGIEnvironment") -> str:
    """Return the base URL of a request."""
    # request.host takes twice as long.
    return _base_url(
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


# A longer Accept-Encoding or If-None-Match is ignored: parsing it would take time.
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


def find_known_etag(if_none_match: str, etag: str, with_gzip: bool) -> str | None:
    """Return the ETag of a representation that the client has and accepts; None if it has none.

    A client that accepts gzip may have the other one, from a response that was not compressed.
    """
    if len(if_none_match) > MAX_HEADER_LENGTH:
        return None
    known = parse_etags(if_none_match)
    if with_gzip and known.contains_weak(gzip_etag(etag)):
        return gzip_etag(etag)
    return etag if known.contains_weak(etag) else None
