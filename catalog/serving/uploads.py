"""Large bodies: which of them are accepted, and how they get into a file.

Only a request with a valid token that has the right to publish may have a body over
CATALOG_MAX_BODY_BYTES. The token is checked when the head is complete, before any of the body is
kept. The I/O thread only reads the socket: it leaves what it has read to the publishing thread,
which writes it to an unlinked temporary file, so that nothing stays if the connection is cut or
the process is killed. If that thread falls behind, the connection is not read meanwhile.
"""

import io
import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from werkzeug.exceptions import ServiceUnavailable

from catalog.rights import (
    MAX_FORM_BYTES,
    MAX_JSON_BYTES,
    TOO_LARGE,
    TOO_MANY,
    Right,
    bearer_token,
    required_right,
)
from catalog.serving.http_parser import Parser
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DatabaseError, DeadlineExceeded
from catalog.store.write.tokens import Token, find_valid

# Bodies that are received at the same time: in total, and with one token.
MAX_UPLOADS = 8
MAX_UPLOADS_PER_TOKEN = 4
# How fast a body must arrive.
MIN_RATE = 16 * 1024  # bytes a second
# What the I/O thread reads ahead of the publishing thread.
MAX_PENDING = 256 * 1024  # bytes
# To check a token. The I/O thread must not wait.
CHECK_DEADLINE = 0.025  # seconds

logger = logging.getLogger(__name__)


class FailedBody:
    """Stands for a body that could not be written to a file."""

    def read(self, *arguments: object) -> NoReturn:
        # Werkzeug takes an OSError for a client that has disconnected.
        raise ServiceUnavailable("The upload cannot be stored now.", retry_after=5)

    readinto = read


class UploadBody:
    """A body in a temporary file.

    The I/O thread appends to it. Only the publishing thread uses the file: to remove a large one
    takes time too.
    """

    def __init__(
        self,
        directory: Path,
        timeout: int,
        run: Callable[[Callable[[], None]], None],
        on_room: Callable[[], None],
        on_close: Callable[["UploadBody"], None],
    ) -> None:
        """Take what runs a function on the publishing thread, and what to call on events."""
        self._directory, self._timeout = directory, timeout
        self._run, self._on_room, self._on_close = run, on_room, on_close
        self._lock = threading.Lock()
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._size = 0
        self._file: BinaryIO | None = None
        self._has_failed = self._is_queued = self._is_closed = False
        self._deadline = time.monotonic() + timeout
        # The size at the last check of the deadline.
        self._checked_size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def is_full(self) -> bool:
        """Whether the publishing thread has to write before more is read."""
        return self._pending_size > MAX_PENDING

    def append(self, data: bytes) -> None:
        """Have the data written, without waiting for it."""
        with self._lock:
            self._pending.append(data)
            self._pending_size += len(data)
            self._size += len(data)
            is_queued, self._is_queued = self._is_queued, True
        if not is_queued:
            self._run(self._write)

    def _write(self) -> None:
        with self._lock:
            chunks, self._pending = self._pending, []
            was_full, self._pending_size = self.is_full, 0
            self._is_queued = False
        # After a failure, the rest of the body is read and dropped.
        if not (self._is_closed or self._has_failed):
            try:
                self._append_to_file(chunks)
            except OSError as error:
                logger.error("An upload cannot be written: %s", error)
                self._has_failed = True
                self._close_file()
        if was_full:
            self._on_room()

    def _append_to_file(self, chunks: list[bytes]) -> None:
        if self._file is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115
        self._file.writelines(chunks)
        # Otherwise the last bytes would be written, and could fail, when the body is read.
        self._file.flush()

    def _close_file(self) -> None:
        if self._file:
            # It fails if there was no space for what is buffered, but closes the file then too.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def deadline(self, now: float) -> float:
        """Return when the client will have fallen too far behind MIN_RATE."""
        latest = now + self._timeout
        progress = self._size - self._checked_size
        self._checked_size = self._size
        # The client cannot send while the connection is not read.
        later = latest if self.is_full else self._deadline + progress / MIN_RATE
        self._deadline = min(latest, later)
        return self._deadline

    def getfile(self) -> BinaryIO:
        """Return the complete body; call it on the publishing thread, after all was appended."""
        if self._has_failed:
            return cast(BinaryIO, FailedBody())
        if self._file is None:
            return io.BytesIO()
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Let another upload begin, and have the publishing thread remove the file."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._pending.clear()
        self._on_close(self)
        self._run(self._close_file)


class Uploads:
    """The large bodies that are received now, and the rules for new ones."""

    def __init__(
        self,
        database: Database,
        directory: Path,
        max_bundle: int,
        timeout: int,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        self._database, self._directory = database, directory
        self._max_bundle, self._timeout, self._run = max_bundle, timeout, run
        self._lock = threading.Lock()
        self._active: dict[UploadBody, str] = {}

    def admit(self, request: Parser, on_room: Callable[[], None]) -> None:
        """Accept the body of a request whose head is complete, or leave the request without it."""
        path = request.path.encode("latin-1").decode("utf-8", "replace")
        right = required_right(request.command, path)
        token = self._find_token(request, right)
        limit = self._max_bundle + MAX_FORM_BYTES if right and right.has_bundle else MAX_JSON_BYTES
        if token is None:
            # The application says what is wrong with it. If the token is valid by then, it is asked
            # to send the request again.
            request.refuse_body(TOO_MANY)
        elif request.content_length > limit:
            request.refuse_body(TOO_LARGE)
        elif (body := self._begin(token, on_room)) is None:
            request.refuse_body(TOO_MANY)
        else:
            request.accept_body(body, limit)

    def _find_token(self, request: Parser, right: Right | None) -> Token | None:
        """Return the token of the request if it may have a large body."""
        text = bearer_token(request.headers["AUTHORIZATION"])
        if right is None or text is None:
            return None
        try:
            if self._database.deadline.on_io_thread:
                self._database.set_deadline(CHECK_DEADLINE)
            token = find_valid(self._database, text)
        except (DeadlineExceeded, DatabaseError, sqlite3.Error):
            return None
        return None if token and token.missing_right(right.permission, right.scope) else token

    def _begin(self, token: Token, on_room: Callable[[], None]) -> UploadBody | None:
        """Return a body to receive; None if there are too many of them."""
        with self._lock:
            of_token = sum(name == token.name for name in self._active.values())
            if len(self._active) >= MAX_UPLOADS or of_token >= MAX_UPLOADS_PER_TOKEN:
                return None
            body = UploadBody(self._directory, self._timeout, self._run, on_room, self._end)
            self._active[body] = token.name
            return body

    def _end(self, body: UploadBody) -> None:
        with self._lock:
            self._active.pop(body, None)
