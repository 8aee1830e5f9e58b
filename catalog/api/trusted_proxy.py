"""WSGI middleware that applies the X-Forwarded-* headers of requests from trusted proxies."""

import re
from typing import TYPE_CHECKING

from werkzeug.middleware.proxy_fix import ProxyFix

from ..domain.client_addresses import TrustedProxies, is_address, last_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# Patterns for valid values. Other values are ignored: a proxy may forward a header that its client
# has forged.
FORWARDED_HEADERS = {
    "HTTP_X_FORWARDED_PROTO": "https?",
    "HTTP_X_FORWARDED_HOST": r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?",
    "HTTP_X_FORWARDED_PREFIX": "(/[A-Za-z0-9._~-]+)+",
}


class TrustedProxy:
    """Replaces a request's address, scheme, host and path prefix with the values from its proxy."""

    def __init__(self, app: "WSGIApplication", trusted: TrustedProxies) -> None:
        self._direct = app
        self._behind_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._trusted = trusted

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> "Iterable[bytes]":
        if not self._trusted.include(environ.get("REMOTE_ADDR", "")):
            return self._direct(environ, start_response)
        for name, pattern in FORWARDED_HEADERS.items():
            if not re.fullmatch(pattern, last_value(environ.get(name, ""))):
                environ.pop(name, None)
        if not is_address(last_value(environ.get("HTTP_X_FORWARDED_FOR", ""))):
            environ.pop("HTTP_X_FORWARDED_FOR", None)
        return self._behind_proxy(environ, start_response)
