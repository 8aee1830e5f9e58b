"""Connections for HTTP requests: host addresses, socket deadlines and TLS."""

import errno
import ipaddress
import socket
import ssl
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Event, Lock, Timer
from typing import NamedTuple

from urllib3.connection import HTTPConnection
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from ..domain.messages import plural
from .paths import error_reason
from .tls import create_context, describe_certificate_error

UNIX_SCHEME = "unix:"
MAX_IDLE_CONNECTIONS = 32
# Errors with these numbers are transient, as is every ConnectionError.
TRANSIENT_ERRORS = {errno.EHOSTUNREACH, errno.ENETUNREACH, socket.EAI_AGAIN}
NOT_VALID = "cannot be reached: its host name is not valid"

# Networks that some versions of Python call global, although no address in them belongs to one
# machine on the internet. Their addresses are for local use or, as in NAT64 and 6to4, contain an
# IPv4 address that may be local.
NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "3fff::/20",
        "5f00::/16", "fec0::/10",
    )
]  # fmt: skip


class TransferError(Exception):
    """A request got no usable response; the message continues a sentence that begins with the URL.

    A transient error may disappear when the request is retried. If is_unsent is true, the service
    did not receive the request; otherwise it may have carried the request out.
    """

    def __init__(
        self, message: str, *, is_transient: bool = False, is_unsent: bool = False
    ) -> None:
        super().__init__(message)
        self.is_transient, self.is_unsent = is_transient, is_unsent


def too_slow(seconds: float, **flags: bool) -> TransferError:
    """Return the error for a server that took longer than this many seconds."""
    is_round = seconds == int(seconds) or seconds > 10
    limit = plural(int(seconds), "second") if is_round else f"{seconds:.2g} s"
    return TransferError(f"did not respond within {limit}", **flags)


