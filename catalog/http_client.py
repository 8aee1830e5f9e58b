"""HTTP requests to other services: limits of size and time, and what each failure means.

urllib3 and http.client limit each single wait, not their sum. A server that sends a byte now and
then, or "100 Continue" again and again, would keep its client waiting forever: a timer shuts the
socket down at the deadline of the request.
"""

import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from threading import Event, Timer
from typing import NamedTuple

from urllib3 import BaseHTTPResponse, HTTPHeaderDict, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InvalidHeader,
    LocationParseError,
    MaxRetryError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)
from urllib3.util import parse_url

from . import __version__
from .text import error_reason, plural
from .tls import create_context, describe_refusal

USER_AGENT = f"widget-catalog/{__version__}"
UNIX_SCHEME = "unix:"
CONNECT_SECONDS = 10
READ_SIZE = 64 * 1024  # bytes
# Of JSON: a widget with ten thousand versions takes a third of this.
MAX_RESPONSE_BYTES = 32 * 1024 * 1024
# Nobody waits longer for a command.
MAX_RETRY_AFTER = 15  # seconds
# A service closes a connection on which a body arrives more slowly.
MIN_UPLOAD_RATE = 16 * 1024  # bytes a second


class TransferError(Exception):
    """A request has no usable response; the message continues a sentence that begins with the URL.

    A passing one may be gone when a restarted service is ready. An uncertain one may have happened
    after the service did what was requested.
    """

    def __init__(
        self, message: str, *, is_passing: bool = False, is_uncertain: bool = False
    ) -> None:
        super().__init__(message)
        self.is_passing, self.is_uncertain = is_passing, is_uncertain

    def sentence(self, url: str, consequence: str = "") -> str:
        """Return what happened to a request to the URL, and what follows."""
        text = f"{url} {self}{consequence}"
        return text if text.endswith("?") else f"{text}."


class Response(NamedTuple):
    """A complete response."""

    status: int
    headers: HTTPHeaderDict
    body: bytes


@contextmanager
def connection_errors(seconds: float) -> Iterator[None]:
    """Raise TransferError for everything that can prevent a connection."""
    try:
        yield
    except TimeoutError as error:
        raise TransferError(too_slow(seconds)) from error
    except ssl.SSLCertVerificationError as error:
        raise TransferError(f"cannot be reached: {describe_refusal(error)}") from error
    except ssl.SSLError as error:
        raise TransferError("failed the TLS handshake; is this its https port?") from error
    # It is a ConnectTimeoutError too.
    except (NewConnectionError, OSError, UnicodeError) as error:
        cause = error.__cause__ if isinstance(error, NewConnectionError) else error
        reason = error_reason(cause) if isinstance(cause, (OSError, UnicodeError)) else str(cause)
        is_refused = isinstance(cause, ConnectionRefusedError)
        raise TransferError(f"cannot be reached: {reason}", is_passing=is_refused) from error
    except ConnectTimeoutError as error:
        raise TransferError(too_slow(seconds)) from error
    except HTTPError as error:
        raise TransferError("cannot be reached: its host name is not valid") from error


@contextmanager
def transfer_errors(seconds: float, expired: Event) -> Iterator[None]:
    """Raise TransferError for everything that a server can do wrong on a connection."""
    try:
        yield
        # A body without a length seems to be complete when the socket was shut down.
        if expired.is_set():
            raise TimeoutError
    except (OSError, HTTPException, HTTPError) as error:
        is_late = isinstance(error, (TimeoutError, ReadTimeoutError))
        if is_late or expired.is_set():
            raise TransferError(too_slow(seconds), is_uncertain=True) from error
        is_other = isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected)
        if is_other:
            raise TransferError("did not respond with HTTP") from error
        if isinstance(error, (OSError, HTTPException, ProtocolError)):
            raise TransferError("did not respond", is_passing=True, is_uncertain=True) from error
        raise TransferError("sent a response that cannot be decoded") from error


def too_slow(seconds: float) -> str:
    """Return that a server needed more seconds, for a TransferError."""
    limit = plural(int(seconds), "second") if seconds == int(seconds) else f"{seconds} s"
    return f"did not respond within {limit}"


