"""What the service says of itself: a line for each request, and errors, neither to be forged."""

import contextlib
import json
import logging
import os
import re
import select
import sys
import time
from collections import deque
from collections.abc import Iterator
from threading import Event, Thread
from typing import TextIO

from catalog.text import escape_unprintable

MAX_LINES = 10_000  # that wait for a slow reader; some megabytes
MAX_TARGET = 2_000  # characters of an address; beyond that it is no help to read
PAUSE = 0.05  # seconds in which lines gather, to be written at once
LAST_WORDS = 1  # seconds that a stop waits for a slow reader

# What stands for itself in a line: no space, no backslash, nothing a terminal would obey.
is_plain = re.compile(r"[!-\[\]-~]+").fullmatch


class Lines:
    """Lines on their way to a file; add() never waits for whoever reads it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[str] = deque()
        self._lost = 0
        self._some = Event()
        self._closed = False
        self._writer = Thread(target=self._run, name="log", daemon=True)
        self._writer.start()

    def add(self, line: str) -> None:
        """Have the line written soon, or count it as lost where too many wait already."""
        if len(self._waiting) >= MAX_LINES:
            self._lost += 1
            return
        self._waiting.append(line)
        if not self._some.is_set():
            self._some.set()

    def close(self) -> None:
        """Write what waits, if it is read in time."""
        self._closed = True
        self._some.set()
        self._writer.join(LAST_WORDS)

    def _run(self) -> None:
        closed = False
        while not closed:
            if not self._closed:
                self._some.wait()
            closed = self._closed  # and all that was added before is written in this turn
            if not closed:
                time.sleep(PAUSE)
            self._some.clear()
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            # Read and set with nothing between: a line lost meanwhile is told of next time.
            lost, self._lost = self._lost, 0
            if lost:
                lines.append(f"{lost} lines were lost: the log was not read in time.\n")
            try:
                self._write("".join(lines).encode())
            except OSError:  # a full disk, or nobody left to read; the service goes on
                self._lost += lost + len(lines)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # whoever started us may have made it so
                select.select([], [self._descriptor], [])


class AccessLog:
    """A line for each request, as the level and the format want it."""

    def __init__(self, level: str, form: str, lines: Lines) -> None:
        self._from_status = {"info": 0, "warning": 500, "error": 1000}[level]
        self._with_query = level == "info"
        self._line = {"text": _text_line, "json": _json_line}[form]
        self._lines = lines

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
        """Log one request; target is its address as it was sent, query and all."""
        if status < self._from_status:
            return
        if not self._with_query:
            target = target.partition("?")[0]
        self._lines.add(
            self._line(
                timestamp(time.time()),
                client if is_plain(client) else escaped(client),
                method if is_plain(method) else escaped(method),
                target if len(target) < MAX_TARGET and is_plain(target) else escaped(target),
                status,
                size,
                seconds * 1000,
                request_id,
            )
        )


def _text_line(
    when: str, client: str, method: str, target: str, status: int, size: int, ms: float, rid: str
) -> str:
    end = f" {rid}\n" if rid else "\n"
    return f"{when} {client} {method} {target} {status} {size} {ms:.1f}{end}"


def _json_line(
    when: str, client: str, method: str, target: str, status: int, size: int, ms: float, rid: str
) -> str:
    end = f',"requestId":"{rid}"}}\n' if rid else "}\n"
    return (
        f'{{"time":"{when}","client":{json.dumps(client)},"method":{json.dumps(method)},'
        f'"path":{json.dumps(target)},"status":{status},"bytes":{size},"milliseconds":{ms:.1f}{end}'
    )


_second = (0, "")  # the last second that was put into words: most lines are of the same


def timestamp(now: float) -> str:
    """The moment in UTC, to the millisecond, in the form of every other time of the service."""
    global _second
    whole = int(now)
    second, words = _second
    if second != whole:
        words = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        _second = (whole, words)
    return f"{words}.{int((now - whole) * 1000):03d}Z"


def escaped(text: str) -> str:
    """The text as one word of printable ASCII, cut where it would drown the line; - for none."""
    cut = text[:MAX_TARGET] + ("..." if len(text) > MAX_TARGET else "")
    return cut.encode("unicode_escape").decode("ascii").replace(" ", r"\x20") or "-"


class ErrorFormatter(logging.Formatter):
    """An error in a line; in text, its traceback follows in lines that begin with a space."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        when = timestamp(record.created)
        message = escape_unprintable(record.getMessage())
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._form == "json":
            said = {"time": when, "level": record.levelname.lower(), "message": message}
            return json.dumps(said | ({"traceback": trace} if trace else {}))
        lines = [
            f"{when} {record.levelname} {message}",
            *map(escape_unprintable, trace.splitlines()),
        ]
        return "\n ".join(lines)


class ErrorHandler(logging.Handler):
    """Hands what is logged to lines of its own: an error must not wait for a reader either."""

    def __init__(self, form: str, lines: Lines) -> None:
        super().__init__()
        self.setFormatter(ErrorFormatter(form))
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.add(self.format(record) + "\n")


@contextlib.contextmanager
def logging_to_standard_streams(level: str, form: str) -> Iterator[AccessLog]:
    """The log of requests, on standard output; errors go to standard error, whoever logs them."""
    out, err = Lines(_descriptor(sys.stdout)), Lines(_descriptor(sys.stderr))
    least = logging.ERROR if level == "error" else logging.WARNING
    logging.basicConfig(handlers=[ErrorHandler(form, err)], level=least, force=True)
    try:
        yield AccessLog(level, form, out)
    finally:
        out.close()
        err.close()


def _descriptor(stream: TextIO | None) -> int:
    # A service may be started with its outputs closed.
    return stream.fileno() if stream else os.open(os.devnull, os.O_WRONLY)
