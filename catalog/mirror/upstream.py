"""The HTTP requests that a mirror sends to its upstream, and to URLs that the upstream names."""

import time
from typing import Any
from urllib.parse import urljoin, urlsplit

from ..domain.documents import parse_json
from ..domain.messages import quoted
from ..domain.validators import ETAG, check_base_url, check_http_url
from ..system.http_client import HttpClient, Response, Retries, Sink
from ..system.http_connections import Origin, TransferError
from ..system.netrc_file import Credentials
from ..system.tls import CertificatesError

# The maximum duration of a request, including its whole response.
MAX_REQUEST_SECONDS = 120
# The additional time for all retries of a request and the waits between them.
MAX_RETRY_SECONDS = 180
MAX_REDIRECTS = 5
REDIRECTS = {301, 302, 303, 307, 308}
RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
# The wait before each retry.
RETRY_WAITS = (0, 1, 2, 4)  # seconds
# A request fails if the upstream's Retry-After is longer than this.
MAX_RETRY_AFTER = 60  # seconds
# The maximum time for reading an upstream's list and changes together.
MAX_LIST_SECONDS = 1800
# The maximum size of a bundle: JavaScript engines do not accept a larger source.
MAX_BUNDLE_BYTES = 512 * 1024 * 1024
# The time limit for a download grows with its size, at this rate.
MIN_BUNDLE_RATE = 10_000  # bytes per second


class UpstreamError(Exception):
    """A request failed; the message says why, without a full stop."""


class Upstream:
    """The server at a base URL, and other servers that its responses refer to. Thread-safe."""

    def __init__(self, base_url: str, credentials: Credentials, ca: str | None = None) -> None:
        """Trust the system's certificates, and those in the ca file.

        The credentials are sent only to the origin of the base URL.
        """
        self.base_url = check_base_url(base_url)
        self._origin, self._credentials = Origin.of(self.base_url), credentials
        self._client = HttpClient(
            self.base_url, ca, seconds=MAX_REQUEST_SECONDS, protects_local_network=True
        )
        # The deadline for reading all lists, which a run reads first.
        self._lists_end = time.monotonic() + MAX_LIST_SECONDS
        # The error for each host that could not be reached despite retries. Many bundles may be on
        # one host, so further requests to it fail immediately.
        self._unreachable: dict[Origin, TransferError] = {}

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def get(self, path: str, etag: str | None = None) -> Response:
        """Return the response for a path below the base URL; 304 if the ETag still matches."""
        headers = {} if etag is None else {"If-None-Match": etag}
        return self._request(self.base_url + path, headers)

    def get_page(self, path: str) -> Response:
        """Return one page of a list; raise UpstreamError if reading the lists takes too long."""
        if time.monotonic() > self._lists_end:
            raise UpstreamError(f"its lists took over {MAX_LIST_SECONDS // 60} minutes to read")
        return self.get(path)

    def download(self, url: str, size: int, store: Sink) -> None:
        """Pass an iterator over the content at the URL, at most size bytes, to store().

        If the transfer fails, the iterator raises an error, and a retry calls store() again.
        """
        if size > MAX_BUNDLE_BYTES:
            raise UpstreamError(f"its size is {size} bytes, more than {MAX_BUNDLE_BYTES}")
        _check_status(self._request(url, {"Accept": "*/*"}, size, store).status)

    def _request(
        self, url: str, headers: dict[str, str], size: int = 0, sink: Sink | None = None
    ) -> Response:
        """Send a GET request, retry after transient errors, and follow redirects."""
        seconds = MAX_REQUEST_SECONDS + size / MIN_BUNDLE_RATE
        end = time.monotonic() + seconds + MAX_RETRY_SECONDS
        retries = Retries(RETRY_WAITS, RETRIED_STATUSES, MAX_RETRY_AFTER)
        authorization, is_own = self._credentials.authorization, True
        for _ in range(1 + MAX_REDIRECTS):
            origin = _check_url(url)
            # Once a redirect has led to another origin, never send credentials again.
            is_own = is_own and origin == self._origin
            sent = {"Authorization": authorization} if is_own and authorization else {}
            try:
                if origin in self._unreachable:
                    raise self._unreachable[origin]
                response = self._client.request(
                    "GET",
                    url,
                    {**headers, **sent},
                    seconds=seconds,
                    sink=sink,
                    max_bytes=size,
                    retries=retries,
                    end=end,
                )
            except TransferError as error:
                if error.is_unsent:
                    self._unreachable[origin] = error
                raise UpstreamError(f"it {error}") from error
            except CertificatesError as error:
                raise UpstreamError(str(error)) from error
            if response.status in RETRIED_STATUSES:
                raise UpstreamError(f"it responded {response.status}")
            if is_own and (response.status == 401 or (sent and response.status == 403)):
                reason = self._credentials.describe_rejection(origin.host, response.status)
                raise UpstreamError(reason)
            location = response.headers.get("Location")
            if response.status not in REDIRECTS or not location:
                return response
            url = _redirect_target(url, location)
        raise UpstreamError("it redirects too often")


def read_json(response: Response) -> Any:
    """Return the JSON value in a response with status 200; raise UpstreamError otherwise."""
    _check_status(response.status)
    try:
        return parse_json(response.body)
    except (ValueError, RecursionError) as error:
        raise UpstreamError("the response is not JSON in UTF-8") from error


def read_etag(response: Response) -> str | None:
    """Return the ETag of a response, or None if it is missing or invalid."""
    etag = response.headers.get("ETag", "")
    return etag if ETAG.fullmatch(etag) else None


def _check_status(status: int) -> None:
    if status != 200:
        raise UpstreamError(f"it responded {status}")


def _check_url(url: str) -> Origin:
    try:
        return Origin.of(check_http_url(url))
    except (ValueError, TransferError):
        raise UpstreamError(f"{quoted(url)} is not an absolute http or https URL") from None


def _redirect_target(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
    except ValueError:
        raise UpstreamError(f"it redirects to {quoted(location)}, which is not a URL") from None
    if urlsplit(url).scheme == "https" and not target.startswith("https:"):
        raise UpstreamError(f"it redirects from https to {quoted(target)}")
    return target