@contextmanager
def limited_time(seconds: float, sock: socket.socket) -> Iterator[Event]:
    """End every wait for the socket, in any thread, when the block lasts longer.

    The event that the block gets is set then.
    """
    expired = Event()

    def shut_down() -> None:
        expired.set()
        with suppress(OSError):
            # Not the method of a TLS socket, which would also change it.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = Timer(max(seconds, 0), shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def read_pieces(response: BaseHTTPResponse, max_bytes: int) -> Iterator[bytes]:
    """Yield the decoded body as it arrives; raise TransferError if it is larger."""
    remaining = max_bytes
    # Not read(): it would block until a whole piece has arrived, and decode it before its size is
    # known.
    while piece := response.read1(READ_SIZE, decode_content=True):
        remaining -= len(piece)
        if remaining < 0:
            raise TransferError(f"sent a response of more than {max_bytes} bytes")
        yield piece


class UnixConnection(HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.unix_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_path)


class HttpClient:
    """Requests to the service at a base URL, or at unix:PATH, on a connection that is kept."""

    def __init__(self, url: str, ca: str | None, *, seconds: float, max_bytes: int) -> None:
        """Trust the certificates of the system, and those in the file ca.

        A request may take so many seconds, and more for a large body; a response is limited too.
        """
        self.url = url
        self._ca, self._seconds, self._max_bytes = ca, seconds, max_bytes
        self._path = ""

    @cached_property
    def _connection(self) -> HTTPConnection:
        """The connection, which is not open yet; raise CertificatesError for an invalid file ca."""
        timeout = min(self._seconds, CONNECT_SECONDS)
        if self.url.startswith(UNIX_SCHEME):
            return UnixConnection(self.url.removeprefix(UNIX_SCHEME), timeout)
        try:
            parts = parse_url(self.url)
        except LocationParseError as error:
            raise TransferError("cannot be reached: its host name is not valid") from error
        host, self._path = (parts.host or "").strip("[]"), (parts.path or "").rstrip("/")
        if parts.scheme != "https":
            return HTTPConnection(host, parts.port, timeout=timeout)
        context = create_context(self._ca)
        return HTTPSConnection(host, parts.port, timeout=timeout, ssl_context=context)

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if "_connection" in vars(self):
            self._connection.close()

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Response:
        """Return the response, of any status; raise TransferError."""
        seconds = self._seconds + len(content or b"") // MIN_UPLOAD_RATE
        deadline = time.monotonic() + seconds
        connection, is_complete = self._connection, False
        try:
            with connection_errors(seconds):
                if not connection.is_connected:
                    connection.close()
                    connection.connect()
                connection.sock.settimeout(seconds)
            left = deadline - time.monotonic()
            with limited_time(left, connection.sock) as expired, transfer_errors(seconds, expired):
                connection.request(
                    method,
                    self._path + path,
                    content,
                    {"User-Agent": USER_AGENT, "Accept": "application/json", **(headers or {})},
                    preload_content=False,
                )
                response = connection.getresponse()
                with closing(response):
                    body = b"".join(read_pieces(response, self._max_bytes))
            is_complete = True
            return Response(response.status, response.headers, body)
        finally:
            if not is_complete:
                connection.close()

    def request_again(
        self,
        retries: Retry,
        on_retry: Callable[[str], None],
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Response:
        """Send a request, after a passing fault as often as the Retry allows.

        Call on_retry with what happened before it is sent for the second time. A Retry-After of
        more than MAX_RETRY_AFTER ends it.
        """
        while True:
            wait, fault = 0.0, None
            try:
                response = self.request(method, path, headers, content)
                if not retries.is_retry(method, response.status):
                    return response
                with suppress(InvalidHeader):
                    wait = retries.parse_retry_after(response.headers.get("Retry-After", "0"))
            except TransferError as error:
                if not error.is_passing:
                    raise
                fault = error
            is_first = not retries.history
            try:
                retries = retries.increment(method, path, error=fault)
            except MaxRetryError:
                wait = math.inf
            if wait > MAX_RETRY_AFTER:
                if fault:
                    raise fault
                return response
            if is_first:
                on_retry("did not respond" if fault else f"responded {response.status}")
            time.sleep(max(wait, retries.get_backoff_time()))
