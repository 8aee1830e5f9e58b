"""Reverse proxies: the X-Forwarded- headers of a trusted proxy replace what the socket shows."""

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING

from werkzeug.middleware.proxy_fix import ProxyFix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# Patterns of valid values. A proxy may forward what its client sent, so other values are ignored.
FORWARDED_HEADERS = {
    "HTTP_X_FORWARDED_PROTO": "https?",
    "HTTP_X_FORWARDED_HOST": r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?",
    "HTTP_X_FORWARDED_PREFIX": "(/[A-Za-z0-9._~-]+)+",
}


class TrustedProxy:
    """WSGI middleware that applies the X-Forwarded- headers of requests from trusted proxies."""

    def __init__(
        self,
        app: "WSGIApplication",
        networks: list[IPv4Network | IPv6Network],
        *,
        trusts_unix_sockets: bool,
    ) -> None:
        self._direct = app
        self._behind_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._networks = networks
        self._trusts_unix_sockets = trusts_unix_sockets
        self._is_trusted = lru_cache(1000)(self._is_proxy)

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> "Iterable[bytes]":
        if not self._is_trusted(environ.get("REMOTE_ADDR", "")):
            return self._direct(environ, start_response)
        for name, pattern in FORWARDED_HEADERS.items():
            if not re.fullmatch(pattern, _last_value(environ, name)):
                environ.pop(name, None)
        if not _is_address(_last_value(environ, "HTTP_X_FORWARDED_FOR")):
            environ.pop("HTTP_X_FORWARDED_FOR", None)
        return self._behind_proxy(environ, start_response)

    def _is_proxy(self, client: str) -> bool:
        # A client of a Unix socket has no address.
        if not client:
            return self._trusts_unix_sockets
        return _is_address(client) and any(
            ip_address(client) in network for network in self._networks
        )


def _last_value(environ: "WSGIEnvironment", name: str) -> str:
    """Return the value that the proxy itself added; those before it came from its client."""
    value: str = environ.get(name, "")
    return value.rpartition(",")[2].strip()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
