"""Requests to a service with a token, and what each failure means to the user."""

import io
import json
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

from semver import Version
from urllib3 import PoolManager, Retry, Timeout
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
from catalog.documents import Json, parse_json
from catalog.remote.responses import PARSE_ERRORS
from catalog.remote.token_file import VARIABLE, find_token
from catalog.store.write.lookup import ChangeError
from catalog.text import error_reason, escape_unprintable, quoted
from catalog.validators import check_base_url

TOOL_VERSION_PATH = "/api/widgets/cli-version"
# A service that stores a large bundle responds when it is on disk.
TIMEOUT = Timeout(connect=10, read=120)  # seconds
# The first request also shows whether there is a service. A port without TLS may wait for more of
# the handshake.
FIRST_TIMEOUT = Timeout(10)  # seconds
BLOCK_SIZE = 64 * 1024  # bytes
MAX_RESPONSE_BYTES = 32 * 1024 * 1024

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

FIRST_RETRIES = RETRIES.new(read=0)

# Results of OpenSSL if no trusted authority has signed the certificate.
UNKNOWN_AUTHORITY = {18, 19, 20, 21}

# It would print a line for each retry.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

OnProgress = Callable[[int, int], None]
Parsed = TypeVar("Parsed")


class RemoteError(ChangeError):
    """The service cannot be used, or refuses the request; the message says why."""

    def __init__(self, message: str) -> None:
        # The service may have written a part of it.
        super().__init__(escape_unprintable(message))


class Body(NamedTuple):
    """The body of a request."""

    content: bytes
    content_type: str = "application/json"
    # Called with the bytes that are sent, and all of them.
    on_progress: OnProgress = lambda sent, total: None


