"""Requests to a service with a token, and what each failure means to the user."""

import io
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from semver import Version
from urllib3 import BaseHTTPResponse, PoolManager, Retry, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from catalog import __version__
from catalog.documents import Json
from catalog.remote.token_file import find_token
from catalog.store.lookup import ChangeError
from catalog.text import error_reason, escape_unprintable, quoted
from catalog.validators import check_base_url

TOOL_VERSION_PATH = "/api/widgets/cli-version"
# A service that stores a large bundle responds when it is on disk.
TIMEOUT = Timeout(connect=10, read=120)  # seconds
BLOCK_SIZE = 64 * 1024  # bytes

# GET and PUT change nothing if they are repeated. Whether a POST or a PATCH without a response had
# an effect is not known, so these are never repeated.
RETRIES = Retry(
    total=2,
    connect=0,
    other=0,
    allowed_methods={"GET", "PUT"},
    status_forcelist={502, 503, 504},
    backoff_factor=0.5,
    retry_after_max=30,
    raise_on_status=False,
)

# It would print a line for each retry.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

OnProgress = Callable[[int, int], None]


class RemoteError(ChangeError):
    """The service cannot be used, or refuses the request; the message says why."""


class Body(NamedTuple):
    """The body of a request."""

    content: bytes
    content_type: str = "application/json"
    # Called with the bytes that are sent, and all of them.
    on_progress: OnProgress = lambda sent, total: None


def json_body(value: object) -> Body:
    """Return a body with this JSON value."""
    return Body(json.dumps(value).encode())


class _BodyReader(io.BytesIO):
    """The body while it is sent; a retry sends it from the beginning."""

    def __init__(self, body: Body) -> None:
        super().__init__(body.content)
        self._total = len(body.content)
        self._on_progress = body.on_progress

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        self._on_progress(self.tell(), self._total)
        return block


def check_server_url(url: str) -> str:
    """Return the base URL of a service to send a token to; raise ValueError with the rule."""
    parts = urlsplit(base_url := check_base_url(url))
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise ValueError("an https URL; http would show the token, and is only for loopback")
    return base_url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Service:
    """A service that is asked with a token; the first request checks the version of this tool."""

    def __init__(self, url: str, ca: str | None = None) -> None:
        """Trust the certificates in the file ca; without one, those of the system."""
        self.url = url
        # None is the token in the environment, or the stored one.
        self.token: str | None = None
        self._ca = ca
        self._pool: PoolManager | None = None

    def request(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> Json:
        """Return the JSON object of a response; raise RemoteError if it is an error."""
        token = self.token or find_token(self.url)
        if self._pool is None:
            self._pool = self._connect()
            self._check_tool_version(self._pool)
        query = f"?{urlencode(parameters)}" if parameters else ""
        response = self._send(self._pool, method, path + query, body, f"Bearer {token}")
        content = _parse_object(response)
        if response.status in (200, 201) and content is not None:
            return content
        raise RemoteError(self._describe_refusal(response, content))

    def _connect(self) -> PoolManager:
        context = None
        if self._ca is not None:
            try:
                context = ssl.create_default_context(cafile=self._ca)
            except ssl.SSLError:
                raise RemoteError(f"{self._ca} is not a PEM file of certificates.") from None
        return PoolManager(
            ssl_context=context, retries=RETRIES, timeout=TIMEOUT, blocksize=BLOCK_SIZE
        )

    def _check_tool_version(self, pool: PoolManager) -> None:
        """Raise RemoteError if the service needs a newer version of this tool."""
        response = self._send(pool, "GET", TOOL_VERSION_PATH)
        content = _parse_object(response) or {}
        try:
            minimum = Version.parse(content["minimumVersion"])
        except (KeyError, TypeError, ValueError):
            raise RemoteError(
                f"{self.url} is not a widget catalog: it responded {response.status} to "
                f"{TOOL_VERSION_PATH}."
            ) from None
        if Version.parse(__version__) < minimum:
            raise RemoteError(
                f"This is widget-catalog {__version__}, and {self.url} needs {minimum} or newer; "
                "update it with pip install --upgrade widget-catalog."
            )

    def _send(
        self,
        pool: PoolManager,
        method: str,
        path: str,
        body: Body | None = None,
        authorization: str | None = None,
    ) -> BaseHTTPResponse:
        headers = {"User-Agent": f"widget-catalog/{__version__}", "Accept": "application/json"}
        if authorization:
            headers["Authorization"] = authorization
        if body:
            headers["Content-Type"] = body.content_type
            headers["Content-Length"] = str(len(body.content))
        try:
            return pool.request(
                method,
                self.url + path,
                body=_BodyReader(body) if body else None,
                headers=headers,
                redirect=False,
            )
        except HTTPError as error:
            raise RemoteError(self._describe_failure(method, error)) from error

    def _describe_failure(self, method: str, error: HTTPError) -> str:
        """Return what happened to a request that got no response."""
        cause = error.reason if isinstance(error, MaxRetryError) else error
        match cause:
            case NameResolutionError() | LocationParseError():
                return f"{self.url} cannot be found: its name has no address."
            case SSLError(args=(ssl.SSLCertVerificationError() as reason, *_)):
                return (
                    f"The certificate of {self.url} is not valid: {reason.verify_message}; "
                    "use --ca for a private authority."
                )
            case SSLError(args=(reason, *_)) if not isinstance(reason, ssl.SSLEOFError):
                return f"{self.url} failed the TLS handshake: {escape_unprintable(str(reason))}."
            case NewConnectionError() if isinstance(cause.__cause__, OSError):
                return f"{self.url} cannot be reached: {error_reason(cause.__cause__)}."
            case ConnectTimeoutError() | NewConnectionError():
                return f"{self.url} cannot be reached."
            case ReadTimeoutError():
                text = f"{self.url} did not respond in time"
            case _:
                text = f"{self.url} closed the connection without a response"
        if method == "GET":
            return f"{text}."
        return f"{text}, so it may have made the change; the same command again does no harm."

    def _describe_refusal(self, response: BaseHTTPResponse, content: Json | None) -> str:
        """Return what a response other than the expected one means."""
        if response.status == 401:
            return (
                f"{self.url} refused the token: it is unknown, expired or revoked. "
                f"Use widget-catalog --server {self.url} login with a valid one."
            )
        if isinstance(content, dict) and isinstance(content.get("error"), str):
            return escape_unprintable(content["error"])
        text = f"{self.url} responded {response.status}"
        if response.status == 413:
            return f"{text}: a proxy before it accepts no body of this size."
        location = response.headers.get("Location")
        return f"{text} and redirects to {quoted(location)}." if location else f"{text}."


def _parse_object(response: BaseHTTPResponse) -> Json | None:
    """Return the JSON object in the body, None if it has none."""
    try:
        value = json.loads(response.data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
