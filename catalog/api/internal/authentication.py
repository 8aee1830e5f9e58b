"""Checks the token of each request to an internal path, and limits failed attempts.

A valid token is always accepted, because checking a token takes only one hash and one lookup. Wrong
tokens never lock out the holder of a valid one, even behind the same proxy. Only failures are
limited: after MAX_FAILURES from one address, or MAX_ALL_FAILURES in total, within a minute, further
failures get 429 instead of 401.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps

from flask import Response, abort, current_app, g, jsonify, request
from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from ...domain.changes import ChangeError, ConflictError, MissingError, MissingWidgetError
from ...domain.documents import DocumentError
from ...domain.messages import quoted
from ...domain.permissions import NEEDS_SESSION, bearer_token, find_requirement
from ...domain.timestamps import now
from ...store.connection.database import Database
from ...store.connection.sqlite import DatabaseError
from ...store.read.suggestions import did_you_mean, suggest_widgets
from ...store.read.tokens import Token, find_token, has_tokens
from ...store.write.tokens import note_use

View = Callable[..., Response]

WINDOW = 60  # seconds
MAX_FAILURES = 30
MAX_ALL_FAILURES = 1000


class FailedAttempts:
    """The failed attempts in the current minute, by address and in total."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._total = 0
        self._window_end = 0.0

    def add(self, address: str) -> float:
        """Count a failure; return the seconds until the limit resets, or 0 within the limit."""
        now = self._clock()
        with self._lock:
            if now >= self._window_end:
                self._counts.clear()
                self._total, self._window_end = 0, now + WINDOW
            self._total += 1
            # Do not count further addresses, so that there are at most MAX_ALL_FAILURES counters.
            if self._total > MAX_ALL_FAILURES:
                return self._window_end - now
            count = self._counts[address] = self._counts.get(address, 0) + 1
            return self._window_end - now if count > MAX_FAILURES else 0


def authenticate() -> Response | None:
    """Store the request's token in g if it is valid; otherwise return an error response."""
    text = bearer_token(request.headers.get("Authorization", ""))
    if text is None:
        return unauthorized()
    database: Database = current_app.extensions["database"]
    token = find_token(database, text)
    problem = token.why_invalid(now()) if token else NEEDS_SESSION
    if token is None or problem:
        count_failure()
        return unauthorized(problem or NEEDS_SESSION)
    # A full disk or a locked file must not prevent an administrator from reading the audit log.
    with suppress(DatabaseError, sqlite3.Error):
        note_use(database, token)
    g.token = token
    return None


def count_failure() -> None:
    """Count a failed attempt; respond 429 after too many from this address or in total."""
    attempts: FailedAttempts = current_app.extensions["failed_attempts"]
    seconds = attempts.add(request.remote_addr or "")
    # A catalog without tokens or trusts gives an attacker nothing to guess.
    if seconds and has_tokens(current_app.extensions["database"]):
        raise TooManyRequests("Too many failed attempts.", retry_after=int(seconds) + 1)


def unauthorized(message: str = NEEDS_SESSION) -> Response:
    """Return the response to a request without a valid token."""
    response = jsonify(error=message)
    response.status_code = 401
    response.headers["WWW-Authenticate"] = 'Session realm="internal"'
    return response


def authorized(view: View) -> View:
    """Call a view with the request's token, if the token permits the request.

    Set g.dry_run. If the view refuses a change, respond with the status that fits the reason.
    """

    @wraps(view)
    def checked(**arguments: str) -> Response:
        token: Token = g.token
        needed = find_requirement(request.method.replace("HEAD", "GET"), request.path)
        # A route without an entry in the table of requirements always responds 404.
        if needed is None:
            abort(404)
        if missing := token.access.find_missing(needed):
            abort(403, f"The {token.title} {missing}.")
        g.dry_run = parse_boolean("dryRun")
        with error_statuses():
            return view(token, **arguments)

    return checked


def check_official(token: Token) -> None:
    """Respond 403 unless the token may mark widgets as official."""
    if not token.access.is_admin:
        abort(403, f"The {token.title} needs the admin permission to set isOfficial.")


def parse_boolean(name: str) -> bool:
    """Return a boolean query parameter; respond 400 if it is invalid or repeated."""
    values = request.args.getlist(name) or ["false"]
    if len(values) > 1 or values[0].lower() not in ("true", "false"):
        abort(400, f"{name} must be true or false, not {quoted('&'.join(values))}.")
    return values[0].lower() == "true"


@contextmanager
def error_statuses() -> Iterator[None]:
    """Respond to a refused change with the status that fits the reason."""
    try:
        yield
    except MissingWidgetError as error:
        database: Database = current_app.extensions["database"]
        near = suggest_widgets(database.reader(), error.widget.name, error.widget.scope)
        abort(404, f"{error}{did_you_mean(near)}")
    except MissingError as error:
        abort(404, str(error))
    except ConflictError as error:
        abort(409, str(error))
    except (ChangeError, DocumentError) as error:
        abort(400, str(error))
    except TimeoutError:
        message = "Another command on the server is storing bundles; try again."
        raise ServiceUnavailable(message, retry_after=10) from None
    except OSError as error:
        current_app.logger.error("Cannot store a bundle: %s", error)
        raise ServiceUnavailable("The bundle cannot be stored now.", retry_after=5) from error
