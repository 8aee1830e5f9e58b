"""One response: its head, its body handed to the connection, its line in the log."""

import json
import time

from waitress import task
from waitress.channel import ClientDisconnected
from waitress.parser import HTTPRequestParser
from waitress.utilities import build_http_date

from catalog import V1_PREFIX

ONE_PIECE = 48 * 1024  # bytes up to which head and body are put together: that is a copy too


class LoggedTask(task.Task):
    """A request answered, then logged, in whichever way it was answered."""

    def service(self) -> None:
        try:
            super().service()
        except ClientDisconnected:
            self._log()
            raise
        self._log()

    def set_close_on_finish(self) -> None:
        # Waitress would close after every answer without a body, for want of a length.
        asked = self.request.headers.get("CONNECTION", "").lower() == "close"
        if self.has_body or asked or self.version == "1.0" or self.channel.server.stopping:
            super().set_close_on_finish()

    def build_response_header(self) -> bytes:
        # Once told to stop, an answer after which nothing was asked is the last of its connection.
        stopping = self.channel.server.stopping
        if stopping and not self.channel.ahead:
            self.set_close_on_finish()
        goes_on = self.version == "1.1" and "CONNECTION" not in self.request.headers
        has_length = self.content_length is not None and self.has_body
        if goes_on and has_length and not (stopping or self.close_on_finish):
            return self._usual_head()
        return super().build_response_header()

    def _usual_head(self) -> bytes:
        """The head of an answer of known length, after which the connection goes on.

        Waitress would come to the same, by way of all the cases in which it would not.
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
            size = self.content_length or 0  # a file, which waitress does not count
        self.channel.server.access_log.add(
            environ.get("REMOTE_ADDR") or self.channel.addr[0],
            getattr(request, "command", ""),
            getattr(request, "request_uri", "") or request_line(request),
            status,
            size,
            time.perf_counter() - request.begun if request.begun else 0,
            dict(self.response_headers).get("X-Request-Id", "") if status >= 500 else "",
        )


def request_line(request: HTTPRequestParser) -> str:
    """The first line of a request that was refused, as far as it came."""
    line = getattr(request, "first_line", b"") or request.header_plus
    return line.decode("latin-1").partition("\r\n")[0]


def is_for_v1(line: str) -> bool:
    """Whether the target of a request line is in the family of the public API."""
    target = line.partition(" ")[2]
    if not target.startswith("/"):
        # The path of an absolute URL.
        target = "/" + target.partition("://")[2].partition("/")[2]
    return target.startswith(V1_PREFIX)


class Task(LoggedTask, task.WSGITask):
    """A request that the app answers."""

    wrote_header: bool

    def write(self, data: bytes) -> None:
        """Send an answer in one piece where it is there in one: each is a call of the system."""
        in_one = self.content_length == len(data) < ONE_PIECE and not self.wrote_header
        if not (in_one and data and self.has_body):
            super().write(data)
            return
        head = self.build_response_header()
        self.wrote_header = True
        self.content_bytes_written = len(data)
        self.channel.write_soon(head + data)


class Refusal(LoggedTask, task.ErrorTask):
    """The answer to what cannot be handed to the app, in the shape of the app's own errors."""

    def execute(self) -> None:
        error = self.request.error
        body = json.dumps({"error": self._sentence()}).encode() + b"\n"
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        self.response_headers.append(("X-Content-Type-Options", "nosniff"))
        if is_for_v1(request_line(self.request)):
            self.response_headers.append(("Access-Control-Allow-Origin", "*"))
            self.response_headers.append(("Cache-Control", "no-cache"))
        self.set_close_on_finish()
        self.channel.linger = True
        self.content_length = len(body)
        self.write(body if getattr(self.request, "command", "") != "HEAD" else b"")

    def _sentence(self) -> str:
        error, head = self.request.error, self.channel.adj.max_request_header_size
        reason = error.body.partition('"')[0].rstrip(" .")  # without what it quotes of the request
        return {
            400: f"Malformed HTTP request: {reason}.",
            408: "The request did not come whole in time.",
            413: "The body of the request is too large: no request here needs one.",
            414: f"The address is too long: with the headers it may have {head} bytes.",
            431: f"The headers are too large: with the address they may have {head} bytes.",
        }.get(error.code, "Something went wrong here; the request is not to blame.")
