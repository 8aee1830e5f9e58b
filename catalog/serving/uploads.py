"""Large bodies: which requests may have one, and how long receiving it may take.

Only two kinds of requests may have a body over CATALOG_MAX_BODY_BYTES: a change whose token has the
permission for it, and the form on /updates, which needs no token. The token is checked when the
head is complete, before any of the body is stored. The body is received into an unlinked temporary
file on the bundles' disk: nothing remains if the connection is cut or the process is killed.
"""

import sqlite3
import tempfile
from pathlib import Path
from typing import BinaryIO

from ..domain.permissions import (
    MAX_JSON_BYTES,
    NOT_ADMITTED,
    TOO_LARGE,
    bearer_token,
    find_requirement,
)
from ..domain.request_kinds import Kind
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, DeadlineExceeded
from ..store.read.tokens import Token, find_valid
from .http_parser import CANNOT_STORE, HttpRequest

# The maximum number of bodies that are received at the same time: in total, and from forms, which
# anyone can send. Each client may send one form at a time.
MAX_UPLOADS = 8
MAX_FORMS = 2
# A body must arrive at this rate once a grace period (the request timeout) has passed.
MIN_RATE = 100_000  # bytes a second
# The maximum time that the I/O thread spends on checking a token.
CHECK_BUDGET = 0.005  # seconds of CPU time


def find_token(database: Database, request: HttpRequest) -> Token | None:
    """Return the valid token of a request; raise DeadlineExceeded if it cannot be checked now."""
    text = bearer_token(request.headers.get("HTTP_AUTHORIZATION", ""))
    if text is None:
        return None
    database.deadline.set_budget(CHECK_BUDGET)
    try:
        return find_valid(database, text)
    except (DatabaseError, sqlite3.Error) as error:
        raise DeadlineExceeded from error


class Uploads:
    """The large bodies that are being received or handled, and the rules for new ones."""

    def __init__(
        self, database: Database, directory: Path, max_bundle: int, request_timeout: int
    ) -> None:
        self._database, self._directory = database, directory
        self._max_bundle, self._request_timeout = max_bundle, request_timeout
        # Maps each admitted request to its client if its body is a form, and to None for a change.
        self._clients: dict[HttpRequest, str | None] = {}

    def admit(self, request: HttpRequest, client: str) -> float:
        """Accept or reject the body of a request whose head is complete.

        Return how many seconds the client has to send the body.
        """
        if request.kind is Kind.FORM:
            forms = [each for each in self._clients.values() if each is not None]
            has_slot = len(forms) < MAX_FORMS and client not in forms
            self._accept(request, client, MAX_JSON_BYTES, has_slot=has_slot)
            return self._request_timeout
        path = request.path.encode("latin-1").decode("utf-8", "replace")
        needed = find_requirement(request.method, path)
        try:
            token = find_token(self._database, request)
        except DeadlineExceeded:
            request.fail(CANNOT_STORE)
            return 0
        if not needed or not needed.max_body or not token or token.access.find_missing(needed):
            # The application responds with the reason. If the token has become valid in the
            # meantime, the application asks the client to retry.
            request.reject_body(NOT_ADMITTED)
            return 0
        limit = needed.max_body + (self._max_bundle if needed.has_bundle else 0)
        self._accept(request, None, limit)
        # A chunked body may have any length up to the limit.
        return self._request_timeout + (request.content_length or limit) / MIN_RATE

    def _accept(
        self, request: HttpRequest, client: str | None, limit: int, *, has_slot: bool = True
    ) -> None:
        if request.content_length > limit:
            request.reject_body(TOO_LARGE)
        elif len(self._clients) >= MAX_UPLOADS or not has_slot:
            request.reject_body(NOT_ADMITTED)
        else:
            try:
                request.accept_body(self._create_file(), limit)
            except OSError:
                request.fail(CANNOT_STORE)
            else:
                self._clients[request] = client

    def end(self, request: HttpRequest) -> None:
        """Free an upload's slot for another upload."""
        self._clients.pop(request, None)

    def _create_file(self) -> BinaryIO:
        # The disk with the bundles has room for large files; /tmp may be in memory.
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._directory)
