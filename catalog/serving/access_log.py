"""The log: a line for each request on standard output, errors on standard error.

Lines are written together, once in a turn of the event loop, and only if that does not block: so no
request waits for the reader of the log. Those that cannot be written are dropped and counted. Every
field is escaped, so a client cannot forge a line.
"""

import contextlib
import fcntl
import json
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TextIO

from ..text import escape_unprintable, plural

MAX_TARGET = 2_000  # characters
# About 10,000 lines that a slow reader may fall behind.
PIPE_BYTES = 1024 * 1024  # bytes

# Fields that need no escape: no space, no backslash, no control character.
is_plain = re.compile(r"[!-\[\]-~]+").fullmatch


class LogWriter:
    """Writes lines to a descriptor without waiting for its reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Only a pipe has a size.
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lines: list[bytes] = []
        # The end of a line of which the first part was written.
        self._rest = b""
        # Of these the log does not tell yet.
        self._dropped = 0
        # Since the start of the process.
        self.lost_lines = 0
        self._lock = threading.Lock()

    def write(self, lines: str) -> None:
        """Have the next flush() write complete lines."""
        with self._lock:
            self._lines.append(lines.encode())

    def flush(self) -> None:
        """Write the lines; drop and count those that would have to wait for the reader."""
        with self._lock:
            lines, self._lines = self._lines, []
            if lines or self._rest or self._dropped:
                self._send(b"".join(lines))

    def _send(self, lines: bytes) -> None:
        data = self._rest
        if self._dropped:
            verb = "was" if self._dropped == 1 else "were"
            lost = f"{plural(self._dropped, 'line')} {verb} lost: the log was not read in time.\n"
            data += lost.encode()
        start, sent = len(data), 0
        data += lines
        # The reader may be gone, or the disk full.
        with contextlib.suppress(OSError):
            # What is ready takes this much without blocking.
            while sent < len(data) and self._poll.poll(0):
                sent += os.write(self._descriptor, data[sent : sent + select.PIPE_BUF])
        # A line that was begun is finished later; those after it are lost.
        is_begun = sent < len(self._rest) or data[sent - 1 : sent] not in (b"", b"\n")
        end = data.index(b"\n", sent) + 1 if is_begun else sent
        if end > len(self._rest):
            self._dropped = 0
        self._rest = data[sent:end]
        count = data.count(b"\n", max(start, end))
        self._dropped += count
        self.lost_lines += count


class AccessLog:
    """Writes a line for each request, in the configured format and from the configured level on."""

    def __init__(self, level: str, log_format: str, writer: LogWriter) -> None:
        self._min_status = {"info": 0, "warning": 500, "error": 1000}[level]
        self._with_query = level == "info"
        self._is_json = log_format == "json"
        self._write, self.flush = writer.write, writer.flush
        # All writers of the process, that of errors too.
        self.writers = {writer}

    def lost_lines(self) -> int:
        """Return how many lines were dropped since the start, requests and errors."""
        return sum(writer.lost_lines for writer in self.writers)

    def add(
        self,
        client: str,
        method: str,
        target: str,
        status: int,
        size: int,
        seconds: float,
        request_id: str = "",
    ) -> None:
        """Log one request; target is the path and query as they were sent."""
        if status < self._min_status:
            return
        if not self._with_query:
            target = target.partition("?")[0]
        when, milliseconds = utc_time(time.time()), f"{seconds * 1000:.1f}"
        client, method, target = escape_field(client), escape_field(method), escape_field(target)
        if self._is_json:
            fields = {"time": when, "client": client, "method": method, "path": target}
            numbers = {"status": status, "bytes": size, "milliseconds": float(milliseconds)}
            end = {"requestId": request_id} if request_id else {}
            self._write(json.dumps(fields | numbers | end, separators=(",", ":")) + "\n")
        else:
            rest = f" {request_id}" if request_id else ""
            self._write(f"{when} {client} {method} {target} {status} {size} {milliseconds}{rest}\n")


# Of the current second.
@lru_cache(1)
def date_and_time(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def utc_time(now: float) -> str:
    """Return the time in the form of the API."""
    return f"{date_and_time(int(now))}.{int(now % 1 * 1000):03}Z"


def escape_field(text: str) -> str:
    """Return the text as one word of printable ASCII, cut to MAX_TARGET, or - if it is empty."""
    if len(text) < MAX_TARGET and is_plain(text):
        return text
    cut = text[:MAX_TARGET] + ("..." if len(text) > MAX_TARGET else "")
    return cut.encode("unicode_escape").decode("ascii").replace(" ", r"\x20") or "-"


class ErrorFormatter(logging.Formatter):
    """Formats an error as one line; in text, each line of its traceback begins with a space."""

    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        when, message = utc_time(record.created), escape_unprintable(record.getMessage())
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._is_json:
            fields = {"time": when, "level": record.levelname.lower(), "message": message}
            return json.dumps(fields | ({"traceback": trace} if trace else {}))
        first = f"{when} {record.levelname} {message}"
        return "\n ".join([first, *map(escape_unprintable, trace.splitlines())])


@contextlib.contextmanager
def logging_to_standard_streams(
    level: str, log_format: str, requests_stream: TextIO | None
) -> Iterator[AccessLog]:
    """Log requests to the stream, and what any module logs to standard error."""
    out, err = _descriptor(requests_stream), _descriptor(sys.stderr)
    requests = LogWriter(out)
    # One writer for one pipe: the rest of a line must not be separated from its beginning.
    errors = requests if os.path.sameopenfile(out, err) else LogWriter(err)
    min_level = logging.ERROR if level == "error" else logging.WARNING
    handler = logging.StreamHandler(errors)
    handler.setFormatter(ErrorFormatter(log_format))
    logging.basicConfig(handlers=[handler], level=min_level, force=True)
    log = AccessLog(level, log_format, requests)
    log.writers.add(errors)
    try:
        yield log
    finally:
        requests.flush()
        errors.flush()


def _descriptor(stream: TextIO | None) -> int:
    # The service may be started with its outputs closed.
    return stream.fileno() if stream else os.open(os.devnull, os.O_WRONLY)
