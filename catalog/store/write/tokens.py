"""Access tokens: how they are stored, found and checked."""

import hmac
import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ...changes import ChangeError, MissingError
from ...documents import Json
from ...rights import ADMIN
from ...text import quoted
from ...token_text import generate_token, hash_token, token_id
from ...validators import format_timestamp
from ..connection.database import Database
from ..connection.sqlite import WouldBlock
from ..connection.transaction import Actor, Transaction, now
from .lookup import Read

MAX_NAME_LENGTH = 100
# Before a token expires.
WARNING_PERIOD = timedelta(days=14)

# Compared if there is no row, so that an unknown token takes the same steps as a wrong one.
NO_HASH = "0" * 64


class Token(NamedTuple):
    """A row of the table, without the hash."""

    id: str
    name: str
    scopes: list[str]
    permissions: list[str]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_day: str | None

    @property
    def actor(self) -> Actor:
        """Who makes the changes that this token allows."""
        return Actor("token", self.name)

    def status(self, time: str) -> str:
        """Return whether it is active, expired or revoked at this time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= time else "active"

    def expiry_warning(self, time: str) -> str | None:
        """Return that it expires soon, without a full stop; None for one that was made to."""
        if self.expires_at is None or self.status(time) != "active":
            return None
        warned_from = format_timestamp(datetime.fromisoformat(self.expires_at) - WARNING_PERIOD)
        if not self.created_at < warned_from <= time:
            return None
        return f"the token {self.name} expires at {self.expires_at}"

    def missing_right(self, permission: str, scope: str | None = None) -> str | None:
        """Return what the token lacks for this change, as a sentence; None if it may be made."""
        if ADMIN in self.permissions:
            return None
        if permission not in self.permissions:
            return f"The token {self.name} does not have the permission {permission}."
        if scope not in self.scopes:
            return f"The token {self.name} is not for the scope {quoted(scope)}."
        return None


_COLUMNS = "id, name, scopes, permissions, created_at, expires_at, revoked_at, last_used_day"
FIND_TOKEN = f"SELECT sha256_hash, {_COLUMNS} FROM token WHERE id = :id"
LIST_TOKENS = f"SELECT {_COLUMNS} FROM token ORDER BY name"
FIND_BY_NAME = f"SELECT {_COLUMNS} FROM token WHERE name = :name"


def find_valid(database: Database, text: str) -> Token | None:
    """Return the token with this text if it is active, None otherwise."""
    token = find_token(database, text)
    return token if token and token.status(now()) == "active" else None


def find_token(database: Database, text: str) -> Token | None:
    """Return the token with this text, whether or not it is active; None if there is none.

    A malformed one needs no database. For all others there are one hash, one lookup and one
    comparison in constant time. Who has the text of a token may learn that it is not active.
    """
    id_ = token_id(text)
    if id_ is None:
        return None
    row = database.reader().execute(FIND_TOKEN, {"id": id_}).fetchone()
    stored = NO_HASH if row is None else row["sha256_hash"]
    is_same = hmac.compare_digest(stored, hash_token(text))
    if row is None or not is_same:
        return None
    return _token(row)


def _token(row: sqlite3.Row) -> Token:
    values = {key: row[key] for key in Token._fields}
    return Token(**{**values, **{key: json.loads(row[key]) for key in ("scopes", "permissions")}})


def has_tokens(database: Database) -> bool:
    """Return whether a token was ever created."""
    return database.reader().execute("SELECT 1 FROM token LIMIT 1").fetchone() is not None


NEXT_EXPIRY = """
SELECT min(expires_at) FROM token WHERE revoked_at IS NULL AND expires_at > :now
"""


def next_expiry(connection: sqlite3.Connection) -> float | None:
    """Return when the first of the valid tokens expires, in seconds since 1970; None if none."""
    (text,) = connection.execute(NEXT_EXPIRY, {"now": now()}).fetchone()
    return text and datetime.fromisoformat(text).timestamp()


def list_tokens(connection: sqlite3.Connection) -> list[Token]:
    """Return all tokens by name, with those that are expired or revoked."""
    return [_token(row) for row in connection.execute(LIST_TOKENS)]


def get_token(read: Read, name: str) -> Token:
    """Return the token with this name; raise MissingError if there is none."""
    rows = read(FIND_BY_NAME, {"name": name})
    if not rows:
        raise MissingError(f"There is no token {quoted(name)}.")
    return _token(rows[0])


ADD_ROW = """
INSERT INTO token (id, name, sha256_hash, scopes, permissions, created_at, expires_at)
VALUES (:id, :name, :sha256_hash, :scopes, :permissions, :created_at, :expires_at)
"""


def create_token(
    database: Database,
    actor: Actor,
    name: str,
    scopes: Sequence[str],
    permissions: Sequence[str],
    lifetime: timedelta | None,
) -> tuple[Token, str]:
    """Create a token; return it with its text, which cannot be read again."""
    id_, text = generate_token()
    created, expires = _period(lifetime)
    token = Token(id_, name, [*scopes], [*permissions], created, expires, None, None)
    values = {
        **token._asdict(),
        "scopes": json.dumps(token.scopes, ensure_ascii=False),
        "permissions": json.dumps(token.permissions),
        "sha256_hash": hash_token(text),
    }

    def add(transaction: Transaction) -> None:
        for row in transaction.read(FIND_BY_NAME, {"name": name}):
            raise ChangeError(
                f"There is a token {quoted(name)} already, and it is {_token(row).status(now())}; "
                "a name is used once."
            )
        transaction.execute(ADD_ROW, values)
        transaction.record("create token", after=describe_token(token))

    database.transact(add, actor)
    return token, text


def _period(lifetime: timedelta | None) -> tuple[str, str | None]:
    """Return the times at which a new token begins and ends."""
    begin = datetime.now(UTC)
    end = None if lifetime is None else format_timestamp(begin + lifetime)
    return format_timestamp(begin), end


def describe_token(token: Token) -> Json:
    """Return what a token may do and until when, as the record and the API show it."""
    return {
        "token": token.name,
        "id": token.id,
        "scopes": token.scopes,
        "permissions": token.permissions,
        "expiresAt": token.expires_at,
    }


REVOKE = "UPDATE token SET revoked_at = :at WHERE id = :id"
ROTATE = """
UPDATE token
SET id = :id, sha256_hash = :sha256_hash, created_at = :created_at, expires_at = :expires_at,
    last_used_day = NULL
