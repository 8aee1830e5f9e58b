"""Reverse proxies: the X-Forwarded- headers of a trusted proxy replace what the socket shows."""

import re
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from werkzeug.middleware.proxy_fix import ProxyFix

from ..settings import TrustedProxies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# Patterns of valid values. A proxy may forward what its client sent, so other values are ignored.
FORWARDED_HEADERS = {
    "HTTP_X_FORWARDED_PROTO": "https?",
    "HTTP_X_FORWARDED_HOST": r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?",
    "HTTP_X_FORWARDED_PREFIX": "(/[A-Za-z0-9._~-]+)+",
}


class Proxies:
    """The proxies that are trusted, and the client behind an address."""

    def __init__(self, trusted: TrustedProxies) -> None:
        self._trusted = trusted
        self.is_trusted = lru_cache(1000)(self._is_proxy)

    def client(self, address: str, forwarded_for: str) -> str:
        """Return the client that sent a request: the one that a trusted proxy names, if any."""
        if forwarded_for and self.is_trusted(address):
            named = last_value(forwarded_for)
            address = named if is_address(named) else address
        return client_network(address)

    def _is_proxy(self, address: str) -> bool:
        # A client of a Unix socket has no address.
        if not address:
            return self._trusted.has_unix
        return is_address(address) and any(
            ip_address(address) in network for network in self._trusted.networks
        )


class TrustedProxy:
    """WSGI middleware that applies the X-Forwarded- headers of requests from trusted proxies."""

    def __init__(self, app: "WSGIApplication", trusted: TrustedProxies) -> None:
        self._direct = app
        self._behind_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._is_trusted = Proxies(trusted).is_trusted

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> "Iterable[bytes]":
        if not self._is_trusted(environ.get("REMOTE_ADDR", "")):
            return self._direct(environ, start_response)
        for name, pattern in FORWARDED_HEADERS.items():
            if not re.fullmatch(pattern, last_value(environ.get(name, ""))):
                environ.pop(name, None)
        if not is_address(last_value(environ.get("HTTP_X_FORWARDED_FOR", ""))):
            environ.pop("HTTP_X_FORWARDED_FOR", None)
        return self._behind_proxy(environ, start_response)


@lru_cache(1000)
def client_network(address: str) -> str:
    """Return the address, or its /64: an IPv6 client usually has a whole one to choose from."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        # A Unix socket.
        return address
    return str(ip_network((ip, 64), strict=False)) if ip.version == 6 else str(ip)


def last_value(value: str) -> str:
    """Return the value that the proxy itself added; those before it came from its client."""
    return value.rpartition(",")[2].strip()


def is_address(text: str) -> bool:
    """Return whether the text is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
