"""The requests of a test: WSGI middleware that records them, and delays, fails or drops them."""

import json
import math
import sqlite3
from collections.abc import Callable, Iterable
from threading import Event, Lock
from typing import TYPE_CHECKING, NamedTuple

from flask import Flask, Response
from waitress.channel import ClientDisconnected

from .. import V1_PREFIX
from ..changes import ChangeError
from ..documents import Json
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, WouldBlock
from ..text import quoted
from .control import Control

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

CONTROL_PREFIX = "/_testing/"
# What is wrong with a control request; the last three if an argument is missing, unknown or wrong.
CATALOG_ERRORS = (ChangeError, DatabaseError, OSError, sqlite3.Error)
EXPECTED_ERRORS = (*CATALOG_ERRORS, AttributeError, TypeError, ValueError)


class Fault(NamedTuple):
    """What the next request for a path, or for any path, gets in place of its response."""

    path: str | None
    # None if the connection is closed without a response.
    status: int | None
    retry_after: int | str | None = None


class TestRequests:
    """Handles control requests; all others are those of the test that began with a reset.

    Each public method is an action; its arguments are those in JSON.
    """

    def __init__(self, app: Flask, start: str) -> None:
        """Take the application, and the name of the start state of its catalog."""
        self._application, self._control = app.wsgi_app, Control(app, start)
        self._database: Database = app.extensions["database"]
        self._lock = Lock()
        self._test_ended = Event()
        self._begin_test()

    def _begin_test(self) -> None:
        # Requests that wait belong to the test that has ended.
        self._test_ended.set()
        self._test_ended = Event()
        self._received: list[Json] = []
        self._waiting: list[str] = []
        self._faults: list[Fault] = []
        # By path; None is any other path.
        self._delays: dict[str | None, float] = {}

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        if path.startswith(CONTROL_PREFIX):
            status, result = self._run(environ, path.removeprefix(CONTROL_PREFIX))
            return json_response(status, result)(environ, start_response)
        self._wait(path)
        fault = self._next_fault(path)
        if fault is None:
            return self._respond(environ, start_response, path)
        self._record(environ, path, fault.status)
        if fault.status is None:
            # The server closes the connection.
            raise ClientDisconnected
        return failure(fault.status, fault.retry_after, path)(environ, start_response)

    def _run(self, environ: "WSGIEnvironment", name: str) -> tuple[int, Json]:
        """Run an action; return the status and the JSON object of its response."""
        owners = [each for each in (self, self._control) if hasattr(each, name)]
        if name.startswith("_") or not owners:
            return 404, {"error": f"There is no action {quoted(name)}; see docs/testing.md."}
        # It is finished on this thread.
        self._database.set_deadline(math.inf)
        try:
            arguments = json.loads(environ["wsgi.input"].read() or b"{}")
            result = getattr(owners[0], name)(**arguments) or {}
        except EXPECTED_ERRORS as error:
            return 400, {"error": str(error)}
        if name == "reset":
            self._begin_test()
        return 200, result

    def fail(
        self,
        count: int = 1,
        status: int = 503,
        retryAfter: int | str | None = None,  # noqa: N803
        path: str | None = None,
    ) -> None:
        """Let the next requests fail with a status; raise ValueError if it cannot be sent."""
        if status not in range(400, 600):
            raise ValueError(f"status must be from 400 to 599, not {status}.")
        failure(status, retryAfter, path or "/")
        self._faults += [Fault(check_path(path), status, retryAfter)] * count

    def drop(self, count: int = 1, path: str | None = None) -> None:
        """Close the connections of the next requests without a response."""
        self._faults += [Fault(check_path(path), status=None)] * count

    def delay(self, seconds: float, path: str | None = None) -> None:
        """Delay each response from now on; 0 ends it, without a path for every path."""
        if not (seconds or path):
            self._delays = {}
        self._delays[check_path(path)] = float(seconds)

    def requests(self) -> Json:
        """Return the requests in the order of their responses, and the paths of delayed ones."""
        return {"requests": self._received, "waiting": self._waiting}

    def clear(self) -> None:
        """Forget the requests that were received."""
        self._received = []

    def _wait(self, path: str) -> None:
        """Wait for the delay, on a thread that does not serve other connections."""
        seconds = self._delays.get(path, self._delays.get(None, 0))
        if not seconds:
            return
        if self._database.deadline.on_io_thread:
            # The dispatcher runs the request again on another thread.
            raise WouldBlock
        waiting = self._waiting
        waiting.append(path)
        if self._test_ended.wait(seconds):
            # It must not change the catalog of the next test.
            raise ClientDisconnected
        waiting.remove(path)
        # The delay counted against the deadline of the request.
        self._database.set_deadline(math.inf)

    def _next_fault(self, path: str) -> Fault | None:
        """Use up and return the first fault for this path, if there is one."""
        with self._lock:
            fault = next((each for each in self._faults if each.path in (None, path)), None)
            if fault:
                self._faults.remove(fault)
        return fault

    def _respond(
        self, environ: "WSGIEnvironment", start_response: "StartResponse", path: str
    ) -> Iterable[bytes]:
        lines = []

        def start(status: str, *arguments: object) -> Callable[[bytes], object]:
            lines.append(status)
            return start_response(status, *arguments)  # type: ignore[arg-type]

        body = self._application(environ, start)
        # A read that exceeds its deadline raises, and runs again: it is recorded once. The client
        # has no response yet, so it never sees a list without its own request.
        self._record(environ, path, int(lines[-1][:3]))
        return body

    def _record(self, environ: "WSGIEnvironment", path: str, status: int | None) -> None:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        }
        request = {"method": environ["REQUEST_METHOD"], "path": path, "headers": headers}
        self._received.append({**request, "query": environ["QUERY_STRING"], "status": status})


def check_path(path: str | None) -> str | None:
    """Return the path; raise ValueError if it cannot be that of a request."""
    if path is not None and not path.startswith("/"):
        raise ValueError(f"path must begin with /, not be {path}.")
    return path


def json_response(status: int, result: Json) -> Response:
    """Return a response with a JSON object."""
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(f"{json.dumps(result)}\n", status, headers, mimetype="application/json")


def failure(status: int, retry_after: int | str | None, path: str) -> Response:
    """Return a failure that a test requested, with the headers of one of the service."""
    response = json_response(status, {"error": "The test suite requested this failure."})
    if path.startswith(V1_PREFIX):
        response.headers.update({"Access-Control-Allow-Origin": "*", "Cache-Control": "no-cache"})
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response
