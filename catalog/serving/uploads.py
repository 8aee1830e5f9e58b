"""Large bodies: which of them are accepted, and for how long.

Only a request with a valid token that has the right to publish may have a body over
CATALOG_MAX_BODY_BYTES, and the form of /updates, as if all who send it had one token. A token is
checked when the head is complete, before any of the body is kept. The body is received into an
unlinked temporary file on the disk of the bundles, so that nothing stays if the connection is cut
or the process is killed.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..rights import (
    MAX_FORM_BYTES,
    MAX_JSON_BYTES,
    NOT_ADMITTED,
    TOO_LARGE,
    bearer_token,
    required_right,
)
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, DeadlineExceeded
from ..store.write.tokens import Token, find_valid
from .http_parser import CANNOT_STORE, Parser
from .sending import MIN_RATE

# Bodies that are received at the same time: in total, and with one token.
MAX_UPLOADS = 8
MAX_UPLOADS_PER_TOKEN = 4
# In place of the name of a token, for the form.
ANYONE = ""
# To check a token.
CHECK_BUDGET = 0.005  # seconds of CPU time


@dataclass(eq=False)
class Upload:
    """A large body that was accepted: it has a slot until its request has a response."""

    # Closes its connection.
    drop: Callable[[], None]
    request: Parser
    token: str
    started: float = field(default_factory=time.monotonic)

    def rate(self, now: float) -> float:
        """Return how fast it arrives, in bytes a second."""
        return self.request.body_size / (now - self.started + 1)

    def deadline(self, timeout: int, last_received: float) -> float:
        """Return when the client is too late: below MIN_RATE, or silent for the timeout."""
        by_size = self.started + timeout + self.request.body_size / MIN_RATE
        return min(by_size, last_received + timeout)


class Uploads:
    """The large bodies that are received now, and the rules for new ones."""

    def __init__(self, database: Database, directory: Path, max_bundle: int) -> None:
        self._database, self._directory, self._max_bundle = database, directory, max_bundle
        self._active: set[Upload] = set()

    def find_token(self, request: Parser) -> Token | None:
        """Return the valid token of a request; raise DeadlineExceeded if it cannot be checked."""
        text = bearer_token(request.headers["HTTP_AUTHORIZATION"])
        self._database.deadline.set_budget(CHECK_BUDGET)
        try:
            return find_valid(self._database, text) if text is not None else None
        except (DatabaseError, sqlite3.Error) as error:
            raise DeadlineExceeded from error

    def admit(self, drop: Callable[[], None], request: Parser) -> Upload | None:
        """Accept the body of a request whose head is complete, or leave the request without it."""
        if request.is_form:
            return self._begin_if_possible(drop, request, ANYONE, MAX_JSON_BYTES)
        path = request.path.encode("latin-1").decode("utf-8", "replace")
        right = required_right(request.command, path)
        try:
            token = self.find_token(request)
        except DeadlineExceeded:
            request.refuse(CANNOT_STORE)
            return None
        limit = self._max_bundle + MAX_FORM_BYTES if right and right.has_bundle else MAX_JSON_BYTES
        if right is None or token is None or token.missing_right(right.permission, right.scope):
            # The application says what is wrong with it. If the token is valid by then, it is asked
            # to send the request again.
            request.refuse_body(NOT_ADMITTED)
            return None
        return self._begin_if_possible(drop, request, token.name, limit)

    def _begin_if_possible(
        self, drop: Callable[[], None], request: Parser, token: str, limit: int
    ) -> Upload | None:
        if request.content_length > limit:
            request.refuse_body(TOO_LARGE)
        elif not self._has_slot(token):
            request.refuse_body(NOT_ADMITTED)
        else:
            try:
                request.accept_body(self._create_file(), limit)
            except OSError:
                request.refuse(CANNOT_STORE)
                return None
            upload = Upload(drop, request, token)
            self._active.add(upload)
            return upload
        return None

    def end(self, upload: Upload) -> None:
        """Leave the slot to another upload."""
        self._active.discard(upload)

    def _create_file(self) -> BinaryIO:
        # On the disk of the bundles: /tmp may be in memory.
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._directory)

    def _has_slot(self, token: str) -> bool:
        """Return whether the token may begin an upload; may end the slowest one for it."""
        own = sum(each.token == token for each in self._active)
        if len(self._active) < MAX_UPLOADS or own >= MAX_UPLOADS_PER_TOKEN:
            return own < MAX_UPLOADS_PER_TOKEN
        now = time.monotonic()
        receiving = [each for each in self._active if not each.request.completed]
        if own or not receiving:
            return False
        min(receiving, key=lambda each: each.rate(now)).drop()
        return True
