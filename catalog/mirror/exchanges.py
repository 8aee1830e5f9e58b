"""Connections for urllib3 that hold a whole HTTP exchange to one deadline.

urllib3 and http.client bound each single wait for the network, not their sum. A server that sends
one byte before each timeout, or "100 Continue" again and again, would hold its client without end.
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

# By time.monotonic(), of the exchange that this thread is in. urllib3 has no argument for it.
_deadline: ContextVar[float] = ContextVar("deadline")


@contextmanager
def exchange_deadline(deadline: float) -> Iterator[None]:
    """Hold the exchange in this block to the deadline, a time of time.monotonic().

    It covers connecting, the TLS handshake, status line, headers, body and trailers: each wait ends
    at the deadline as a timeout of urllib3. The system's resolver has limits of its own.
    """
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def pool_manager(connections: int, timeout: Timeout) -> PoolManager:
    """A pool of connections that keep to exchange_deadline(); it neither retries nor redirects."""
    manager = PoolManager(maxsize=connections, timeout=timeout, retries=False)
    manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return manager


def _time_left(longest: float | None) -> float:
    """Seconds that one wait may take; raises TimeoutError at the deadline."""
    left = _deadline.get() - monotonic()
    if left <= 0:
        raise TimeoutError("the deadline of the exchange has passed")
    return left if longest is None else min(left, longest)


class _Reader(io.RawIOBase):
    """The bytes of one response, as they come from the socket."""

    def __init__(self, source: io.RawIOBase, sock: socket.socket) -> None:
        self._source = source
        self._socket = sock
        self._longest_wait = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        self._socket.settimeout(_time_left(self._longest_wait))
        return self._source.readinto(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()


class _Response(HTTPResponse):
    """http.client's response, all of which comes through one _Reader."""

    def __init__(self, sock: socket.socket, *arguments: Any, **keywords: Any) -> None:
        super().__init__(sock, *arguments, **keywords)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock))


class _Connecting(HTTPConnection):
    """Connects with one timeout for all addresses of the host, where urllib3 gives one to each."""

    response_class = _Response

    def _new_conn(self) -> socket.socket:
        end = monotonic() + _time_left(self.timeout)
        try:
            return self._first_that_connects(end)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except UnicodeError as error:
            raise LocationParseError(f"{self.host!r}, label empty or too long") from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out") from error
        except OSError as error:
            raise NewConnectionError(self, f"No connection to {self.host}: {error}") from error

    def _first_that_connects(self, end: float) -> socket.socket:
        failure = OSError("the name has no address")
        found = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            left = end - monotonic()
            if left <= 0:
                raise TimeoutError
            sock = socket.socket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    sock.setsockopt(*option)
                sock.settimeout(left)
                sock.connect(address)
                return sock
            except OSError as error:
                sock.close()
                failure = error
        raise failure


class _ConnectingWithTLS(_Connecting, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _Connecting


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _ConnectingWithTLS
