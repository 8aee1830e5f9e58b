"""HTTP connections to an upstream, and to the hosts that its responses refer to."""

import ipaddress
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from http.client import HTTPException
from threading import get_ident
from time import monotonic
from typing import NamedTuple

from urllib3 import BaseHTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, LocationParseError, ProtocolError, ReadTimeoutError
from urllib3.util import parse_url

from ..http_client import TransferError, limited_time
from ..text import quoted
from ..tls import CertificatesError, create_context, describe_refusal
from ..validators import check_http_url

# For all addresses of a host together, and then for the TLS handshake.
CONNECT_SECONDS = 10
# For one wait.
READ_SECONDS = 30
# A host that could not be reached for so long is not tried again, such as for each of its bundles.
MAX_UNREACHABLE_SECONDS = 10
TOO_SLOW = "the server does not respond in time"


class UpstreamError(Exception):
    """A request failed; the message says why, without a full stop."""

    def __init__(self, message: str, *, is_temporary: bool = False, retry_after: float = 0) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary
        # Seconds.
        self.retry_after = retry_after


@contextmanager
def transfer_errors() -> Iterator[None]:
    """Raise UpstreamError for everything that the network and the server can do wrong."""
    try:
        yield
    except TransferError as error:
        raise UpstreamError(f"the server {error}") from error
    except CertificatesError as error:
        raise UpstreamError(str(error)) from error
    except (TimeoutError, ReadTimeoutError) as error:
        raise UpstreamError(TOO_SLOW, is_temporary=True) from error
    except ssl.SSLCertVerificationError as error:
        raise UpstreamError(describe_refusal(error)) from error
    except ssl.SSLError as error:
        raise UpstreamError(f"the TLS handshake failed: {error}") from error
    except (OSError, HTTPException, ProtocolError) as error:
        message = "the connection ended before the response was complete"
        raise UpstreamError(message, is_temporary=True) from error
    except HTTPError as error:
        raise UpstreamError(f"the response is invalid: {error}") from error


class Origin(NamedTuple):
    """What a connection can be used for: scheme, host and port of a URL."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Origin":
        """Return the origin of a URL; raise UpstreamError if it is not an http or https URL."""
        try:
            parts = parse_url(check_http_url(url))
        except (ValueError, LocationParseError):
            message = f"{quoted(url)} is not an absolute http or https URL"
            raise UpstreamError(message) from None
        scheme, host = parts.scheme or "http", (parts.host or "").strip("[]")
        return cls(scheme, host, parts.port or (443 if scheme == "https" else 80))

    def resolve(self) -> list[str]:
        """Return the addresses of the host, none if it cannot be found."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        return [str(address[0]) for *_, address in found]

    def connect(
        self, address: str, timeout: float, context: ssl.SSLContext | None
    ) -> HTTPConnection:
        """Return a new connection to this address of the host, with a context for https."""
        connection = HTTPConnection(address, self.port, timeout=timeout)
        if context:
            connection = HTTPSConnection(
                address,
                self.port,
                timeout=timeout,
                server_hostname=self.host,
                ssl_context=context,
            )
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        connection.timeout = READ_SECONDS
        return connection


class Connections:
    """Connections that are used again: each thread keeps its last one. Thread-safe."""

    def __init__(self, ca: str | None) -> None:
        """Trust the certificates of the system, and those in the file ca."""
        self._ca = ca
        # Whether the upstream itself is on the local network, by all of its addresses.
        self._is_local: bool | None = None
        # By the threads that used them.
        self._idle: dict[int, tuple[Origin, HTTPConnection]] = {}
        # When a connection to a host failed first.
        self._unreachable_since: dict[Origin, float] = {}

    @contextmanager
    def get(
        self, url: str, headers: Mapping[str, str], deadline: float
    ) -> Iterator[BaseHTTPResponse]:
        """Send a GET and yield its response; raise UpstreamError, in any case past the deadline.

        The deadline, a time of time.monotonic(), is for everything from connecting to the last byte
        that the block reads. Only the system's resolver has limits of its own.
        """
        origin, target = Origin.of(url), parse_url(url)
        with transfer_errors():
            connection = self._take(origin) or self._connect(origin, deadline)
        is_complete = False
        try:
            with limited_time(deadline - monotonic(), connection.sock) as expired:
                with transfer_errors():
                    host = {"Host": target.netloc or origin.host}
                    connection.request(
                        "GET",
                        target.request_uri,
                        headers={**host, **headers},
                        preload_content=False,
                    )
                    response = connection.getresponse()
                with closing(response):
                    yield response
                    # A body without a length seems to be complete when the socket was shut down.
                    if expired.is_set():
                        raise UpstreamError(TOO_SLOW)
                    is_complete = response.closed and connection.sock is not None
        finally:
            if is_complete:
                self._idle[get_ident()] = origin, connection
            else:
                connection.close()

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return create_context(self._ca)

    def close(self) -> None:
        """Close the connections at rest."""
        for _, connection in self._idle.values():
            connection.close()

    def _take(self, origin: Origin) -> HTTPConnection | None:
        """Return this thread's last connection, if it leads there and the server has kept it."""
        last, connection = self._idle.pop(get_ident(), (None, None))
        if connection and last == origin and connection.is_connected:
            return connection
        if connection:
            connection.close()
        return None

    def _connect(self, origin: Origin, deadline: float) -> HTTPConnection:
        """Return a connection to the first address that accepts."""
        now = monotonic()
        since = self._unreachable_since.get(origin, now)
        is_temporary = now - since <= MAX_UNREACHABLE_SECONDS
        end = min(deadline, now + CONNECT_SECONDS)
        for address in self._allowed_addresses(origin) if is_temporary else []:
            if (remaining := end - monotonic()) <= 0:
                break
            with suppress(HTTPError):
                context = self._context if origin.scheme == "https" else None
                connection = origin.connect(address, remaining, context)
                self._unreachable_since.pop(origin, None)
                return connection
        self._unreachable_since[origin] = since
        raise UpstreamError(f"{origin.host} cannot be reached", is_temporary=is_temporary)

    def _allowed_addresses(self, origin: Origin) -> list[str]:
        """Return the addresses of the host; raise UpstreamError if it may not be asked.

        A publisher at the upstream could have a mirror request something from its own network. The
        connection is made to an address that was checked: a name could have another one later.
        """
        addresses = origin.resolve()
        if self._is_local is None and addresses:
            # The first connection is to the upstream itself. A second lookup could differ.
            self._is_local = not any(map(_is_public, addresses))
        if self._is_local:
            return addresses
        allowed = [address for address in addresses if _is_public(address)]
        if addresses and not allowed:
            raise UpstreamError(
                f"{origin.host} is at {addresses[0]}, an address of the local network, which only "
                "an upstream that is there itself may refer to"
            )
        return allowed


# Networks that are not those of one machine on the Internet, although some versions of Python call
# them global: of local use, or around an IPv4 address that may be a local one (NAT64, 6to4).
NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "3fff::/20",
        "5f00::/16", "fec0::/10",
    )
]  # fmt: skip


def _is_public(address: str) -> bool:
    """Return whether the address is one of the Internet, and of one machine."""
    parsed = ipaddress.ip_address(address)
    is_excepted = any(parsed in network for network in NOT_PUBLIC)
    return parsed.is_global and not parsed.is_multicast and not is_excepted
