"""One response: its head, its body, its line in the access log."""

import json
import time

from waitress import task
from waitress.channel import ClientDisconnected
from waitress.parser import HTTPRequestParser
from waitress.utilities import build_http_date

from catalog import V1_PREFIX
from catalog.routing import ENDPOINT

# Up to this size, head and body are joined and sent with one system call. Joining copies the body.
MAX_JOINED = 48 * 1024  # bytes


class LoggedTask(task.Task):
    """A task that writes a line to the access log when it ends, also if the client disconnects."""

    def service(self) -> None:
        try:
            super().service()
        except ClientDisconnected:
            self._log()
            raise
        self._log()

    def set_close_on_finish(self) -> None:
        # Waitress would close after every response without a body, since it has no length.
        close_requested = self.request.headers.get("CONNECTION", "").lower() == "close"
        is_stopping = self.channel.server.stopping
        if self.has_body or close_requested or self.version == "1.0" or is_stopping:
            super().set_close_on_finish()

    def build_response_header(self) -> bytes:
        stopping = self.channel.server.stopping
        if stopping and not self.channel.unparsed:
            # No pipelined request follows: this is the last response of the connection.
            self.set_close_on_finish()
        stays_open = self.version == "1.1" and "CONNECTION" not in self.request.headers
        has_length = self.content_length is not None and self.has_body
        if stays_open and has_length and not (stopping or self.close_on_finish):
            return self._usual_head()
        return super().build_response_header()

    def _usual_head(self) -> bytes:
        """Return the head of a response of known length on a connection that stays open.

        Same headers as waitress's own method for this case, without its branches and its sorting.
        """
        lines = [f"{name}: {value}" for name, value in self.response_headers]
        names = {name.lower() for name, _ in self.response_headers}
        if "content-length" not in names:
            lines.append(f"Content-Length: {self.content_length}")
        if "date" not in names:
            lines.append(f"Date: {build_http_date(self.start_time)}")
        return "\r\n".join([f"HTTP/1.1 {self.status}", *lines, "", ""]).encode("latin-1")

    def _log(self) -> None:
        request = self.request
        environ = getattr(self, "environ", None) or {}
        status = int(self.status[:3])
        size = self.content_bytes_written
        if not size and self.has_body and getattr(request, "command", "") != "HEAD":
            # Waitress does not count the bytes of a file.
            size = self.content_length or 0
        method = getattr(request, "command", "")
        seconds = time.perf_counter() - request.started_at if request.started_at else 0
        server = self.channel.server
        if server.request_counts:
            server.request_counts.add(environ.get(ENDPOINT), method, status, seconds)
        server.access_log.add(
            environ.get("REMOTE_ADDR") or self.channel.addr[0],
            method,
            getattr(request, "request_uri", "") or request_line(request),
            status,
            size,
            seconds,
            dict(self.response_headers).get("X-Request-Id", "") if status >= 500 else "",
        )


def request_line(request: HTTPRequestParser) -> str:
    """Return the request line of a malformed request, or what was received of it."""
    line = getattr(request, "first_line", b"") or request.header_plus
    return line.decode("latin-1").partition("\r\n")[0]


def is_for_v1(line: str) -> bool:
    """Return whether the target of a request line is below the path of the public API."""
    target = line.partition(" ")[2]
    if not target.startswith("/"):
        # The path of an absolute URL.
        target = "/" + target.partition("://")[2].partition("/")[2]
    return target.startswith(V1_PREFIX)


class ApplicationTask(LoggedTask, task.WSGITask):
    """A request that the application handles."""

    wrote_header: bool

    def write(self, data: bytes) -> None:
        """Send head and body with one system call if the body is complete and small."""
        is_complete = self.content_length == len(data) < MAX_JOINED and not self.wrote_header
        if not (is_complete and data and self.has_body):
            super().write(data)
            return
        head = self.build_response_header()
        self.wrote_header = True
        self.content_bytes_written = len(data)
        self.channel.write_soon(head + data)


class JsonErrorTask(LoggedTask, task.ErrorTask):
    """The response to a request that the server refuses, in the format of the API's errors."""

    def execute(self) -> None:
        error = self.request.error
        body = json.dumps({"error": self._message()}).encode() + b"\n"
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        self.response_headers.append(("X-Content-Type-Options", "nosniff"))
        if is_for_v1(request_line(self.request)):
            self.response_headers.append(("Access-Control-Allow-Origin", "*"))
            self.response_headers.append(("Cache-Control", "no-cache"))
        self.set_close_on_finish()
        self.channel.may_still_send = True
        self.content_length = len(body)
        self.write(body if getattr(self.request, "command", "") != "HEAD" else b"")

    def _body_limit(self) -> str:
        if getattr(self.request, "upload", None) is not None:
            return f"it may have {self.request.adj.max_request_body_size - 1} bytes"
        return "no request needs a body"

    def _message(self) -> str:
        error, limit = self.request.error, self.channel.adj.max_request_header_size
        return {
            400: f"Malformed HTTP request: {error.body}.",
            408: "Request timed out before it was complete.",
            413: f"Request body too large: {self._body_limit()}.",
            414: f"Request line too long: with the headers it may have {limit} bytes.",
            431: f"Request headers too large: with the request line they may have {limit} bytes.",
        }.get(error.code, "Internal server error.")
