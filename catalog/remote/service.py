"""Requests to a service with a token, and what each failure means to the user."""

import json
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from semver import Version
from urllib3 import Retry

from .. import __version__
from ..changes import ChangeError, MissingError
from ..documents import Json, parse_json
from ..http_client import MAX_RESPONSE_BYTES, HttpClient, Response, TransferError
from ..rights import NEEDS_SESSION
from ..text import escape_unprintable, plural, quoted
from ..tls import CertificatesError
from ..validators import is_loopback
from .token_file import VARIABLE, find_token

TOOL_VERSION_PATH = "/api/widgets/cli-version"
# A service that stores a large bundle responds when it is on disk.
MAX_SECONDS = 60

# A service that is restarted, or its proxy meanwhile, is asked again. Every request may be
# repeated: the same change again is no change.
PASSING_STATUSES = {429, 502, 503, 504}
# The first retry is immediate, the second after twice this, and so on.
BACKOFF = 1.0  # seconds
# Retries and the longest wait: 4 seconds for somebody who only looks, 29 for a change.
READ, CHANGE = (3, 2), (5, 15)
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


def json_body(value: object) -> Body:
    """Return a body with this JSON value."""
    return Body(json.dumps(value).encode(), "application/json")


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
        self._client = HttpClient(url, ca, seconds=MAX_SECONDS, max_bytes=MAX_RESPONSE_BYTES)
        self._is_checked = False

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, path: str, parameters: Mapping[str, object] | None = None) -> Json:
        """Return the JSON object of a public path; raise MissingError or RemoteError."""
        response = self._send(READ, "GET", path + _query(parameters))
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
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise RemoteError(
                f"{self.url} is not an https URL; http would show the token, and is only for "
                "loopback."
            )
        token = self.token or find_token(self.url)
        headers = {"Authorization": f"Bearer {token}"}
        if body:
            headers["Content-Type"] = body.content_type
        content = body.content if body else None
        patience = READ if method == "GET" else CHANGE
        if not self._is_checked:
            self._check_tool(patience)
        return self._read(self._send(patience, method, path + _query(parameters), headers, content))

    def _read(self, response: Response) -> Json:
        """Return the JSON object of a response; raise RemoteError if it is an error."""
        if response.status not in (200, 201):
            raise RemoteError(self._describe_refusal(response))
        return _parse_object(response)

    def _check_tool(self, patience: tuple[int, int]) -> None:
        """Raise RemoteError if the service needs a newer release of this program."""
        response = self._send(patience, "GET", TOOL_VERSION_PATH)
        if response.status not in (200, 404):
            raise RemoteError(self._describe_refusal(response))
        try:
            minimum = Version.parse(_parse_object(response)["minimumVersion"])
        except (KeyError, TypeError, ValueError):
            raise RemoteError(f"{self.url} is not a widget catalog.") from None
        if Version.parse(__version__) < minimum:
            raise RemoteError(
                f"This is widget-catalog {__version__}, and {self.url} needs {minimum} or newer; "
                "install a newer release."
            )
        self._is_checked = True

    def _send(
        self,
        patience: tuple[int, int],
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Response:
        """Return the response; after a passing fault, send the request again for some time."""
        number, longest = patience
        retries = Retry(
            number,
            allowed_methods=None,
            status_forcelist=PASSING_STATUSES,
            backoff_factor=BACKOFF,
            backoff_max=longest,
        )
        seconds = sum(min(int(BACKOFF * 2**each), longest) for each in range(1, number))

        def on_retry(problem: str) -> None:
            limit = plural(seconds, "second")
            self._on_retry(f"{self.url} {problem}; trying again for {limit}.")

        try:
            return self._client.request_again(retries, on_retry, method, path, headers, content)
        except CertificatesError as error:
            raise RemoteError(f"{error}.") from None
        except TransferError as error:
            if error.is_uncertain and method != "GET":
                consequence = f", so it may have made the change; {SAFE_AGAIN}"
            else:
                is_refused = error.is_passing and not error.is_uncertain
                consequence = "; is the service running?" if is_refused else ""
            raise RemoteError(error.sentence(self.url, consequence)) from error

    def _describe_refusal(self, response: Response) -> str:
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
        location = response.headers.get("Location") if 300 <= response.status < 400 else None
        target = f" and redirects to {quoted(location)}" if location else ""
        return f"{self.url} responded {response.status}{target}.{again}"


def _query(parameters: Mapping[str, object] | None) -> str:
    return f"?{urlencode(parameters, doseq=True)}" if parameters else ""


def _parse_object(response: Response) -> Json:
    """Return the JSON object in a body, an empty one if it has none."""
    try:
        value = parse_json(response.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
