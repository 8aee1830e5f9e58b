"""The logs: one line for each request on standard output, and errors on standard error.

Lines are written once per turn of the event loop, and only if that does not block: no request waits
for the reader of the log. A line fits into PIPE_BUF, so a pipe accepts it completely or not at all.
Lines that cannot be written are dropped and counted. Every field is escaped, so a client cannot
forge a line.
"""

import contextlib
import json
import logging
import re
import select
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TextIO

from ..domain.messages import escape_unprintable
from ..system.log_writer import LogWriter
from .http_parser import HttpRequest
from .wsgi import HttpResponse

# Load balancers request this path every second.
HEALTH_PATH = "/api/health"
# With these limits a line fits into PIPE_BUF, even as JSON, where an escaped character takes twice
# as much space.
MAX_FIELD = 1_900  # characters
MAX_MESSAGE = 1_000  # characters
# Matches a field that needs no escape: no space, no backslash, no control character.
is_plain = re.compile(r"[!-\[\]-~]+").fullmatch


class AccessLog:
    """Writes a line for each request in the configured format, if the log level includes it."""

    def __init__(self, level: str, log_format: str, writer: LogWriter) -> None:
        self._min_status = {"debug": 0, "info": 0, "warning": 500, "error": 1000}[level]
        self._with_query = level in ("debug", "info")
        self._with_health = level == "debug"
        self._is_json = log_format == "json"
        self._write, self.flush = writer.write, writer.flush
        # All log writers in the process, including the one for errors.
        self.writers = [writer]

    def add(
        self, request: HttpRequest, response: HttpResponse, client: str, size: int, seconds: float
    ) -> None:
        """Log one request, with its path and query as sent by the client.

        Successful health checks are logged only at the debug level.
        """
        status, target = int(response.status[:3]), request.request_uri
        if status < self._min_status:
            return
        if target == HEALTH_PATH and status < 500 and not self._with_health:
            return
        target = target or request.first_line.decode("latin-1")
        if not self._with_query:
            target = target.partition("?")[0]
        when, milliseconds = utc_time(time.time()), f"{seconds * 1000:.1f}"
        client, method = escape_field(client), escape_field(request.method)
        target = escape_field(target)
        request_id = dict(response.headers).get("X-Request-Id") if status >= 500 else None
        if self._is_json:
            fields = {"time": when, "client": client, "method": method, "path": target}
            numbers = {"status": status, "bytes": size, "milliseconds": float(milliseconds)}
            end = {"requestId": request_id} if request_id else {}
            self._write(json.dumps(fields | numbers | end, separators=(",", ":")) + "\n")
        else:
            rest = f" {request_id}" if request_id else ""
            self._write(f"{when} {client} {method} {target} {status} {size} {milliseconds}{rest}\n")


# The result changes once per second, so caching one value is enough.
@lru_cache(1)
def date_and_time(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def utc_time(now: float) -> str:
    """Return the time in the API's format."""
    return f"{date_and_time(int(now))}.{int(now % 1 * 1000):03}Z"


def escape_field(text: str) -> str:
    """Return the value as one word of printable ASCII, truncated to MAX_FIELD; "-" if empty."""
    if len(text) <= MAX_FIELD and is_plain(text):
        return text
    escaped = text[:MAX_FIELD].encode("unicode_escape").decode("ascii").replace(" ", r"\x20") or "-"
    return escaped if max(len(text), len(escaped)) <= MAX_FIELD else f"{escaped[:MAX_FIELD]}..."


class ErrorFormatter(logging.Formatter):
    """Formats an error as one JSON line, or as text with an indented traceback."""

    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        when, message = utc_time(record.created), escape_unprintable(record.getMessage())
        trace = self.formatException(record.exc_info).splitlines() if record.exc_info else []
        if not self._is_json:
            first = f"{when} {record.levelname} {message}"
            return "\n ".join([first, *map(escape_unprintable, trace)])
        fields = {"time": when, "level": record.levelname.lower(), "message": message[:MAX_MESSAGE]}
        line = json.dumps(fields | ({"traceback": "\n".join(trace)} if trace else {}))
        while len(line) >= select.PIPE_BUF and len(trace) > 1:
            # Shorten a long traceback: keep its first line, and remove the outermost calls, which
            # are the least useful ones.
            del trace[1]
            line = json.dumps(fields | {"traceback": "\n".join(trace)})
        return line


@contextlib.contextmanager
def logging_to_standard_streams(
    level: str, log_format: str, requests_stream: TextIO
) -> Iterator[AccessLog]:
    """Log requests to the stream, and the messages from all modules to standard error."""
    requests, errors = LogWriter(requests_stream.fileno()), LogWriter(sys.stderr.fileno())
    min_level = logging.ERROR if level == "error" else logging.WARNING
    handler = logging.StreamHandler(errors)
    handler.setFormatter(ErrorFormatter(log_format))
    logging.basicConfig(handlers=[handler], level=min_level, force=True)
    log = AccessLog(level, log_format, requests)
    log.writers.append(errors)
    try:
        yield log
    finally:
        requests.flush()
        errors.flush()
