"""Finds and checks access tokens.

Operators create tokens. Trusts issue short-lived tokens to jobs in exchange for their id tokens.
"""

import hmac
import json
import sqlite3
from datetime import datetime, timedelta
from typing import NamedTuple

from ...domain.changes import MissingError
from ...domain.documents import Json
from ...domain.messages import quoted
from ...domain.permissions import Access
from ...domain.timestamps import format_timestamp, now
from ...domain.token_text import hash_token, token_id
from ..connection.database import Database
from ..connection.sqlite import fetch_all, fetch_one
from ..connection.transaction import Actor
from .lookup import Read

# Users are warned this long before their token expires.
WARNING_PERIOD = timedelta(days=14)
# This hash is compared if no token is found, so that rejecting an unknown token takes as long as
# rejecting a wrong secret.
NO_HASH = "0" * 64


class Token(NamedTuple):
    """A token that was found by its current or its previous secret."""

    # The public part of the token string.
    id: str
    name: str
    access: Access
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_day: str | None
    # The expiry of the secret that the last rotation replaced.
    previous_expires_at: str | None = None
    # True if the client sent the previous secret; expires_at is then the expiry of that secret.
    is_previous: bool = False
    # The subject and claims of the id token, for a short-lived token only; its name is that of
    # its trust.
    subject: str | None = None
    claims: Json | None = None

    @property
    def title(self) -> str:
        """How messages refer to the token: the kind of actor, followed by the token's name."""
        return f"{self.actor.kind} {self.name}"

    @property
    def actor(self) -> Actor:
        """Who makes the changes that this token allows."""
        if self.subject is not None:
            return Actor("trust", f"{self.name} ({self.subject})")
        return Actor("token", self.name)

    def status(self, time: str) -> str:
        """Return whether the token is active, expired or revoked at this time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= time else "active"

    def why_invalid(self, time: str) -> str | None:
        """Return why the token is not valid at this time, as a sentence; None if it is valid."""
        status = self.status(time)
        if status == "active":
            return None
        if self.is_previous and status == "expired":
            return f"The token {self.name} was rotated, and this secret is no longer valid."
        if self.subject is None:
            return (
                f"The token {self.name} {'is revoked' if status == 'revoked' else 'has expired'}."
            )
        if status == "revoked":
            return f"The trust {self.name} was removed."
        return f"The short-lived token of the trust {self.name} has expired."

    def expiry_warning(self, time: str) -> str | None:
        """Return a warning, without a full stop, if the token expires soon.

        A rotated token's old secret always causes a warning. Otherwise, a token whose whole
        lifetime is shorter than WARNING_PERIOD causes none.
        """
        if self.expires_at is None or self.status(time) != "active":
            return None
        if self.is_previous:
            return f"the token {self.name} was rotated; this secret expires at {self.expires_at}"
        warned_from = format_timestamp(datetime.fromisoformat(self.expires_at) - WARNING_PERIOD)
        if not self.created_at < warned_from <= time:
            return None
        return f"the token {self.name} expires at {self.expires_at}"


_COLUMNS = """
name, scopes, widgets, permissions, created_at, revoked_at, last_used_day, previous_expires_at
"""
_CURRENT = f"id, expires_at, false AS is_previous, {_COLUMNS}, NULL AS subject, NULL AS claims"
_PREVIOUS = f"previous_id, previous_expires_at, true, {_COLUMNS}, NULL, NULL"
_SHORT = """
short_token.id, expires_at, false, name, scopes, widgets, permissions, short_token.created_at,
removed_at, NULL, NULL, subject, short_token.claims
"""
FIND_TOKEN = f"""
SELECT sha256_hash, {_CURRENT} FROM token WHERE id = :id
UNION ALL
SELECT previous_hash, {_PREVIOUS} FROM token WHERE previous_id = :id
UNION ALL
SELECT sha256_hash, {_SHORT} FROM short_token JOIN trust ON trust.id = trust_id
WHERE short_token.id = :id
"""
LIST_TOKENS = f"SELECT {_CURRENT} FROM token ORDER BY name"
FIND_BY_NAME = f"SELECT {_CURRENT} FROM token WHERE name = :name"


def find_valid(database: Database, text: str) -> Token | None:
    """Return the token for this token string if it is active, else None."""
    token = find_token(database, text)
    return token if token and token.status(now()) == "active" else None


def find_token(database: Database, text: str) -> Token | None:
    """Return the token for this token string, active or not; None if there is no such token.

    A malformed string is rejected without reading the database. Any other string takes one hash,
    one lookup and one constant-time comparison. A client that knows the secret may learn that the
    token has expired or was revoked.
    """
    id_ = token_id(text)
    if id_ is None:
        return None
    row = fetch_one(database.reader(), FIND_TOKEN, {"id": id_})
    stored = NO_HASH if row is None else row["sha256_hash"]
    is_same = hmac.compare_digest(stored, hash_token(text))
    if row is None or not is_same:
        return None
    return _token(row)


def _token(row: sqlite3.Row) -> Token:
    values = {key: row[key] for key in Token._fields if key != "access"}
    access = Access(*(json.loads(row[key]) for key in Access._fields))
    values |= {
        "is_previous": bool(row["is_previous"]),
        "claims": json.loads(row["claims"] or "null"),
    }
    return Token(**values, access=access)


HAS_TOKENS = "SELECT 1 WHERE EXISTS (SELECT 1 FROM token) OR EXISTS (SELECT 1 FROM trust)"


def has_tokens(database: Database) -> bool:
    """Return whether any token was ever created, or any trust that issues tokens."""
    return fetch_one(database.reader(), HAS_TOKENS) is not None


NEXT_EXPIRY = """
SELECT min(expires_at) FROM token
WHERE revoked_at IS NULL AND expires_at > :now
  AND julianday(expires_at) - julianday(created_at) > :warning_days
"""


def next_expiry(connection: sqlite3.Connection) -> float | None:
    """Return when the next valid token expires, in seconds since 1970; None if no token does.

    A token whose whole lifetime is shorter than WARNING_PERIOD is ignored: it is meant to expire.
    """
    values = {"now": now(), "warning_days": WARNING_PERIOD.days}
    (text,) = fetch_one(connection, NEXT_EXPIRY, values)
    return text and datetime.fromisoformat(text).timestamp()


def list_tokens(connection: sqlite3.Connection) -> list[Token]:
    """Return all tokens, including expired and revoked ones, sorted by name."""
    return [_token(row) for row in fetch_all(connection, LIST_TOKENS)]


def find_by_name(read: Read, name: str) -> Token | None:
    """Return the token with this name, or None."""
    rows = read(FIND_BY_NAME, {"name": name})
    return _token(rows[0]) if rows else None


def get_token(read: Read, name: str) -> Token:
    """Return the token with this name; raise MissingError if there is none."""
    token = find_by_name(read, name)
    if token is None:
        raise MissingError(f"There is no token {quoted(name)}.")
    return token


def describe_token(token: Token) -> Json:
    """Return a token's scopes, permissions and expiry for the audit log and the API."""
    identity = {"trust": token.name, "subject": token.subject, "claims": token.claims}
    return {
        "token": token.name,
        **(identity if token.subject is not None else {}),
        "id": token.id,
        "scopes": token.access.scopes,
        "widgets": token.access.widgets,
        "permissions": token.access.permissions,
        "expiresAt": token.expires_at,
    }
