"""Addresses of clients: which of them are trusted proxies, and which client a proxy forwards."""

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network


class TrustedProxies:
    """The networks of trusted proxies, and whether the clients of Unix sockets are trusted."""

    def __init__(self, networks: list[IPv4Network | IPv6Network], has_unix: bool) -> None:
        self._networks, self._has_unix = networks, has_unix
        self.include = lru_cache(1000)(self._include)

    def __bool__(self) -> bool:
        return bool(self._networks) or self._has_unix

    def _include(self, address: str) -> bool:
        # A client of a Unix socket has no address.
        if not address:
            return self._has_unix
        return is_address(address) and any(
            ip_address(address) in network for network in self._networks
        )

    def find_client(self, address: str, forwarded_for: str) -> str:
        """Return the client that sent a request, or that a trusted proxy names."""
        if forwarded_for and self.include(address):
            named = last_value(forwarded_for)
            address = named if is_address(named) else address
        return client_network(address)


@lru_cache(1000)
def client_network(address: str) -> str:
    """Return the address, or its /64 network: an IPv6 client usually controls a whole /64."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        # A client of a Unix socket has no address.
        return address
    return str(ip_network((ip, 64), strict=False)) if ip.version == 6 else str(ip)


def last_value(value: str) -> str:
    """Return the value that the proxy itself added to a list; the others came from its client."""
    return value.rpartition(",")[2].strip()


def is_address(text: str) -> bool:
    """Return whether the text is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
