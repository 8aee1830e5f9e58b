"""Fault injection and the list of received requests, for services that a test suite starts."""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from waitress.channel import ClientDisconnected

from catalog import V1_PREFIX
from catalog.documents import Json
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import WouldBlock

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

FAILURE_BODY = json.dumps({"error": "The test suite requested this failure."}).encode() + b"\n"


class Fault(NamedTuple):
    """What happens to one request instead of a response of the application."""

    # None closes the connection without a response.
    status: int | None
    retry_after: str | None = None


class RequestControl:
    """WSGI middleware that records requests and delays, fails or drops them.

    Only catalog/testing/server.py adds it to an application.
    """

    def __init__(self, application: "WSGIApplication", database: Database) -> None:
        self._application, self._database = application, database
        self._delay = 0.0
        self._faults: deque[Fault] = deque()
        self._requests: list[Json] = []
        self._actions: dict[str, Callable[..., object]] = {
            "delay": self._set_delay,
            "add_faults": self._add_faults,
            "requests": lambda: list(self._requests),
            "clear_requests": lambda: self._requests.clear(),
        }

    def run_action(self, name: str, arguments: Json) -> object:
        """Run an action that the test suite requested, and return its result."""
        return self._actions[name](**arguments)

    def _set_delay(self, seconds: float) -> None:
        self._delay = seconds

    def _add_faults(self, count: int, status: int | None, retry_after: str | None) -> None:
        self._faults.extend([Fault(status, retry_after)] * count)

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        self._wait()
        try:
            fault = self._faults.popleft()
        except IndexError:
            return self._respond(environ, start_response)
        self._record(environ, fault.status)
        if fault.status is None:
            # The server closes the connection.
            raise ClientDisconnected
        start_response(status_line(fault.status), failure_headers(environ["PATH_INFO"], fault))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [FAILURE_BODY]

    def _wait(self) -> None:
        """Wait for the delay, in a thread that does not serve other connections."""
        delay = self._delay
        if not delay:
            return
        if self._database.deadline.on_io_thread:
            # The dispatcher runs the request again in its pool.
            raise WouldBlock
        time.sleep(delay)
        # The delay counted against the deadline of the request.
        self._database.set_deadline(math.inf)

    def _respond(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        lines = []

        def start(status: str, *arguments: object) -> Callable[[bytes], object]:
            lines.append(status)
            return start_response(status, *arguments)  # type: ignore[arg-type]

        body = self._application(environ, start)
        # A read that exceeds its deadline raises, and runs again: it is recorded once. The client
        # has no response yet, so it never sees a list without its own request.
        self._record(environ, int(lines[-1][:3]))
        return body

    def _record(self, environ: "WSGIEnvironment", status: int | None) -> None:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        }
        self._requests.append(
            {
                "method": environ["REQUEST_METHOD"],
                "path": environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace"),
                "query": environ["QUERY_STRING"],
                "headers": headers,
                "status": status,
            }
        )


def status_line(status: int) -> str:
    """Return the status with its reason phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def failure_headers(path: str, fault: Fault) -> list[tuple[str, str]]:
    """Return the headers of an injected failure, as a failure of the service has them."""
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(FAILURE_BODY))),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if path.startswith(V1_PREFIX):
        headers += [("Access-Control-Allow-Origin", "*"), ("Cache-Control", "no-cache")]
    if fault.retry_after is not None:
        headers.append(("Retry-After", fault.retry_after))
    return headers
