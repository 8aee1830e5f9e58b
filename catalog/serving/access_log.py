"""The log: a line for each request on standard output, errors on standard error.

A line is one non-blocking write, so no request waits for the reader of the log. A line that cannot
be written is dropped and counted. That costs 5.5 us of CPU time a line; a thread that collects the
lines costs 3.7 us, but needs a queue, a wake-up and a flush at exit. Every field is escaped, so a
client cannot forge a line.
"""

import contextlib
import fcntl
import json
import logging
import os
import re
import select
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
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
        self._send = non_blocking_writer(descriptor)
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
        try:
            while data and (count := self._send(data)):
                data = data[count:]
        except OSError:
            # The reader is slow or gone, or the disk is full.
            return data
        return data


def non_blocking_writer(descriptor: int) -> Callable[[bytes], int]:
    """Return a function that writes what it can and returns its length, or raises OSError.

    O_NONBLOCK is a property of the open file, which other processes may share. So it is set on a
    second descriptor of the same file.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        # The journal of systemd.
        stream = socket.socket(fileno=os.dup(descriptor))
        return lambda data: stream.send(data, socket.MSG_DONTWAIT)
    if stat.S_ISREG(mode):
        # A file never blocks; a second descriptor would have another position in it.
        return partial(os.write, descriptor)
    if stat.S_ISFIFO(mode):
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        second = os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:
        # A file of another user, or not Linux.
        return partial(_write_if_ready, descriptor)
    return partial(os.write, second)


def _write_if_ready(descriptor: int, data: bytes) -> int:
    if not select.select([], [descriptor], [], 0)[1]:
        raise BlockingIOError
    # A pipe that is ready takes this much without blocking.
    return os.write(descriptor, data[: select.PIPE_BUF])


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
        when, milliseconds = timestamp(time.time()), seconds * 1000
        client = client if is_plain(client) else escape_field(client)
        method = method if is_plain(method) else escape_field(method)
        if len(target) >= MAX_TARGET or not is_plain(target):
            target = escape_field(target)
        if self._is_json:
            end = f',"requestId":"{request_id}"' if request_id else ""
            # Plain text has quotation marks.
            target, client, method = map(json.dumps, (target, client, method))
            self._write(
                f'{{"time":"{when}","client":{client},"method":{method},"path":{target},'
                f'"status":{status},"bytes":{size},"milliseconds":{milliseconds:.1f}{end}}}\n'
            )
            return
        end = f" {request_id}" if request_id else ""
        self._write(f"{when} {client} {method} {target} {status} {size} {milliseconds:.1f}{end}\n")


# The last second that was formatted, and its text: most lines are of the same second.
_second = (0, "1970-01-01T00:00:00")


def timestamp(now: float) -> str:
    """Return the time in UTC with milliseconds, in the format of every other timestamp."""
    global _second
    whole = int(now)
    second, text = _second
    if second != whole:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        _second = (whole, text)
    return f"{text}.{int((now - whole) * 1000):03d}Z"


def escape_field(text: str) -> str:
    """Return the text as one word of printable ASCII, cut to MAX_TARGET, or - if it is empty."""
    cut = text[:MAX_TARGET] + ("..." if len(text) > MAX_TARGET else "")
    return cut.encode("unicode_escape").decode("ascii").replace(" ", r"\x20") or "-"


class ErrorFormatter(logging.Formatter):
    """Formats an error as one line; in text, each line of its traceback begins with a space."""

    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._log_format = log_format

    def format(self, record: logging.LogRecord) -> str:
        when = timestamp(record.created)
        message = escape_unprintable(record.getMessage())
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._log_format == "json":
            fields = {"time": when, "level": record.levelname.lower(), "message": message}
            return json.dumps(fields | ({"traceback": trace} if trace else {}))
        lines = [
            f"{when} {record.levelname} {message}",
            *map(escape_unprintable, trace.splitlines()),
        ]
        return "\n ".join(lines)


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
