"""HTTP client for an upstream: responses are bounded in size and time, passing faults retried."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from urllib3 import BaseHTTPResponse, Retry
from urllib3.exceptions import HTTPError

from ..documents import parse_json
from ..http_client import MAX_RESPONSE_BYTES, USER_AGENT, read_pieces
from ..text import quoted
from ..validators import ETAG, check_base_url
from .connections import TOO_SLOW, Connections, UpstreamError, transfer_errors

# For one request with its whole response.
MAX_REQUEST_SECONDS = 120
# For all retries of a request together, with the waits between them.
MAX_RETRY_SECONDS = 180
MAX_REDIRECTS = 5
RETRIED_STATUSES = (429, 500, 502, 503, 504)
# Before each retry.
RETRY_WAITS = (0, 1, 2, 4)  # seconds
# For the list of an upstream and its changes together.
MAX_LIST_SECONDS = 1800
# A Retry-After above this fails the request.
MAX_RETRY_AFTER = 60  # seconds
# More than a JavaScript engine accepts as one source.
MAX_BUNDLE_BYTES = 512 * 1024 * 1024
# The deadline of a bundle is extended in proportion to its size.
MIN_BUNDLE_RATE = 10_000  # bytes a second

T = TypeVar("T")


class UpstreamResponse(NamedTuple):
    """A response of any status that is not retried."""

    status: int
    body: bytes
    etag: str | None

    def json(self) -> Any:
        """Return the JSON value of a response with status 200; raise UpstreamError otherwise."""
        if self.status != 200:
            raise UpstreamError(f"the response status is {self.status}, not 200")
        try:
            return parse_json(self.body)
        except (ValueError, RecursionError) as error:
            raise UpstreamError("the response is not JSON in UTF-8") from error


class Upstream:
    """The server at a base URL, and others that its responses refer to. Thread-safe."""

    def __init__(self, base_url: str, ca: str | None = None) -> None:
        """Trust the certificates of the system, and those in the file ca."""
        self.base_url = check_base_url(base_url)
        self._lists_end = math.inf
        self._connections = Connections(ca)

    def get(self, path: str, etag: str | None = None) -> UpstreamResponse:
        """Return the response for a path below the base URL; 304 if the ETag still matches."""
        headers = {"Accept": "application/json"}
        if etag is not None:
            headers["If-None-Match"] = etag
        return self._request(self.base_url + path, headers, _read_response)

    def limit_lists(self) -> None:
        """Give the lists of this upstream MAX_LIST_SECONDS from now on."""
        self._lists_end = time.monotonic() + MAX_LIST_SECONDS

    def get_page(self, path: str) -> UpstreamResponse:
        """Return a page of a list; raise UpstreamError if the lists take too long."""
        if time.monotonic() > self._lists_end:
            raise UpstreamError(f"its lists take longer than {MAX_LIST_SECONDS // 60} minutes")
        return self.get(path)

    def download(self, url: str, size: int, store: Callable[[Iterator[bytes]], None]) -> None:
        """Pass the content at the URL, of at most that size, to store() in chunks.

        If the transfer fails, the iterator raises, and store() is called again for the next one.
        """
        if size > MAX_BUNDLE_BYTES:
            raise UpstreamError(f"its size is {size} bytes, more than {MAX_BUNDLE_BYTES}")

        def read(response: BaseHTTPResponse) -> None:
            if response.status != 200:
                raise UpstreamError(f"the response status is {response.status}, not 200")
            store(_read_chunks(response, size))

        self._request(url, {"Accept": "*/*"}, read, size / MIN_BUNDLE_RATE)

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _request(
        self,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[BaseHTTPResponse], T],
        more_seconds: float = 0,
    ) -> T:
        """Send a GET, retry passing faults, and return what read() returns."""
        max_seconds = MAX_REQUEST_SECONDS + more_seconds
        last_deadline = time.monotonic() + max_seconds + MAX_RETRY_SECONDS
        for wait in (*RETRY_WAITS, None):
            deadline = min(time.monotonic() + max_seconds, last_deadline)
            try:
                return self._follow(url, headers, read, deadline)
            except UpstreamError as failure:
                error = failure
            if time.monotonic() >= deadline:
                # The connection was shut down.
                raise UpstreamError(TOO_SLOW)
            if wait is None or not error.is_temporary:
                break
            time.sleep(max(error.retry_after, wait))
        raise error

    def _follow(
        self,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[BaseHTTPResponse], T],
        deadline: float,
    ) -> T:
        """Send a GET, follow redirects, and return what read() returns."""
        common = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"}
        for _ in range(1 + MAX_REDIRECTS):
            with self._connections.get(url, {**common, **headers}, deadline) as response:
                _check_status(response)
                location = response.get_redirect_location()
                if not location:
                    return read(response)
            url = _redirect_target(url, location)
        raise UpstreamError("there are too many redirects")


def _redirect_target(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
    except ValueError:
        raise UpstreamError(f"it redirects to {quoted(location)}, not a URL") from None
    if urlsplit(url).scheme == "https" and not target.startswith("https:"):
        raise UpstreamError(f"it redirects from https to {quoted(target)}")
    return target


def _check_status(response: BaseHTTPResponse) -> None:
    """Raise UpstreamError if the request is to be repeated later."""
    if response.status not in RETRIED_STATUSES:
        return
    try:
        seconds = Retry().get_retry_after(response) or 0
    except (HTTPError, ValueError, OverflowError):
        # Not a valid time.
        seconds = 0
    raise UpstreamError(
        f"the response status is {response.status}, not 200",
        is_temporary=seconds <= MAX_RETRY_AFTER,
        retry_after=seconds,
    )


def _read_response(response: BaseHTTPResponse) -> UpstreamResponse:
    body = b"".join(_read_chunks(response, MAX_RESPONSE_BYTES))
    etag = response.headers.get("ETag", "")
    return UpstreamResponse(response.status, body, etag if ETAG.fullmatch(etag) else None)


def _read_chunks(response: BaseHTTPResponse, max_bytes: int) -> Iterator[bytes]:
    """Yield the decoded body as it arrives; raise UpstreamError beyond the limit."""
    with transfer_errors():
        yield from read_pieces(response, max_bytes)
