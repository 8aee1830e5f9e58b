"""Who sends a request to an internal path, and the limit of failed attempts.

A valid token is always accepted: its check is one hash and one lookup, so no number of wrong
tokens, from the same proxy or elsewhere, locks out its holder. Only failures are limited: after
MAX_FAILURES of an address, or MAX_ALL_FAILURES of all, in a minute, they get 429 instead of 401.
"""

import sqlite3
import threading
import time
from contextlib import suppress
from typing import NoReturn

from flask import Response, abort, current_app, jsonify, request
from werkzeug.exceptions import TooManyRequests

from catalog.rights import bearer_token
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DatabaseError
from catalog.store.write import tokens
from catalog.store.write.tokens import Token

# In the WSGI environment: the valid token of the request.
TOKEN_KEY = "catalog.token"  # noqa: S105

WINDOW = 60  # seconds
MAX_FAILURES = 30
MAX_ALL_FAILURES = 1000


class FailedAttempts:
    """The failed attempts of the current minute, by address and in total."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._total = 0
        self._window_end = 0.0

    def add(self, address: str) -> float:
        """Count a failure; return for how many seconds there were too many, 0 if there were not."""
        now = time.monotonic()
        with self._lock:
            if now >= self._window_end:
                self._counts.clear()
                self._total, self._window_end = 0, now + WINDOW
            self._total += 1
            # The table has at most MAX_ALL_FAILURES rows.
            if self._total > MAX_ALL_FAILURES:
                return self._window_end - now
            count = self._counts[address] = self._counts.get(address, 0) + 1
            return self._window_end - now if count > MAX_FAILURES else 0


def authenticate() -> Token | Response:
    """Return the valid token of the request, or the response to a request without one."""
    text = bearer_token(request.headers.get("Authorization", ""))
    if text is None:
        return unauthorized()
    database: Database = current_app.extensions["database"]
    token = tokens.find_valid(database, text)
    if token is None:
        attempts: FailedAttempts = current_app.extensions["failed_attempts"]
        seconds = attempts.add(request.remote_addr or "")
        # Without a token there is nothing to guess.
        if seconds and tokens.has_tokens(database):
            raise TooManyRequests("Too many failed attempts.", retry_after=int(seconds) + 1)
        return unauthorized()
    # A full disk or a locked file must not keep an administrator from reading the record.
    with suppress(DatabaseError, sqlite3.Error):
        tokens.note_use(database, token)
    request.environ[TOKEN_KEY] = token
    return token


def unauthorized() -> Response:
    """Return the same response whatever the reason."""
    response = jsonify(error="This path is internal and needs a session.")
    response.status_code = 401
    response.headers["WWW-Authenticate"] = 'Session realm="internal"'
    return response


def forbid(missing: str) -> NoReturn:
    """Respond 403 with what the token lacks."""
    abort(403, missing)
