"""WSGI: builds the environment, calls the application, and builds the response head."""

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

from waitress.buffers import ReadOnlyFileBasedBuffer
from waitress.channel import ClientDisconnected
from waitress.utilities import build_http_date

from .. import CORS_HEADERS, ENDPOINT, V1_PREFIX
from ..domain.permissions import REJECTED_BODY
from ..domain.request_kinds import KIND
from .http_parser import HttpError, HttpRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

INTERNAL_ERROR = HttpError("500 Internal Server Error", "Internal server error.")
RETRY_AFTER = ("Retry-After", "5")
NOSNIFF = ("X-Content-Type-Options", "nosniff")

Headers = list[tuple[str, str]]
# Python evaluates the annotations of a nested function at every call, so this type has a name.
Write = Callable[[bytes], object]

logger = logging.getLogger(__name__)


@dataclass
class HttpResponse:
    """A complete response. Its file or body is sent as fast as the client reads."""

    status: str
    headers: Headers
    body: Sequence[bytes] | ReadOnlyFileBasedBuffer
    # The client address for the access log, as forwarded by a trusted proxy if there is one.
    client: str = ""
    endpoint: str | None = None

    @property
    def length(self) -> int:
        """The number of bytes in the body."""
        if isinstance(self.body, ReadOnlyFileBasedBuffer):
            return len(self.body)
        return sum(map(len, self.body))

    def close(self) -> None:
        """Close the response's file, if there is one."""
        if isinstance(self.body, ReadOnlyFileBasedBuffer):
            self.body.close()


@dataclass(eq=False)
class Task:
    """A complete request. Threads try to handle it in turn, until one of them responds."""

    # Sends the response over the connection; only the I/O thread may call it. None closes the
    # connection without a response.
    respond: Callable[["Task", HttpResponse | None], None]
    # Returns whether the client can no longer receive a response.
    is_abandoned: Callable[[], bool]
    # The part of the WSGI environment that all requests on the connection share.
    environ: "WSGIEnvironment"
    request: HttpRequest
    # The client address, for fair queueing.
    client: str
    queued_at: float = 0.0

    def run(self, application: "WSGIApplication") -> HttpResponse | None:
        """Run the application; return None to close the connection without a response.

        Raise DeadlineExceeded if the request has used up its time on this thread.
        """
        environ = self._environ()
        try:
            response = call(application, environ)
        except ClientDisconnected:
            return None
        except Exception:
            logger.exception("%s %a failed.", self.request.method, self.request.path)
            return error_response(self.request, INTERNAL_ERROR)
        response.client = environ["REMOTE_ADDR"]
        response.endpoint = environ.get(ENDPOINT)
        return response

    def _environ(self) -> "WSGIEnvironment":
        request = self.request
        request.body.seek(0)
        environ = {
            **self.environ,
            "REQUEST_METHOD": request.method,
            "SERVER_PROTOCOL": f"HTTP/{request.version}",
            "PATH_INFO": request.path,
            "REQUEST_URI": request.request_uri,
            "QUERY_STRING": request.query,
            "wsgi.input": request.body,
            "wsgi.errors": sys.stderr,
            KIND: request.kind,
            **request.headers,
        }
        if request.rejected_body:
            environ[REJECTED_BODY] = request.rejected_body
        return environ


def listener_environ(name: str, port: str) -> "WSGIEnvironment":
    """Return the part of the environment that all requests on a listener share."""
    return {
        "SCRIPT_NAME": "",
        "SERVER_NAME": name,
        "SERVER_PORT": port,
        "SERVER_SOFTWARE": "waitress",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": ReadOnlyFileBasedBuffer,
        # The input ends where the body ends.
        "wsgi.input_terminated": True,
    }


def call(application: "WSGIApplication", environ: "WSGIEnvironment") -> HttpResponse:
    """Return the application's whole response."""
    started: list[tuple[str, Headers]] = []

    def start_response(status: str, headers: Headers, error: object = None) -> Write:
        started.append((status, headers))
        return written.append

    written: list[bytes] = []
    body = application(environ, start_response)
    if isinstance(body, ReadOnlyFileBasedBuffer):
        body.prepare()
        return HttpResponse(*started[-1], body)
    try:
        pieces = [*written, *body]
    finally:
        if close := getattr(body, "close", None):
            close()
    return HttpResponse(*started[-1], pieces)


def error_response(request: HttpRequest, error: HttpError) -> HttpResponse:
    """Return the response for a server error, in the API's error format."""
    headers = [("Content-Type", "application/json"), NOSNIFF]
    if is_for_v1(request.first_line.decode("latin-1")):
        headers += [*CORS_HEADERS.items(), ("Cache-Control", "no-cache")]
    if error.status.startswith("503"):
        headers.append(RETRY_AFTER)
    body = json.dumps({"error": error.message}).encode() + b"\n"
    headers.append(("Content-Length", str(len(body))))
    return HttpResponse(error.status, headers, [body])


def is_for_v1(line: str) -> bool:
    """Return whether the target of a request line is a path in the public API."""
    target = line.partition(" ")[2]
    if not target.startswith("/"):
        # If the target is an absolute URL, only its path matters.
        target = "/" + target.partition("://")[2].partition("/")[2]
    return f"/{unquote(target).lstrip('/')}".startswith(V1_PREFIX)


# The date changes once per second, so caching one value is enough.
http_date = lru_cache(1)(build_http_date)


def build_head(
    request: HttpRequest, response: HttpResponse, *, is_last: bool
) -> tuple[bytes, bool]:
    """Return the head of the response, and whether the connection is closed after it."""
    # The application spells header names in the same case as this function.
    names = dict(response.headers)
    lines = [f"HTTP/{request.version} {response.status}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    has_body = response.status[:3] not in ("204", "304")
    if has_body and request.method != "HEAD" and "Content-Length" not in names:
        lines.append(f"Content-Length: {response.length}")
    if "Date" not in names:
        lines.append(f"Date: {http_date(int(time.time()))}")
    options = request.headers.get("HTTP_CONNECTION", "").lower().replace(" ", "").split(",")
    closes = is_last or request.is_cut_off or "close" in options
    if request.version == "1.0" and not closes:
        closes = "keep-alive" not in options
        if not closes:
            lines.append("Connection: Keep-Alive")
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1"), closes
