"""Who sends a request to an internal path, and the limit of failed attempts.

A valid token is always accepted: its check is one hash and one lookup, so no number of wrong
tokens, from the same proxy or elsewhere, locks out its holder. Only failures are limited: after
MAX_FAILURES of an address, or MAX_ALL_FAILURES of all, in a minute, they get 429 instead of 401.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import NoReturn

from flask import Response, abort, current_app, g, jsonify, request
from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from ..changes import ChangeError, ConflictError, MissingError, MissingWidgetError
from ..documents import DocumentError
from ..rights import NEEDS_SESSION, bearer_token
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError
from ..store.connection.transaction import now
from ..store.read.suggestions import did_you_mean
from ..store.write import tokens
from ..store.write.tokens import Token

View = Callable[..., Response]

WINDOW = 60  # seconds
MAX_FAILURES = 30
MAX_ALL_FAILURES = 1000


class FailedAttempts:
    """The failed attempts of the current minute, by address and in total."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._total = 0
        self._window_end = 0.0

    def add(self, address: str) -> float:
        """Count a failure; return for how many seconds there were too many, 0 if there were not."""
        now = self._clock()
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


def authenticate() -> Response | None:
    """Put the valid token of the request into g, or return the response to one without."""
    text = bearer_token(request.headers.get("Authorization", ""))
    if text is None:
        return unauthorized()
    database: Database = current_app.extensions["database"]
    token = tokens.find_token(database, text)
    status = token.status(now()) if token else None
    if token is None or status != "active":
        attempts: FailedAttempts = current_app.extensions["failed_attempts"]
        seconds = attempts.add(request.remote_addr or "")
        # Without a token there is nothing to guess.
        if seconds and tokens.has_tokens(database):
            raise TooManyRequests("Too many failed attempts.", retry_after=int(seconds) + 1)
        return unauthorized(f"The token {token.name} is {status}." if token else NEEDS_SESSION)
    # A full disk or a locked file must not keep an administrator from reading the record.
    with suppress(DatabaseError, sqlite3.Error):
        tokens.note_use(database, token)
    g.token = token
    return None


def unauthorized(message: str = NEEDS_SESSION) -> Response:
    """Return the response to a request without a valid token."""
    response = jsonify(error=message)
    response.status_code = 401
    response.headers["WWW-Authenticate"] = 'Session realm="internal"'
    return response


def needs(permission: str | None) -> Callable[[View], View]:
    """Call a view with the token of the request if it has the permission for the scope in the path.

    A change that the view refuses gets the status of its reason.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(**arguments: str) -> Response:
            token: Token = g.token
            if permission and (missing := token.missing_right(permission, arguments.get("scope"))):
                forbid(missing)
            with error_statuses():
                return view(token, **arguments)

        return checked

    return decorate


def forbid(missing: str) -> NoReturn:
    """Respond 403 with what the token lacks."""
    abort(403, missing)


@contextmanager
def error_statuses() -> Iterator[None]:
    """Respond to a change that is refused with the status of its reason."""
    try:
        yield
    except MissingWidgetError as error:
        database: Database = current_app.extensions["database"]
        near = did_you_mean(database.reader(), error.widget.scope, error.widget.name)
        abort(404, f"{error}{near}")
    except MissingError as error:
        abort(404, str(error))
    except ConflictError as error:
        abort(409, str(error))
    except (ChangeError, DocumentError) as error:
        abort(400, str(error))
    except TimeoutError:
        message = "A command on the server stores bundles now."
        raise ServiceUnavailable(message, retry_after=10) from None
    except OSError as error:
        current_app.logger.error("A bundle cannot be stored: %s", error)
        raise ServiceUnavailable("The bundle cannot be stored now.", retry_after=5) from error
