"""The base URL that a client uses to reach this service."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from werkzeug.sansio.utils import get_host

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

# Names with an underscore are invalid in DNS, but common in compose files.
NAME_WITH_UNDERSCORE = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?")


def public_url(configured: str, environ: "WSGIEnvironment") -> str:
    """Return the configured base URL or, if there is none, the base URL that the client used.

    environ is the WSGI environment of the request.
    """
    # Werkzeug's request.host takes twice as long.
    return configured or _base_url(
        environ["wsgi.url_scheme"],
        environ.get("HTTP_HOST"),
        f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}",
        environ["SCRIPT_NAME"],
    )


@lru_cache(maxsize=16)
def _base_url(scheme: str, host_header: str | None, server: str, prefix: str) -> str:
    host = get_host(scheme, host_header)
    if not host and host_header and NAME_WITH_UNDERSCORE.fullmatch(host_header):
        host = host_header
    # HTTP/1.0 allows requests without Host; the listener's address replaces it.
    return f"{scheme}://{host or get_host(scheme, server) or 'localhost'}{prefix}"
