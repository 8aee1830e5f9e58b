"""Authenticated requests to a service, and messages that explain each failure to the user."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from semver import Version

from .. import __version__
from ..domain.changes import ChangeError, MissingError
from ..domain.documents import Json, parse_json
from ..domain.messages import quoted
from ..domain.permissions import NEEDS_SESSION
from ..domain.validators import is_loopback
from ..system.http_client import HttpClient, Response, Retries
from ..system.http_connections import TransferError
from ..system.tls import CertificatesError
from .identity import exchange_once, find_identity
from .response_shapes import EXCHANGED, Shape, ShapeError, check_shape
from .token_file import VARIABLE, find_token, missing_token

CLI_VERSION_PATH = "/api/widgets/cli-version"
# A service responds to a large bundle only after writing it to disk.
MAX_SECONDS = 60
# The maximum total size of the responses to one command.
MAX_TOTAL_BYTES = 256 * 1024 * 1024

# Every request may be retried: repeating a change is a no-op.
TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
# The waits before each retry: 4 seconds in total for a read, 29 for a change.
READ_WAITS, CHANGE_WAITS = (0, 2, 2), (0, 2, 4, 8, 15)
# A longer Retry-After ends the retries: users do not wait that long for a command.
MAX_RETRY_AFTER = 15  # seconds
SAFE_AGAIN = "repeating the command is safe"
# Explanations for statuses that a proxy in front of the service sends itself.
PROXY_REASONS = {
    401: "it asks for a user name and password",
    403: "it does not allow this request from this machine",
    413: "the body is larger than the proxy allows",
}


class RemoteError(ChangeError):
    """The service cannot be used, or refused the request; the message gives the reason.

    Part of the message may come from the service.
    """


class Body(NamedTuple):
    """The body of a request."""

    content: bytes
    content_type: str


def json_body(value: object) -> Body:
    """Return a body with this JSON value."""
    return Body(json.dumps(value).encode(), "application/json")


class Service:
    """A service; the first request with a token checks which release the service requires."""

    def __init__(
        self, url: str, ca: str | None = None, on_retry: Callable[[str], None] = lambda _: None
    ) -> None:
        """Trust the system's certificates and the certificates in the ca file.

        Call on_retry with a sentence before the first retry of a request.
        """
        self.url = url
        self._on_retry = on_retry
        # If None, use the token in the environment, the stored token or the job's, in this order.
        self.token: str | None = None
        self._ca = ca
        self._client = HttpClient(url, ca, seconds=MAX_SECONDS)
        self._is_checked = False
        self._received = 0

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, path: str, shape: Shape, parameters: Mapping[str, object] | None = None) -> Json:
        """Return the JSON object at a public path; raise MissingError if there is none."""
        response = self._send(READ_WAITS, "GET", path + _query(parameters))
        if response.status == 404 and "error" in (refusal := _parse_object(response)):
            raise MissingError(str(refusal["error"]))
        return self._read(response, shape)

    def request(
        self,
        method: str,
        path: str,
        shape: Shape,
        body: Body | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> Json:
        """Return the JSON object in the response; raise RemoteError if the request fails."""
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise RemoteError(
                f"{self.url} is not an https URL. The token is sent over http only to a loopback "
                "address."
            )
        headers = {"Authorization": f"Bearer {self._find_token()}"}
        if body:
            headers["Content-Type"] = body.content_type
        content = body.content if body else None
        waits = READ_WAITS if method == "GET" else CHANGE_WAITS
        if not self._is_checked:
            self._check_release(waits)
        response = self._send(waits, method, path + _query(parameters), headers, content)
        return self._read(response, shape)

    def _find_token(self) -> str:
        """Return the user's token or this job's token; raise TokenError if there is none."""
        token = self.token or find_token(self.url)
        if token is None:
            identity = find_identity(self.url, self._ca)
            if identity is None:
                raise missing_token(self.url)
            token = self.token = exchange_once(self.url, identity, self._exchange, self._on_retry)
        return token

    def _exchange(self, id_token: str) -> Json:
        """Return the short-lived token that the service issues for an id token, and its expiry."""
        self._check_release(CHANGE_WAITS)
        body = json_body({"idToken": id_token})
        headers = {"Content-Type": body.content_type}
        response = self._send(CHANGE_WAITS, "POST", "/api/session", headers, body.content)
        if response.status == 401:
            raise RemoteError(f"{self.url} runs a release that does not accept id tokens.")
        session = self._read(response, EXCHANGED)
        return {"token": session["token"], "expiresAt": session["expiresAt"]}

    def _read(self, response: Response, shape: Shape) -> Json:
        """Return the JSON object in a response; raise RemoteError unless it has the shape."""
        if response.status not in (200, 201):
            raise RemoteError(self._describe_error(response))
        value = _parse_object(response)
        try:
            check_shape(value, shape)
        except ShapeError as error:
            raise RemoteError(self.describe_unexpected(str(error))) from None
        return value

    def describe_unexpected(self, problem: str) -> str:
        """Return the message about a response that a widget catalog would not send."""
        origin = "a proxy or another service may have sent it"
        return f"The response from {self.url} {problem}; {origin}."

    def _check_release(self, waits: Sequence[float]) -> None:
        """Raise RemoteError if the service needs a newer release of this program."""
        response = self._send(waits, "GET", CLI_VERSION_PATH)
        if response.status not in (200, 404):
            raise RemoteError(self._describe_error(response))
        try:
            minimum = Version.parse(_parse_object(response)["minimumVersion"])
        except (KeyError, TypeError, ValueError):
            raise RemoteError(f"{self.url} is not a widget catalog.") from None
        if Version.parse(__version__) < minimum:
            raise RemoteError(
                f"{self.url} needs widget-catalog {minimum} or newer, but this is {__version__}. "
                "Install a newer release."
            )
        self._is_checked = True

    def _send(
        self,
        waits: Sequence[float],
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Response:
        """Return the response; retry the request after transient errors."""

        def on_retry(problem: str) -> None:
            self._on_retry(f"{self.url} {problem}; retrying for {sum(waits)} seconds.")

        retries = Retries(waits, TRANSIENT_STATUSES, MAX_RETRY_AFTER, on_retry)
        try:
            response = self._client.request(method, path, headers, content, retries=retries)
        except CertificatesError as error:
            raise RemoteError(f"{error}.") from None
        except TransferError as error:
            advice = "."
            if error.is_unsent and error.is_transient:
                advice = "; is the service running?"
            elif not error.is_unsent and method != "GET":
                advice = f", so it may have made the change; {SAFE_AGAIN}."
            raise RemoteError(f"{self.url} {error}{advice}") from error
        self._received += len(response.body)
        if self._received > MAX_TOTAL_BYTES:
            raise RemoteError(f"{self.url} sent more than {MAX_TOTAL_BYTES} bytes in total.")
        return response

    def _describe_error(self, response: Response) -> str:
        """Return the message that explains an error response."""
        error = _parse_object(response).get("error")
        # The service itself explains these statuses in JSON, so a proxy has sent this response.
        if response.status in PROXY_REASONS and not isinstance(error, str):
            reason = PROXY_REASONS[response.status]
            return f"The proxy at {self.url} refused the request ({response.status}): {reason}."
        if response.status == 401:
            is_variable = self.token is None and os.environ.get(VARIABLE)
            source = f" in {VARIABLE}" if is_variable else ""
            why = "The token is unknown." if error == NEEDS_SESSION else error
            return f"{self.url} refused the token{source}. {why}"
        again = f" Try again later; {SAFE_AGAIN}." if response.status in TRANSIENT_STATUSES else ""
        if isinstance(error, str):
            return error + again
        location = response.headers.get("Location") if 300 <= response.status < 400 else None
        target = f" and redirects to {quoted(location)}" if location else ""
        return f"{self.url} responded {response.status}{target}.{again}"


def _query(parameters: Mapping[str, object] | None) -> str:
    return f"?{urlencode(parameters, doseq=True)}" if parameters else ""


def _parse_object(response: Response) -> Json:
    """Return the JSON object in a body; {} if the body is not a JSON object."""
    try:
        value = parse_json(response.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