class Origin(NamedTuple):
    """The server at the other end of a connection; for a Unix socket, the host is its path."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Origin":
        """Return the origin of a URL or of unix:PATH; raise TransferError if it is not valid."""
        if url.startswith(UNIX_SCHEME):
            return cls("unix", url.removeprefix(UNIX_SCHEME), 0)
        try:
            parts = parse_url(url)
        except LocationParseError as error:
            raise TransferError(NOT_VALID, is_unsent=True) from error
        scheme, host = parts.scheme or "http", (parts.host or "").strip("[]")
        return cls(scheme, host, parts.port or (443 if scheme == "https" else 80))


@contextmanager
def limited_time(deadline: float, sock: socket.socket) -> Iterator[Event]:
    """At the deadline, set the event and shut the socket down, which interrupts any wait."""
    expired = Event()

    def shut_down() -> None:
        expired.set()
        with suppress(OSError):
            # Calling shutdown() on a TLS socket would also change state that its thread is using.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = Timer(max(deadline - time.monotonic(), 0), shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def _close_all(idle: list[tuple[Origin, HTTPConnection]]) -> None:
    while idle:
        idle.pop()[1].close()


class Connections:
    """Keeps connections open for later requests. Thread-safe."""

    def __init__(self, ca: str | None, seconds: float, *, protects_local_network: bool) -> None:
        """Trust the system's certificates and the certificates in the ca file.

        Trying all addresses of a host may take this many seconds, and so may the TLS handshake.
        With protects_local_network, addresses on the local network are rejected unless the host of
        the first connection is on that network.
        """
        self._ca, self._seconds = ca, seconds
        self._protects_local_network = protects_local_network
        # True if all addresses of the first host are local; None before the first connection.
        self._is_local: bool | None = None
        self._idle: list[tuple[Origin, HTTPConnection]] = []
        # Close the sockets of a client that is never closed explicitly.
        weakref.finalize(self, _close_all, self._idle)
        self._lock = Lock()

    def open(self, origin: Origin, deadline: float) -> HTTPConnection:
        """Return an idle connection that the server has kept open, or a new one."""
        while idle := self._take(origin):
            if idle.is_connected:
                return idle
            idle.close()
        limit = min(self._seconds, deadline - time.monotonic())
        with _connection_errors(self._seconds):
            sock = self._connect(origin, time.monotonic() + limit)
            try:
                if isinstance(sock, ssl.SSLSocket):
                    _shake_hands(sock, time.monotonic() + limit)
            except BaseException:
                sock.close()
                raise
        connection = HTTPConnection(origin.host)
        connection.sock = sock
        return connection

    def keep(self, origin: Origin, connection: HTTPConnection) -> None:
        """Keep a connection for the next request after its response has been read completely."""
        with self._lock:
            self._idle.append((origin, connection))
            evicted = self._idle[:-MAX_IDLE_CONNECTIONS]
            del self._idle[:-MAX_IDLE_CONNECTIONS]
        for _, each in evicted:
            each.close()

    def close(self) -> None:
        """Close the idle connections."""
        _close_all(self._idle)

    def _take(self, origin: Origin) -> HTTPConnection | None:
        with self._lock:
            found = next((each for each in reversed(self._idle) if each[0] == origin), None)
            if found:
                self._idle.remove(found)
        return found and found[1]

    def _connect(self, origin: Origin, end: float) -> socket.socket:
        """Try the addresses of the host in turn, and return the first socket that connects."""
        last_error = OSError(None, "its host name has no address")
        for family, address in self._resolve(origin):
            if (remaining := end - time.monotonic()) <= 0:
                raise TimeoutError
            sock = socket.socket(family)
            try:
                sock.settimeout(remaining)
                sock.connect(address)
                if origin.scheme != "unix":
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if origin.scheme == "https":
                    sock = self._tls_context.wrap_socket(
                        sock, server_hostname=origin.host, do_handshake_on_connect=False
                    )
                return sock
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                last_error = error
        raise last_error

    def _resolve(self, origin: Origin) -> list[tuple[int, str | tuple[str, int]]]:
        """Return the addresses of the host that may be used, each with its family.

        A connection uses only addresses that were checked here: a later lookup could return others.
        """
        if origin.scheme == "unix":
            return [(socket.AF_UNIX, origin.host)]
        found = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        public = [each for each in found if _is_public(str(each[4][0]))]
        if self._is_local is None:
            self._is_local = not public
        if self._protects_local_network and not self._is_local:
            if not public:
                raise TransferError(
                    f"is at {found[0][4][0]}, an address on the local network: only an upstream on "
                    "that network may refer to it",
                    is_unsent=True,
                )
            found = public
        return [(family, address) for family, *_, address in found]  # type: ignore[misc]

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        return create_context(self._ca)


def _shake_hands(sock: ssl.SSLSocket, deadline: float) -> None:
    with limited_time(deadline, sock) as expired:
        try:
            sock.do_handshake()
        except OSError:
            if expired.is_set():
                raise TimeoutError from None
            raise


def _is_public(address: str) -> bool:
    """Return whether the address is a public unicast address."""
    parsed = ipaddress.ip_address(address)
    is_excepted = any(parsed in network for network in NOT_PUBLIC)
    return parsed.is_global and not parsed.is_multicast and not is_excepted


@contextmanager
def _connection_errors(seconds: float) -> Iterator[None]:
    """Raise a TransferError for every error that prevents a connection."""
    try:
        yield
    except TimeoutError as error:
        raise too_slow(seconds, is_unsent=True) from error
    except ssl.SSLCertVerificationError as error:
        message = f"cannot be reached: {describe_certificate_error(error)}"
        raise TransferError(message, is_unsent=True) from error
    except ssl.SSLError as error:
        message = "failed the TLS handshake; this may not be its https port"
        raise TransferError(message, is_unsent=True) from error
    except UnicodeError as error:
        raise TransferError(NOT_VALID, is_unsent=True) from error
    except OSError as error:
        is_transient = isinstance(error, ConnectionError) or error.errno in TRANSIENT_ERRORS
        message = f"cannot be reached: {error_reason(error)}"
        raise TransferError(message, is_transient=is_transient, is_unsent=True) from error
