"""A proxy in front: what it says of a request is believed, where it is the one that was named."""

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING

from werkzeug.middleware.proxy_fix import ProxyFix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# A proxy may pass on what its own client wrote; only what can be right is read.
FORWARDED = {
    "HTTP_X_FORWARDED_PROTO": "https?",
    "HTTP_X_FORWARDED_HOST": r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?",
    "HTTP_X_FORWARDED_PREFIX": "(/[A-Za-z0-9._~-]+)+",
}


class TrustedProxy:
    """An application that sees the client's address and its own as the proxy saw them."""

    def __init__(self, app: "WSGIApplication", networks: list[IPv4Network | IPv6Network]) -> None:
        self._direct = app
        self._behind_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._networks = networks
        self._trusts = lru_cache(1000)(self._is_in_networks)

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> "Iterable[bytes]":
        if not self._trusts(environ.get("REMOTE_ADDR", "")):
            return self._direct(environ, start_response)
        for name, form in FORWARDED.items():
            # The last is the proxy's own word; what is before it came from elsewhere.
            said = environ.get(name, "").rpartition(",")[2].strip()
            if not re.fullmatch(form, said):
                environ.pop(name, None)
        if not _is_address(environ.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()):
            environ.pop("HTTP_X_FORWARDED_FOR", None)
        return self._behind_proxy(environ, start_response)

    def _is_in_networks(self, client: str) -> bool:
        return _is_address(client) and any(
            ip_address(client) in network for network in self._networks
        )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
