"""A urllib3 connection pool in which one deadline covers a whole request.

urllib3 and http.client set a timeout for each single wait, not for their sum. A server that sends a
byte before each timeout, or "100 Continue" again and again, would keep its client waiting forever.
docs/reliability.md promises that an upstream cannot do that to a mirror.
"""

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPResponse
from time import monotonic
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Deadline of the current request, by time.monotonic(). urllib3 has no argument for it.
_deadline: ContextVar[float] = ContextVar("deadline")


@contextmanager
def request_deadline(deadline: float) -> Iterator[None]:
    """Apply the deadline, a time of time.monotonic(), to the request made in this block.

    It covers connecting, the TLS handshake, status line, headers, body and trailers. Past it, each
    wait fails with a timeout of urllib3. Only the system's resolver has limits of its own.
    """
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def create_pool(connections: int, timeout: Timeout) -> PoolManager:
    """Return a pool that obeys request_deadline() and neither retries nor follows redirects."""
    pool = PoolManager(maxsize=connections, timeout=timeout, retries=False)
    pool.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return pool


def _next_timeout(timeout: float | None) -> float:
    """Return the seconds that the next wait may take; raise TimeoutError past the deadline."""
    remaining = _deadline.get() - monotonic()
    if remaining <= 0:
        raise TimeoutError("the deadline of the request has passed")
    return remaining if timeout is None else min(remaining, timeout)


class _DeadlineReader(io.RawIOBase):
    """The bytes of one response; the socket's timeout is set again before each read."""

    def __init__(self, source: io.RawIOBase, sock: socket.socket) -> None:
        self._source = source
        self._socket = sock
        self._timeout = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        self._socket.settimeout(_next_timeout(self._timeout))
        return self._source.readinto(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()


class _DeadlineResponse(HTTPResponse):
    """http.client's response, read through a _DeadlineReader."""

    def __init__(self, sock: socket.socket, *arguments: Any, **keywords: Any) -> None:
        super().__init__(sock, *arguments, **keywords)
        self.fp = io.BufferedReader(_DeadlineReader(self.fp.detach(), sock))


class _Connection(HTTPConnection):
    """A connection with one timeout for all addresses of a host; urllib3's has one for each."""

    response_class = _DeadlineResponse

    def _new_conn(self) -> socket.socket:
        deadline = monotonic() + _next_timeout(self.timeout)
        try:
            return self._connect_to_first(deadline)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except UnicodeError as error:
            raise LocationParseError(f"{self.host!r}, label empty or too long") from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out") from error
        except OSError as error:
            raise NewConnectionError(self, f"No connection to {self.host}: {error}") from error

    def _connect_to_first(self, deadline: float) -> socket.socket:
        """Return a socket connected to the first address that accepts."""
        failure = OSError("the name has no address")
        addresses = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            remaining = deadline - monotonic()
            if remaining <= 0:
                raise TimeoutError
            sock = socket.socket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    sock.setsockopt(*option)
                sock.settimeout(remaining)
                sock.connect(address)
                return sock
            except OSError as error:
                sock.close()
                failure = error
        raise failure


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection
