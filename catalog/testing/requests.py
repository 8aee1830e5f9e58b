"""WSGI middleware for tests, which records requests, delays them and makes them fail."""

import io
import json
import math
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING

from flask import Flask, Response
from waitress.buffers import ReadOnlyFileBasedBuffer
from waitress.channel import ClientDisconnected

from .. import CORS_HEADERS, V1_PREFIX
from ..domain.changes import ChangeError
from ..domain.documents import Json
from ..domain.messages import quoted
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, WouldBlock
from ..system.paths import error_reason
from .arguments import find_rejection, parse_arguments
from .control import Control

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

CONTROL_PREFIX = "/_testing/"
MAX_COUNT = 1_000_000
MAX_DELAY = 86_400  # seconds
# Errors that the arguments of a control request can cause; the response contains their message.
ACTION_ERRORS = (ChangeError, DatabaseError, sqlite3.Error, ValueError)


@dataclass(eq=False)
class Fault:
    """A fault to inject into the next requests, optionally only for one method or path."""

    method: str | None
    path: str | None
    # How many more requests are affected; infinite if the fault lasts until the next reset.
    left: float
    # The status of an error response, or the effect on the response: drop, cut or damage.
    effect: int | str
    retry_after: int | str | None = None


class CutBody(ReadOnlyFileBasedBuffer):  # type: ignore[misc]
    """A body that ends after half of its declared length, so that the server disconnects."""

    def __init__(self, body: bytes) -> None:
        super().__init__(io.BytesIO(body[: len(body) // 2]))
        self._length = len(body)

    def prepare(self, size: int | None = None) -> int:
        """Return the length of the whole body, even though the file contains only half of it."""
        self.remain = self._length
        return self._length


def fault_action(effect: str) -> Callable[..., None]:
    """Return the action that has this effect on the next requests."""

    def add(
        requests: "ControlRequests",
        count: int | None = None,
        path: str | None = None,
        method: str | None = None,
        until: str | None = None,
    ) -> None:
        requests._add_fault(effect, count, path, method, until)

    add.__name__ = effect
    return add


class ControlRequests:
    """Handles control requests; records and delays a test's requests, and makes them fail.

    Each public method is an action; its arguments come from the JSON body.
    """

    def __init__(self, app: Flask, start: str) -> None:
        """Wrap the application; start is the name of its catalog's start state."""
        self._application, self._control = app.wsgi_app, Control(app, start)
        self._database: Database = app.extensions["database"]
        self._lock = Lock()
        self._test_ended = Event()
        self._begin_test()

    def _begin_test(self) -> None:
        # Disconnect the previous test's delayed requests.
        self._test_ended.set()
        self._test_ended = Event()
        self._received: list[Json] = []
        self._waiting: list[str] = []
        self._faults: list[Fault] = []
        # The delay in seconds by path; None stands for all other paths.
        self._delays: dict[str | None, float] = {}

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        if path.startswith(CONTROL_PREFIX):
            return self._control_response(environ, path)(environ, start_response)
        self._wait(path)
        fault = self._next_fault(environ["REQUEST_METHOD"], path)
        if fault is None:
            return self._respond(environ, start_response, path)
        if isinstance(fault.effect, int):
            self._record(environ, path, fault.effect)
            return failure(fault.effect, fault.retry_after, path)(environ, start_response)
        if fault.effect == "drop":
            self._record(environ, path, None)
            # This error makes the server close the connection.
            raise ClientDisconnected
        # The fault needs the complete, uncompressed body, so the response must not be a 304.
        complete = {"HTTP_ACCEPT_ENCODING": "", "HTTP_IF_NONE_MATCH": ""}
        body = b"".join(self._respond({**environ, **complete}, start_response, path))
        if fault.effect == "cut":
            return CutBody(body)
        # Flip the last bit of the body.
        return [body[:-1], bytes(byte ^ 1 for byte in body[-1:])]

    def _control_response(self, environ: "WSGIEnvironment", path: str) -> Response:
        """Run an action and return its response."""
        if rejection := find_rejection(environ):
            response = json_response(rejection[0], {"error": rejection[1]})
            response.headers["Allow"] = "POST"
            return response
        name = path.removeprefix(CONTROL_PREFIX)
        owners = [each for each in (self, self._control) if hasattr(each, name)]
        if name.startswith("_") or not owners:
            return json_response(404, {"error": f"There is no action {quoted(name)}."})
        # Without a deadline, the action runs to its end on this thread.
        self._database.deadline.set(math.inf)
        action = getattr(owners[0], name)
        try:
            result = action(**parse_arguments(action, environ["wsgi.input"].read())) or {}
        except OSError as error:
            return json_response(400, {"error": f"{error.filename}: {error_reason(error)}."})
        except ACTION_ERRORS as error:
            return json_response(400, {"error": str(error)})
        if name == "reset":
            self._begin_test()
        return json_response(200, result)

    def fail(
        self,
        count: int | None = None,
        status: int = 503,
        retryAfter: int | str | None = None,  # noqa: N803
        path: str | None = None,
        method: str | None = None,
        until: str | None = None,
    ) -> None:
        """Make the next requests fail with this status."""
        if status not in range(400, 600):
            raise ValueError(f"status must be from 400 to 599, not {status}.")
        if not (str(retryAfter).isascii() and str(retryAfter).isprintable()):
            raise ValueError("retryAfter must be a number of seconds or an HTTP date.")
        self._add_fault(status, count, path, method, until, retryAfter)

    # drop closes the connection without a response, and cut closes it after half of the body.
    # damage changes the last byte of the body, so that a bundle's hash no longer matches.
    drop, cut, damage = fault_action("drop"), fault_action("cut"), fault_action("damage")

    def _add_fault(
        self,
        effect: int | str,
        count: int | None,
        path: str | None,
        method: str | None,
        until: str | None,
        retry_after: int | str | None = None,
    ) -> None:
        if until and count is not None:
            raise ValueError("Specify either a number of requests or until, not both.")
        count = 1 if count is None else count
        if not 1 <= count <= MAX_COUNT:
            raise ValueError(f"count must be from 1 to {MAX_COUNT}, not {count}.")
        if until not in (None, "reset"):
            raise ValueError(f"until must be 'reset', not {quoted(until)}.")
        left = math.inf if until else count
        method = method.upper() if method else None
        self._faults.append(Fault(method, check_path(path), left, effect, retry_after))

    def delay(self, seconds: float, path: str | None = None) -> None:
        """Delay responses from now on, optionally only for one path.

        0 ends the delay for the path; without a path, it ends all delays.
        """
        if not 0 <= seconds <= MAX_DELAY:
            raise ValueError(f"seconds must be from 0 to {MAX_DELAY}, not {seconds}.")
        if not (seconds or path):
            self._delays = {}
        self._delays[check_path(path)] = seconds

    def requests(self) -> Json:
        """Return the requests in the order of their responses, and the paths still waiting."""
        return {"requests": self._received, "waiting": self._waiting}

    def clear(self) -> None:
        """Delete the recorded requests."""
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
            # The request must not change the next test's catalog.
            raise ClientDisconnected
        waiting.remove(path)
        # The delay has used up the request's time, so the deadline is lifted.
        self._database.deadline.set(math.inf)

    def _next_fault(self, method: str, path: str) -> Fault | None:
        """Return the first fault that matches this request and count it down; None if none does."""
        if self._faults and self._database.deadline.on_io_thread:
            # A request that takes too long on the I/O thread runs again, and would be counted
            # twice.
            raise WouldBlock
        with self._lock:
            for fault in self._faults:
                if fault.method in (None, method) and fault.path in (None, path):
                    fault.left -= 1
                    if not fault.left:
                        self._faults.remove(fault)
                    return fault
        return None

    def _respond(
        self, environ: "WSGIEnvironment", start_response: "StartResponse", path: str
    ) -> Iterable[bytes]:
        lines = []

        def start(status: str, *arguments: object) -> Callable[[bytes], object]:
            lines.append(status)
            return start_response(status, *arguments)  # type: ignore[arg-type]

        body = self._application(environ, start)
        # Record the request before the client can receive the response and ask for the records. A
        # read that exceeds its deadline raises an error above and runs again, so it is recorded
        # only once.
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
    """Return the path; raise ValueError if no request can have this path."""
    if path is not None and not path.startswith("/"):
        raise ValueError(f"path must begin with /, unlike {quoted(path)}.")
    if path and "?" in path:
        raise ValueError(f"path must not contain a query: use {quoted(path.partition('?')[0])}.")
    return path


def json_response(status: int, result: Json) -> Response:
    """Return a response whose body is a JSON object."""
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(f"{json.dumps(result)}\n", status, headers, mimetype="application/json")


def failure(status: int, retry_after: int | str | None, path: str) -> Response:
    """Return a failure that a test requested, with the headers of a real failure."""
    response = json_response(status, {"error": "The test suite requested this failure."})
    if path.startswith(V1_PREFIX):
        response.headers.update({**CORS_HEADERS, "Cache-Control": "no-cache"})
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response
