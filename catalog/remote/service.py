"""Requests to a service with a token, and what each failure means to the user."""

import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from semver import Version
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError

from .. import __version__
from ..changes import ChangeError, MissingError
from ..documents import Json, parse_json
from ..rights import NEEDS_SESSION
from ..text import error_reason, escape_unprintable, quoted
from ..tls import CertificatesError, create_context, describe_refusal
from ..validators import is_loopback
from .token_file import VARIABLE, find_token

TOOL_VERSION_PATH = "/api/widgets/cli-version"
# A service that stores a large bundle responds when it is on disk.
TIMEOUT = Timeout(connect=10, read=60)  # seconds

# A service that is restarted, or its proxy meanwhile, is asked again. Every request may be
# repeated: the same change again is no change.
PASSING_STATUSES = {502, 503, 504}
RETRY_WAITS = (1, 2, 4, 8, 15)  # seconds
SAFE_AGAIN = "run it again, it is safe"


class RemoteError(ChangeError):
    """The service cannot be used, or refuses the request; the message says why."""

    def __init__(self, message: str) -> None:
        # The service may have written a part of it.
        super().__init__(escape_unprintable(message))


class Body(NamedTuple):
    """The body of a request."""

    content: bytes
    content_type: str


class ServiceObject(dict[str, Any]):
    """The JSON object of a response, which must have the keys that are read."""

    def __init__(self, url: str, content: Json) -> None:
        super().__init__(content)
        self._url = url

    def __missing__(self, key: str) -> Any:
        origin = "a proxy or another service may have sent it"
        raise RemoteError(f"The response of {self._url} has no {key}; {origin}.")


def json_body(value: object) -> Body:
    """Return a body with this JSON value."""
    return Body(json.dumps(value).encode(), "application/json")


def _is_private(url: str) -> bool:
    """Return whether nobody on the way can read what is sent to a URL."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


class Service:
    """A service; before the first request with a token, the release of this program is checked."""

    def __init__(
        self, url: str, ca: str | None = None, on_retry: Callable[[str], None] = lambda _: None
    ) -> None:
        """Trust the certificates in the file ca; without one, those of the system.

        Call on_retry with a sentence before a request is repeated for the first time.
        """
        self.url = url
        self._on_retry = on_retry
        # None is the token in the environment, or the stored one.
        self.token: str | None = None
        self._ca = ca
        self._is_checked = False

    def get(self, path: str, parameters: Mapping[str, object] | None = None) -> Json:
        """Return the JSON object of a public path; raise MissingError or RemoteError."""
        response = self._send("GET", path + _query(parameters))
        if response.status == 404 and "error" in (refusal := _parse_object(response)):
            raise MissingError(escape_unprintable(str(refusal["error"])))
        return self._read(response)

    def request(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> Json:
        """Return the JSON object of a response; raise RemoteError for an error."""
        if not _is_private(self.url):
            raise RemoteError(
                f"{self.url} is not an https URL; http would show the token, and is only for "
                "loopback."
            )
        token = self.token or find_token(self.url)
        headers = {"Authorization": f"Bearer {token}"}
        if body:
            headers["Content-Type"] = body.content_type
        content = body.content if body else None
        if not self._is_checked:
            self._check_tool()
        return self._read(self._send(method, path + _query(parameters), headers, content))

    def _read(self, response: BaseHTTPResponse) -> Json:
        """Return the JSON object of a response; raise RemoteError if it is an error."""
        if response.status not in (200, 201):
            raise RemoteError(self._describe_refusal(response))
        return ServiceObject(self.url, _parse_object(response))

    @cached_property
    def _pool(self) -> PoolManager:
        """Connections to the service."""
        try:
            context = create_context(self._ca)
        except CertificatesError as error:
            raise RemoteError(f"{error}.") from None
        return PoolManager(ssl_context=context)

    def _check_tool(self) -> None:
        """Raise RemoteError if the service needs a newer release of this program."""
        response = self._send("GET", TOOL_VERSION_PATH)
        if response.status not in (200, 404):
            raise RemoteError(self._describe_refusal(response))
        try:
            minimum = Version.parse(_parse_object(response)["minimumVersion"])
        except KeyError:
            raise RemoteError(f"{self.url} is not a widget catalog.") from None
        if Version.parse(__version__) < minimum:
            raise RemoteError(
                f"This is widget-catalog {__version__}, and {self.url} needs {minimum} or newer; "
                "install a newer release."
            )
        self._is_checked = True

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> BaseHTTPResponse:
        """Return the response; after a passing fault, send the request again for some time."""
        common = {"User-Agent": f"widget-catalog/{__version__}", "Accept": "application/json"}
        send = partial(
            self._pool.request,
            method,
            self.url + path,
            body=content,
            headers={**common, **(headers or {})},
            redirect=False,
            timeout=TIMEOUT,
            retries=False,
        )
        try:
            for number, wait in enumerate(RETRY_WAITS):
                try:
                    response = send()
                    problem = f"responded {response.status}"
                    if response.status not in PASSING_STATUSES:
                        return response
                except HTTPError as error:
                    problem = "did not respond"
                    if not _is_passing(error):
                        raise
                if number == 0:
                    seconds = sum(RETRY_WAITS)
                    self._on_retry(f"{self.url} {problem}; trying again for {seconds} seconds.")
                time.sleep(wait)
            return send()
        except HTTPError as error:
            raise RemoteError(self._describe_failure(error)) from error

    def _describe_failure(self, error: HTTPError) -> str:
        """Return what happened to a request that got no response."""
        match error:
            case NewConnectionError(__cause__=ConnectionRefusedError()):
                return f"{self.url} cannot be reached: Connection refused; {SAFE_AGAIN}."
            case NewConnectionError(__cause__=OSError() as reason):
                return f"{self.url} cannot be reached: {error_reason(reason)}."
            case SSLError(args=(ssl.SSLCertVerificationError() as reason, *_)):
                return f"{self.url} cannot be reached: {describe_refusal(reason)}."
            case SSLError():
                return f"{self.url} failed the TLS handshake; is this its https port?"
        return f"{self.url} did not respond, so it may have made the change; {SAFE_AGAIN}."

    def _describe_refusal(self, response: BaseHTTPResponse) -> str:
        """Return what a response other than the expected one means."""
        error = _parse_object(response).get("error")
        if response.status == 401:
            is_variable = self.token is None and os.environ.get(VARIABLE)
            source = f" in {VARIABLE}" if is_variable else ""
            reason = "It is unknown." if error in (None, NEEDS_SESSION) else error
            return f"{self.url} refused the token{source}. {reason}"
        again = f" To try it later, {SAFE_AGAIN}." if response.status in PASSING_STATUSES else ""
        if isinstance(error, str):
            return error + again
        location = response.get_redirect_location()
        target = f" and redirects to {quoted(location)}" if location else ""
        return f"{self.url} responded {response.status}{target}.{again}"


def _is_passing(error: HTTPError) -> bool:
    """Return whether a service that is being started may be the cause."""
    is_refused = isinstance(error.__cause__, ConnectionRefusedError)
    return is_refused or isinstance(error, ProtocolError)


def _query(parameters: Mapping[str, object] | None) -> str:
    return f"?{urlencode(parameters, doseq=True)}" if parameters else ""


def _parse_object(response: BaseHTTPResponse) -> Json:
    """Return the JSON object in a body, an empty one if it has none."""
    try:
        value = parse_json(response.data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