class Response(NamedTuple):
    """A response of the service."""

    status: int
    location: str | None
    # None if the body is not a JSON object.
    content: Json | None


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
    parts = urlsplit(check_base_url(url))
    try:
        # A number that is no port raises ValueError.
        _ = parts.port
    except ValueError:
        raise ValueError("a URL with a valid port") from None
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise ValueError("an https URL; http would show the token, and is only for loopback")
    # Tokens are stored by this URL.
    return parts._replace(netloc=parts.netloc.lower()).geturl()


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
        parse: Callable[[Json], Parsed],
        body: Body | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> Parsed:
        """Return what parse makes of the JSON object of a response; raise RemoteError for an error.

        The function parse raises one of PARSE_ERRORS if the object is not as expected.
        """
        token = self.token or find_token(self.url)
        if self._pool is None:
            pool = self._connect()
            self._check_tool_version(pool)
            self._pool = pool
        query = f"?{urlencode(parameters)}" if parameters else ""
        response = self._send(self._pool, method, path + query, body, f"Bearer {token}")
        if response.status not in (200, 201):
            raise RemoteError(self._describe_refusal(response))
        try:
            return parse(response.content or {})
        except PARSE_ERRORS as error:
            raise RemoteError(
                f"{self.url} responded {response.status} with content that widget-catalog "
                f"{__version__} cannot read: the service may be of another release, or a proxy "
                "responded."
            ) from error

    def _connect(self) -> PoolManager:
        context = None
        if self._ca is not None:
            try:
                context = ssl.create_default_context(cafile=self._ca)
            except ssl.SSLError:
                raise RemoteError(f"{self._ca} is not a PEM file of certificates.") from None
        return PoolManager(ssl_context=context, blocksize=BLOCK_SIZE)

    def _check_tool_version(self, pool: PoolManager) -> None:
        """Raise RemoteError if the service needs a newer version of this tool."""
        response = self._send(pool, "GET", TOOL_VERSION_PATH)
        if response.status >= 500 or 300 <= response.status < 400:
            raise RemoteError(self._describe_refusal(response))
        try:
            minimum = Version.parse((response.content or {})["minimumVersion"])
        except (KeyError, TypeError, ValueError):
            raise RemoteError(
                f"{self.url} is not a widget catalog: it responded {response.status} to "
                f"{TOOL_VERSION_PATH}."
            ) from None
        if Version.parse(__version__) < minimum:
            raise RemoteError(
                f"This is widget-catalog {__version__}, and {self.url} needs {minimum} or newer; "
                "install a newer release."
            )

    def _send(
        self,
        pool: PoolManager,
        method: str,
        path: str,
        body: Body | None = None,
        authorization: str | None = None,
    ) -> Response:
        headers = {"User-Agent": f"widget-catalog/{__version__}", "Accept": "application/json"}
        if authorization:
            headers["Authorization"] = authorization
        if body:
            headers["Content-Type"] = body.content_type
            headers["Content-Length"] = str(len(body.content))
        try:
            response = pool.request(
                method,
                self.url + path,
                body=_BodyReader(body) if body else None,
                headers=headers,
                redirect=False,
                preload_content=False,
                timeout=TIMEOUT if authorization else FIRST_TIMEOUT,
                retries=RETRIES if authorization else FIRST_RETRIES,
            )
            content = response.read(MAX_RESPONSE_BYTES)
            # If all of it is read, the connection is already in the pool again.
            response.close()
        except HTTPError as error:
            raise RemoteError(self._describe_failure(method, error)) from error
        return Response(response.status, response.headers.get("Location"), _parse_object(content))

    def _describe_failure(self, method: str, error: HTTPError) -> str:
        """Return what happened to a request that got no response."""
        cause = error.reason if isinstance(error, MaxRetryError) else error
        match cause:
            case NameResolutionError() | LocationParseError():
                return f"{self.url} cannot be found: its name has no address."
            case SSLError(args=(ssl.SSLCertVerificationError() as reason, *_)):
                text = f"The certificate of {self.url} is not valid: "
                text += reason.verify_message.rstrip(".")
                is_unknown = reason.verify_code in UNKNOWN_AUTHORITY
                return f"{text}; use --ca for a private authority." if is_unknown else f"{text}."
            case SSLError(args=(reason, *_)) if not isinstance(reason, ssl.SSLEOFError):
                name = str(getattr(reason, "reason", reason)).replace("_", " ").lower()
                return f"{self.url} failed the TLS handshake: {name}; is this its https port?"
            case NewConnectionError() if isinstance(cause.__cause__, OSError):
                return f"{self.url} cannot be reached: {error_reason(cause.__cause__)}."
            case ConnectTimeoutError() | NewConnectionError():
                return f"{self.url} cannot be reached."
            case ReadTimeoutError() if self._pool is None:
                advice = "; is this its https port?" if self.url.startswith("https:") else "."
                return f"{self.url} did not respond in {FIRST_TIMEOUT.total} seconds{advice}"
            case ReadTimeoutError():
                text = f"{self.url} did not respond in time"
            case _:
                text = f"{self.url} closed the connection without a response"
        if method == "GET":
            return f"{text}."
        return f"{text}, so it may have made the change; the same command again does no harm."

    def _describe_refusal(self, response: Response) -> str:
        """Return what a response other than the expected one means."""
        text = f"{self.url} responded {response.status}"
        error = (response.content or {}).get("error")
        if response.status == 401:
            return self._describe_unauthorized()
        if isinstance(error, str):
            return error
        if response.status == 413:
            return f"{text}: a proxy before it accepts no body of this size."
        if response.location:
            return f"{text} and redirects to {quoted(response.location)}."
        return f"{text}."

    def _describe_unauthorized(self) -> str:
        is_variable = self.token is None and os.environ.get(VARIABLE)
        source = f" in {VARIABLE}" if is_variable else ""
        text = (
            f"{self.url} refused the token{source}: it is unknown, expired or revoked, or the "
            "service is too old for tokens."
        )
        login = f" Use widget-catalog --server {self.url} login with a valid one."
        return text if is_variable else text + login


def _parse_object(content: bytes) -> Json | None:
    """Return the JSON object in a body, None if it has none."""
    try:
        value = parse_json(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
