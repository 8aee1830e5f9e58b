"""Another server over HTTP: each answer bounded in size, in time, and in where it may come from."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from urllib3 import BaseHTTPResponse, Retry, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)

from catalog import __version__
from catalog.mirror.exchanges import exchange_deadline, pool_manager
from catalog.store.bundles import private
from catalog.text import quoted
from catalog.validators import check_http_url

TIMEOUT = Timeout(connect=10, read=30)
BACKOFF = 0.5  # seconds: none before the second try, then this doubled at each
LONGEST_WAIT = 60  # seconds; who is asked to wait longer had better come another time
MAX_ANSWER_BYTES = 32 * 1024 * 1024  # a widget with ten thousand versions takes a third of it
# One request with its whole response, and then all retries with the waits between them.
MAX_EXCHANGE_SECONDS = 120
MAX_RETRY_SECONDS = 180
MAX_BUNDLE_BYTES = 512 * 1024 * 1024  # more than a JavaScript engine takes as one source
# A bundle has this much more time than other responses.
SLOWEST_BUNDLE = 10_000  # bytes a second
MAX_ETAG_LENGTH = 1024
CHUNK = 64 * 1024

Given = TypeVar("Given")


class UpstreamError(Exception):
    """What was asked for does not come; the message says why, without a full stop."""


class RefusedError(UpstreamError):
    """The server has answered, but not with what was asked for."""


class TooLongError(UpstreamError):
    """The body of a response has more bytes than it may have."""


class Answer(NamedTuple):
    """An answer that means something to a mirror: 200, 304 or 404."""

    status: int
    body: bytes
    etag: str | None


class Upstream:
    """The server at a base URL, and others that it names. Threads may share it."""

    def __init__(self, base: str, connections: int, seconds: float = MAX_EXCHANGE_SECONDS) -> None:
        self.base = base_address(base)
        self._seconds = seconds
        self._pool = pool_manager(connections, TIMEOUT)
        self._patience = Retry(
            total=10,
            connect=4,
            read=3,
            redirect=5,
            status=4,
            status_forcelist=(429, 500, 502, 503, 504),
            backoff_factor=BACKOFF,
        )
        self._unreachable: dict[str, str] = {}

    def get(self, path: str, etag: str | None = None) -> Answer:
        """What the server has at the path; 304 and no body if it still has what the ETag names."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if etag is not None:
            headers["If-None-Match"] = etag
        answer = self._exchange(self.base + path, lambda: headers, _answer, self._seconds)
        if answer.status == 304 and etag is None:
            raise UpstreamError("the answer is 304, though nothing is here already")
        return answer

    def download(self, url: str, partial: Path, size: int) -> None:
        """Fill the partial file up to its size with the bytes at the URL.

        A failed transfer keeps what it has received, to be continued by the next. Bytes beyond the
        size prove that the content is another: then the file is removed. Whether the bytes are the
        right ones is for the caller to check.
        """
        if size > MAX_BUNDLE_BYTES:
            raise UpstreamError(f"{size} bytes are more than the {MAX_BUNDLE_BYTES} that are taken")
        if _size(partial) > size:
            partial.unlink()
        if size == 0:
            partial.touch(mode=0o600)
        if _size(partial) < size:
            self._exchange(
                url,
                lambda: _rest_of(partial),
                lambda response: _save(response, partial, size),
                self._seconds + size / SLOWEST_BUNDLE,
            )

    def close(self) -> None:
        """Close every connection."""
        self._pool.clear()

    def _exchange(
        self,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        read: Callable[[BaseHTTPResponse], Given],
        seconds: float,
    ) -> Given:
        """What read() makes of the answer; redirects are followed and passing faults retried.

        urllib3 counts the tries and waits between them. Its own loop is not used: it reads to the
        end each answer that it drops, and one without an end would keep it for ever.
        """
        patience = self._patience
        last_deadline = monotonic() + seconds + MAX_RETRY_SECONDS
        while True:
            host = _host(url)
            if host in self._unreachable:
                raise UpstreamError(self._unreachable[host])
            deadline = min(monotonic() + seconds, last_deadline)
            try:
                with (
                    exchange_deadline(deadline),
                    closing(self._open(url, headers())) as response,
                ):
                    following = _following(url, response, patience)
                    if following is None:
                        return read(response)
                patience = patience.increment("GET", url, response=response)
                if following == url:
                    patience.sleep(response)
                url = following
            except (ConnectTimeoutError, ReadTimeoutError, ProtocolError) as error:
                if monotonic() >= deadline:
                    raise UpstreamError(
                        f"{host} does not complete its response within {seconds:.0f} seconds"
                    ) from error
                try:
                    patience = patience.increment("GET", url, error=error)
                except MaxRetryError as last:
                    sentence = f"{host} {_fault(error)}"
                    if isinstance(error, ConnectTimeoutError):
                        self._unreachable[host] = sentence  # for all else that would be asked there
                    raise UpstreamError(sentence) from last
                patience.sleep()
            except MaxRetryError as error:
                raise UpstreamError(f"{host} gives {error.reason}") from error
            except HTTPError as error:
                raise UpstreamError(f"{host} {_fault(error)}") from error

    def _open(self, url: str, headers: Mapping[str, str]) -> BaseHTTPResponse:
        return self._pool.request(
            "GET",
            url,
            headers={"User-Agent": f"widget-catalog/{__version__}", **headers},
            redirect=False,
            preload_content=False,
        )


