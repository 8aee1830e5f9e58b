"""Fault injection and the list of received requests, for services that a test suite starts."""

import json
import math
import time
from collections.abc import Callable, Iterable
from http.client import responses
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from waitress.channel import ClientDisconnected

from .. import V1_PREFIX
from ..documents import Json
from ..store.connection.database import Database
from ..store.connection.sqlite import WouldBlock

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

FAILURE_BODY = json.dumps({"error": "The test suite requested this failure."}).encode() + b"\n"


class RequestControl:
    """WSGI middleware that records requests and delays, fails or drops them.

    The plugin uses three files beside the database: each request is added to requests.jsonl, uses
    up a line of faults.jsonl if there is one, and waits for the seconds in delay.
    """

    def __init__(self, application: "WSGIApplication", database: Database, directory: Path) -> None:
        self._application, self._database = application, database
        self._delay = directory / "delay"
        self._requests = directory / "requests.jsonl"
        self._faults = directory / "faults.jsonl"
        for file in (self._requests, self._faults):
            file.touch()
        self._delay.write_text("0")
        # The bytes of faults.jsonl that were used up.
        self._used = 0
        self._lock = Lock()

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        self._wait()
        fault = self._next_fault()
        if fault is None:
            return self._respond(environ, start_response)
        self._record(environ, fault["status"])
        if fault["status"] is None:
            # The server closes the connection.
            raise ClientDisconnected
        headers = failure_headers(environ["PATH_INFO"], fault["retry_after"])
        status = fault["status"]
        start_response(f"{status} {responses.get(status, 'Unknown')}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [FAILURE_BODY]

    def _wait(self) -> None:
        """Wait for the delay, in a thread that does not serve other connections."""
        delay = float(self._delay.read_text())
        if not delay:
            return
        if self._database.deadline.on_io_thread:
            # The dispatcher runs the request again in its pool.
            raise WouldBlock
        time.sleep(delay)
        # The delay counted against the deadline of the request.
        self._database.set_deadline(math.inf)

    def _next_fault(self) -> Json | None:
        with self._lock, self._faults.open("rb") as file:
            file.seek(self._used)
            line = file.readline()
            self._used = file.tell()
        fault: Json | None = json.loads(line) if line else None
        return fault

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
        request = {
            "method": environ["REQUEST_METHOD"],
            "path": environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace"),
            "query": environ["QUERY_STRING"],
            "headers": headers,
            "status": status,
        }
        # Each line is written at once.
        with self._requests.open("ab", buffering=0) as file:
            file.write(json.dumps(request).encode() + b"\n")


def failure_headers(path: str, retry_after: str | None) -> list[tuple[str, str]]:
    """Return the headers of an injected failure, as a failure of the service has them."""
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(FAILURE_BODY))),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if path.startswith(V1_PREFIX):
        headers += [("Access-Control-Allow-Origin", "*"), ("Cache-Control", "no-cache")]
    if retry_after is not None:
        headers.append(("Retry-After", retry_after))
    return headers
