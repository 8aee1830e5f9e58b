"""The log: a line for each request on standard output, errors on standard error.

A line is written only if that does not block, so no request waits for the reader of the log. A line
that cannot be written is dropped and counted. Every field is escaped, so a client cannot forge a
line.
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
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

from ..text import escape_unprintable, plural
from ..validators import format_timestamp

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
        # The end of a line of which the first part was written.
        self._rest = b""
        self._dropped = 0
        # Since the start of the process.
        self.lost_lines = 0
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Write the text; drop it and count it if that would block or fails."""
        with self._lock:
            if not self._write(text.encode()):
                self._dropped += 1
                self.lost_lines += 1

    def close(self) -> None:
        """Write the rest of a line and the count of dropped ones, if that does not block."""
        with self._lock:
            self._write(b"")

    def _write(self, line: bytes) -> bool:
        """Return whether at least the beginning of the line was written; the rest will follow."""
        if self._rest:
            self._rest = self._send_all(self._rest)
            if self._rest:
                return False
        if self._dropped:
            verb = "was" if self._dropped == 1 else "were"
            lost = f"{plural(self._dropped, 'line')} {verb} lost: the log was not read in time.\n"
            line = lost.encode() + line
        rest = self._send_all(line)
        if len(rest) == len(line):
            return False
        self._rest, self._dropped = rest, 0
        return True

    def _send_all(self, data: bytes) -> bytes:
        """Send as much as possible and return the rest."""
        # The reader may be gone, or the disk full.
        with contextlib.suppress(OSError):
            # What is ready takes this much without blocking.
            while data and self._poll.poll(0):
                data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]
        return data


class AccessLog:
    """Writes a line for each request, in the configured format and from the configured level on."""

    def __init__(self, level: str, log_format: str, writer: LogWriter) -> None:
        self._min_status = {"info": 0, "warning": 500, "error": 1000}[level]
        self._with_query = level == "info"
        self._is_json = log_format == "json"
        self._write = writer.write
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
        when, milliseconds = format_timestamp(datetime.now(UTC)), f"{seconds * 1000:.1f}"
        client, method, target = escape_field(client), escape_field(method), escape_field(target)
        if self._is_json:
            fields: dict[str, object] = {
                "time": when,
                "client": client,
                "method": method,
                "path": target,
            }
            fields |= {"status": status, "bytes": size, "milliseconds": float(milliseconds)}
            fields |= {"requestId": request_id} if request_id else {}
            self._write(json.dumps(fields, separators=(",", ":")) + "\n")
        else:
            end = f" {request_id}" if request_id else ""
            self._write(f"{when} {client} {method} {target} {status} {size} {milliseconds}{end}\n")


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
        when = format_timestamp(datetime.fromtimestamp(record.created, UTC))
        message = escape_unprintable(record.getMessage())
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._is_json:
            fields: dict[str, object] = {
                "time": when,
                "level": record.levelname.lower(),
                "message": message,
            }
            return json.dumps(fields | ({"traceback": trace} if trace else {}))
        first = f"{when} {record.levelname} {message}"
        return "\n ".join([first, *map(escape_unprintable, trace.splitlines())])


class ErrorHandler(logging.Handler):
    """Writes errors without waiting for the reader of standard error."""

    def __init__(self, log_format: str, writer: LogWriter) -> None:
        super().__init__()
        self.setFormatter(ErrorFormatter(log_format))
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        self._writer.write(self.format(record) + "\n")


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
    logging.basicConfig(handlers=[ErrorHandler(log_format, errors)], level=min_level, force=True)
    log = AccessLog(level, log_format, requests)
    log.writers.add(errors)
    try:
        yield log
    finally:
        requests.close()
        errors.close()


def _descriptor(stream: TextIO | None) -> int:
    # The service may be started with its outputs closed.
    return stream.fileno() if stream else os.open(os.devnull, os.O_WRONLY)
