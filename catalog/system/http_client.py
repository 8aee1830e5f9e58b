"""The HTTP client for all requests to other services, with limits on size and time.

urllib3 and http.client limit each single wait, not the sum of all waits. A server that sends a byte
now and then, or "100 Continue" again and again, could keep its client waiting forever. Therefore a
timer shuts the socket down at the deadline of the request.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from threading import Event
from typing import NamedTuple

from urllib3 import BaseHTTPResponse, HTTPHeaderDict
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError
from urllib3.util import parse_url

from .. import __version__
from .http_connections import (
    UNIX_SCHEME,
    Connections,
    Origin,
    TransferError,
    limited_time,
    too_slow,
)

CONNECT_SECONDS = 10
# The maximum duration of one wait. A request may wait many times.
MAX_WAIT_SECONDS = 60
READ_SIZE = 64 * 1024  # bytes
# A detail with ten thousand versions takes about a third of this size.
MAX_RESPONSE_BYTES = 32 * 1024 * 1024
# Services close a connection if a body arrives more slowly than this.
MIN_UPLOAD_RATE = 16 * 1024  # bytes a second
HEADERS = {
    "User-Agent": f"widget-catalog/{__version__}",
    "Accept": "application/json",
    "Accept-Encoding": "gzip",
}

# A function that receives the body of a response in pieces.
Sink = Callable[[Iterator[bytes]], None]


class Response(NamedTuple):
    """A complete response."""

    status: int
    headers: HTTPHeaderDict
    # The body; empty if a sink received it.
    body: bytes


class Retries(NamedTuple):
    """The rules for retrying a request after a transient error or one of these statuses."""

    # The wait before each retry.
    waits: Sequence[float] = ()  # seconds
    statuses: frozenset[int] = frozenset()
    # A longer Retry-After ends the retries.
    max_retry_after: float = 0  # seconds
    # Called with a description of the problem before the first retry.
    on_retry: Callable[[str], None] = lambda _: None


NO_RETRIES = Retries()


class HttpClient:
    """Sends requests to a service, and to other URLs that it names. Thread-safe."""

    def __init__(
        self,
        url: str,
        ca: str | None = None,
        *,
        seconds: float,
        max_bytes: int | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        protects_local_network: bool = False,
    ) -> None:
        """Limit each request to this many seconds, plus the time to upload a large body.

        The URL may be unix:PATH. See Connections for ca and protects_local_network.
        """
        self.url = url
        self._seconds, self._max_bytes = seconds, max_bytes or MAX_RESPONSE_BYTES
        self._connections = Connections(
            ca, min(seconds, connect_seconds), protects_local_network=protects_local_network
        )

    def close(self) -> None:
        """Close the idle connections; the next request opens a new one."""
        self._connections.close()

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        *,
        seconds: float | None = None,
        sink: Sink | None = None,
        max_bytes: int = 0,
        retries: Retries = NO_RETRIES,
        end: float | None = None,
    ) -> Response:
        """Return the response, with any status, for a path on the service or for another URL.

        If the status is 200, the sink receives the body, which is limited to max_bytes; after a
        retry the sink is called again. seconds replaces the client's time limit. No attempt lasts
        beyond end, a value of time.monotonic().
        """
        if self.url.startswith(UNIX_SCHEME):
            origin, host = Origin.of(self.url), "localhost"
        else:
            url = self.url + target if target.startswith("/") else target
            origin, parts = Origin.of(url), parse_url(url)
            host, target = parts.netloc or origin.host, parts.request_uri
        limit = (seconds or self._seconds) + len(content or b"") // MIN_UPLOAD_RATE
        message = (method, target, content, {"Host": host, **HEADERS, **(headers or {})})
        attempt = partial(self._attempt, origin, message, limit, sink, max_bytes)
        waits, is_first = iter(retries.waits), True
        while True:
            now, wait, retry_after = time.monotonic(), next(waits, None), 0.0
            try:
                response = attempt(now + limit if end is None else min(now + limit, end))
                retry_after = _parse_retry_after(response.headers.get("Retry-After", ""))
                is_retried = response.status in retries.statuses
                if not is_retried or wait is None or retry_after > retries.max_retry_after:
                    return response
                problem = f"responded {response.status}"
            except TransferError as error:
                if wait is None or not error.is_transient:
                    raise
                problem = "did not respond"
            if is_first:
                retries.on_retry(problem)
                is_first = False
            time.sleep(max(wait, retry_after))

    def _attempt(
        self,
        origin: Origin,
        message: tuple[str, str, bytes | None, Mapping[str, str]],
        limit: float,
        sink: Sink | None,
        max_bytes: int,
        deadline: float,
    ) -> Response:
        """Send a request once and read its response; limit is used in error messages."""
        connection, is_complete = self._connections.open(origin, deadline), False
        try:
            with limited_time(deadline, connection.sock) as expired:
                errors = partial(_transfer_errors, limit, deadline, expired)
                with errors("did not respond"):
                    # A timeout of 0 would make the socket non-blocking.
                    remaining = max(deadline - time.monotonic(), 0.001)
                    connection.timeout = min(MAX_WAIT_SECONDS, remaining)
                    connection.sock.settimeout(connection.timeout)
                    connection.request(*message, preload_content=False)
                    response = connection.getresponse()
                with closing(response):
                    errors = partial(errors, "did not send its whole response")
                    body = b""
                    if sink and response.status == 200:
                        sink(_read_pieces(response, max_bytes, errors))
                    else:
                        body = b"".join(_read_pieces(response, self._max_bytes, errors))
                    # After the timer shuts the socket down, the body seems to have ended.
                    if expired.is_set():
                        raise too_slow(limit)
                    is_complete = response.closed and connection.sock is not None
            return Response(response.status, response.headers, body)
        finally:
            if is_complete:
                self._connections.keep(origin, connection)
            else:
                connection.close()


def _read_pieces(
    response: BaseHTTPResponse,
    max_bytes: int,
    errors: Callable[[], AbstractContextManager[None]],
) -> Iterator[bytes]:
    """Yield the decoded body as it arrives; raise TransferError if it is too large."""
    remaining = max_bytes
    while True:
        # Catch only transfer errors: a sink may fail for other reasons, such as a full disk.
        with errors():
            # read() would wait for a whole piece, and would decode it before its size is known.
            piece = response.read1(READ_SIZE, decode_content=True)
        if not piece:
            return
        remaining -= len(piece)
        if remaining < 0:
            raise TransferError(f"sent a response of more than {max_bytes} bytes")
        yield piece


@contextmanager
def _transfer_errors(limit: float, deadline: float, expired: Event, problem: str) -> Iterator[None]:
    """Raise a TransferError for every error on an open connection."""
    try:
        yield
    except (OSError, HTTPException, HTTPError) as error:
        if expired.is_set() or time.monotonic() >= deadline:
            raise too_slow(limit) from error
        if isinstance(error, (TimeoutError, ReadTimeoutError)):
            raise too_slow(min(MAX_WAIT_SECONDS, limit), is_transient=True) from error
        if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
            raise TransferError("did not respond with HTTP") from error
        if isinstance(error, (OSError, HTTPException, ProtocolError)):
            raise TransferError(problem, is_transient=True) from error
        raise TransferError("sent a response that cannot be decoded") from error


def _parse_retry_after(text: str) -> float:
    """Return the seconds in a Retry-After header; 0 if it is missing or invalid."""
    if re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0
    return max((moment.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds(), 0)
