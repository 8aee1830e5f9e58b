"""Client addresses: recognises trusted proxies, and finds the client that a proxy names."""

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network


class TrustedProxies:
    """The networks of trusted proxies, and whether clients on Unix sockets are trusted."""

    def __init__(self, networks: list[IPv4Network | IPv6Network], has_unix: bool) -> None:
        self._networks, self._has_unix = networks, has_unix
        self.include = lru_cache(1000)(self._include)

    def __bool__(self) -> bool:
        return bool(self._networks) or self._has_unix

    def _include(self, address: str) -> bool:
        # A client on a Unix socket has no address.
        if not address:
            return self._has_unix
        return is_address(address) and any(
            ip_address(address) in network for network in self._networks
        )

    def find_client(self, address: str, forwarded_for: str) -> str:
        """Return the client of a request: its sender, or the client that a trusted proxy names."""
        if forwarded_for and self.include(address):
            named = last_value(forwarded_for)
            address = named if is_address(named) else address
        return client_network(address)


@lru_cache(1000)
def client_network(address: str) -> str:
    """Return the address, or the /64 of an IPv6 address: a client usually controls a whole /64."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        # A client on a Unix socket has no address.
        return address
    return str(ip_network((ip, 64), strict=False)) if ip.version == 6 else str(ip)


def last_value(value: str) -> str:
    """Return the last value in a list, which the proxy added; earlier values came from clients."""
    return value.rpartition(",")[2].strip()


def is_address(text: str) -> bool:
    """Return whether the string is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