def base_address(url: str) -> str:
    """The URL of a server, fit to have a path added; raises ValueError with what is allowed."""
    parts = urlsplit(check_http_url(url))
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("an absolute http or https URL without a user, a query or a fragment")
    return url.rstrip("/?#")


def _host(url: str) -> str:
    try:
        return urlsplit(check_http_url(url)).netloc
    except ValueError as allowed:
        raise UpstreamError(f"{quoted(url)} is not {allowed}") from None


def _following(url: str, response: BaseHTTPResponse, patience: Retry) -> str | None:
    """The address to ask next; None where this is the answer."""
    location = response.get_redirect_location()
    if location:
        try:
            target = urljoin(url, location)
        except ValueError:
            raise UpstreamError(f"{_host(url)} redirects to {quoted(location)}, no URL") from None
        if urlsplit(url).scheme == "https" and not target.startswith("https:"):
            raise UpstreamError(f"{_host(url)} redirects from https to {quoted(target)}")
        return target
    seconds = _asked_wait(response, patience)
    wait = response.headers.get("Retry-After")
    if not patience.is_retry("GET", response.status, wait is not None):
        return None
    if seconds > LONGEST_WAIT:
        raise UpstreamError(
            f"{_host(url)} answers {response.status} and asks to come back later "
            f"(Retry-After: {quoted(wait)[1:-1]})"
        )
    return url


def _asked_wait(response: BaseHTTPResponse, patience: Retry) -> float:
    """The seconds that Retry-After asks for; one that says nothing of the kind is taken away."""
    try:
        return patience.get_retry_after(response) or 0
    except (HTTPError, ValueError, OverflowError):  # the last two of numbers that no time has
        del response.headers["Retry-After"]
        return 0


def _fault(error: HTTPError) -> str:
    match error:
        case NameResolutionError():
            return "cannot be found: its name has no address"
        case ConnectTimeoutError():
            return "cannot be reached"
        case ReadTimeoutError():
            return "does not answer in time"
        case SSLError():
            return f"offers no TLS that can be trusted: {error}"
        case ProtocolError():
            return "breaks off in the middle of its answer"
        case _:
            return f"gives no answer that can be read: {error}"


def _answer(response: BaseHTTPResponse) -> Answer:
    if response.status not in (200, 304, 404):
        raise RefusedError(f"the answer is {response.status}, not 200")
    body = b"".join(_chunks(response, MAX_ANSWER_BYTES))
    etag = response.headers.get("ETag", "")
    can_be_sent = 0 < len(etag) <= MAX_ETAG_LENGTH and etag.isascii() and etag.isprintable()
    return Answer(response.status, body, etag if can_be_sent else None)


def _chunks(response: BaseHTTPResponse, most: int) -> Iterator[bytes]:
    """The body as it comes, read to its end unless it is too long."""
    left = most
    # Not read(), which would wait for a whole chunk however slowly it comes.
    while chunk := response.read1(CHUNK, decode_content=True):
        left -= len(chunk)
        if left < 0:
            raise TooLongError(f"the answer is longer than {most} bytes")
        yield chunk


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _rest_of(partial: Path) -> dict[str, str]:
    start = _size(partial)
    # Without an encoding: in the middle of one, nothing could be added.
    headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
    return {**headers, "Range": f"bytes={start}-"} if start else headers


def _save(response: BaseHTTPResponse, partial: Path, size: int) -> None:
    start = _size(partial)
    if response.status == 200:
        start = 0
    elif response.status == 206:
        given = response.headers.get("Content-Range", "")
        if not given.startswith(f"bytes {start}-") or "Content-Encoding" in response.headers:
            partial.unlink(missing_ok=True)
            raise ProtocolError("the part that is given is not the part that was asked for")
    else:
        raise UpstreamError(f"the answer is {response.status}, not 200")
    with open(partial, "ab" if start else "wb", opener=private) as file:
        try:
            file.writelines(_chunks(response, size - start))
        except TooLongError:
            partial.unlink()
            raise
