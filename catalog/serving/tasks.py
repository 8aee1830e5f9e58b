"""A request on its way to a response: the WSGI environment, the call, and the head."""

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

from .. import ENDPOINT, V1_PREFIX
from ..rights import REFUSED_BODY
from .http_parser import Parser, Refusal

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

INTERNAL_ERROR = Refusal("500 Internal Server Error", "Internal server error.")
RETRY_AFTER = ("Retry-After", "5")
NOSNIFF = ("X-Content-Type-Options", "nosniff")

Headers = list[tuple[str, str]]

logger = logging.getLogger(__name__)


@dataclass
class Response:
    """A complete response. Files and bodies in memory are sent as the client reads them."""

    status: str
    headers: Headers
    body: Sequence[bytes] | ReadOnlyFileBasedBuffer
    # The client in the access log: the one that a trusted proxy names.
    client: str = ""
    endpoint: str | None = None
    # Whether the client may still be sending its request, of which the rest is discarded.
    is_refusal: bool = False

    @property
    def length(self) -> int:
        """The number of bytes of the body."""
        if isinstance(self.body, ReadOnlyFileBasedBuffer):
            return len(self.body)
        return sum(map(len, self.body))

    def close(self) -> None:
        """Close the file, if it has one."""
        if isinstance(self.body, ReadOnlyFileBasedBuffer):
            self.body.close()


@dataclass(eq=False)
class Task:
    """A request that is complete; one thread after another handles it until one responds."""

    # Sends the response over its connection, on the I/O thread.
    respond: Callable[["Task", Response | None], None]
    # What all requests of the connection share.
    environ: "WSGIEnvironment"
    request: Parser
    # In whose queue it waits.
    client: str
    queued_at: float = 0.0
    # Whether it has a valid token and is to change something.
    has_token: bool = False

    def run(self, application: "WSGIApplication") -> Response | None:
        """Run the application; return None if the connection is to be closed without a response.

        Raise DeadlineExceeded if this thread has no more time for it.
        """
        environ = self._environ()
        try:
            response = call(application, environ)
        except ClientDisconnected:
            return None
        except Exception:
            logger.exception("%s %a failed.", self.request.command, self.request.path)
            return refuse(self.request, INTERNAL_ERROR)
        response.client = environ["REMOTE_ADDR"]
        response.endpoint = environ.get(ENDPOINT)
        response.is_refusal = bool(self.request.refused_body)
        return response

    def _environ(self) -> "WSGIEnvironment":
        request = self.request
        request.body.seek(0)
        environ = {
            **self.environ,
            "REQUEST_METHOD": request.command,
            "SERVER_PROTOCOL": f"HTTP/{request.version}",
            "PATH_INFO": request.path,
            "REQUEST_URI": request.request_uri,
            "QUERY_STRING": request.query,
            "wsgi.input": request.body,
            "wsgi.errors": sys.stderr,
            **request.headers,
        }
        if request.refused_body:
            environ[REFUSED_BODY] = request.refused_body
        return environ


def listener_environ(name: str, port: str) -> "WSGIEnvironment":
    """Return the part of the environment that all requests of a listener share."""
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
        # The end of the input is the end of the body.
        "wsgi.input_terminated": True,
    }


def call(application: "WSGIApplication", environ: "WSGIEnvironment") -> Response:
    """Return the whole response of the application."""
    started: list[tuple[str, Headers]] = []

    def start_response(status: str, headers: Headers, error: object = None) -> Callable[..., None]:
        started.append((status, headers))
        return written.append

    written: list[bytes] = []
    body = application(environ, start_response)
    if isinstance(body, ReadOnlyFileBasedBuffer):
        body.prepare()
        return Response(*started[-1], body)
    try:
        pieces = [*written, *body]
    finally:
        if close := getattr(body, "close", None):
            close()
    return Response(*started[-1], pieces)


def refuse(request: Parser, error: Refusal) -> Response:
    """Return the response to a request that the server refuses, as the API's errors are."""
    headers = [("Content-Type", "application/json"), NOSNIFF]
    if is_for_v1(request.first_line.decode("latin-1")):
        headers += [("Access-Control-Allow-Origin", "*"), ("Cache-Control", "no-cache")]
    if error.status.startswith("503"):
        headers.append(RETRY_AFTER)
    body = json.dumps({"error": error.message}).encode() + b"\n"
    headers.append(("Content-Length", str(len(body))))
    return Response(error.status, headers, [body], is_refusal=True)


def describe_server() -> Response:
    """Return the response to OPTIONS *, which asks what the server as a whole can do."""
    headers = [("Allow", "GET, HEAD, PATCH, POST, PUT, OPTIONS"), NOSNIFF, ("Content-Length", "0")]
    return Response("200 OK", headers, [])


def is_for_v1(line: str) -> bool:
    """Return whether the target of a request line is below the path of the public API."""
    target = line.partition(" ")[2]
    if not target.startswith("/"):
        # The path of an absolute URL.
        target = "/" + target.partition("://")[2].partition("/")[2]
    return f"/{unquote(target).lstrip('/')}".startswith(V1_PREFIX)


# The text of the current second.
http_date = lru_cache(1)(build_http_date)


def build_head(request: Parser, response: Response, *, is_last: bool) -> tuple[bytes, bool]:
    """Return the head of the response, and whether the connection is closed after it."""
    names = {name.lower() for name, _ in response.headers}
    lines = [f"HTTP/{request.version} {response.status}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    has_body = response.status[:3] not in ("204", "304")
    if has_body and request.command != "HEAD" and "content-length" not in names:
        lines.append(f"Content-Length: {response.length}")
    if "date" not in names:
        lines.append(f"Date: {http_date(int(time.time()))}")
    options = request.headers.get("HTTP_CONNECTION", "").lower().replace(" ", "").split(",")
    closes = is_last or response.is_refusal or "close" in options
    if request.version == "1.0" and not closes:
        closes = "keep-alive" not in options
        if not closes:
            lines.append("Connection: Keep-Alive")
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1"), closes