WHERE id = :old_id
"""


def revoke_token(database: Database, actor: Actor, name: str) -> bool:
    """Revoke a token; return False if it was revoked before."""

    def revoke(transaction: Transaction) -> bool:
        token = get_token(transaction.read, name)
        if token.revoked_at is not None:
            return False
        transaction.execute(REVOKE, {"id": token.id, "at": now()})
        transaction.record("revoke token", before=describe_token(token))
        return True

    return database.transact(revoke, actor)


def rotate_token(
    database: Database, actor: Actor, name: str, lifetime: timedelta | None
) -> tuple[Token, str]:
    """Give a token another text; the old one is refused from now on."""
    id_, text = generate_token()
    created, expires = _period(lifetime)
    period = {"created_at": created, "expires_at": expires}

    def rotate(transaction: Transaction) -> Token:
        old = get_token(transaction.read, name)
        if old.revoked_at is not None:
            raise ChangeError(f"The token {quoted(name)} is revoked; create another one.")
        values = {"id": id_, "sha256_hash": hash_token(text), "old_id": old.id, **period}
        transaction.execute(ROTATE, values)
        token = old._replace(id=id_, created_at=created, expires_at=expires, last_used_day=None)
        before, after = describe_token(old), describe_token(token)
        transaction.record("rotate token", before=before, after=after)
        return token

    return database.transact(rotate, actor), text


SET_LAST_USED = "UPDATE token SET last_used_day = :day WHERE id = :id AND last_used_day IS NOT :day"


def note_use(database: Database, token: Token) -> None:
    """Record that the token is used today; this writes once a day, and not on the I/O thread."""
    day = now()[:10]
    if token.last_used_day == day:
        return
    if not database.deadline.may_wait:
        raise WouldBlock
    values = {"id": token.id, "day": day}
    database.transact(lambda transaction: transaction.note(SET_LAST_USED, values))
