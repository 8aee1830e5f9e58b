"""Creates, rotates and revokes access tokens."""

import json
from datetime import UTC, datetime, timedelta

from ...domain.changes import ChangeError
from ...domain.messages import quoted
from ...domain.permissions import Access
from ...domain.timestamps import format_timestamp, now
from ...domain.token_text import generate_token, hash_token
from ..connection.database import Database
from ..connection.sqlite import WouldBlock
from ..connection.transaction import Actor, Transaction
from ..read.tokens import Token, describe_token, find_by_name, get_token

MAX_NAME_LENGTH = 100

ADD_ROW = """
INSERT INTO token (id, name, sha256_hash, scopes, widgets, permissions, created_at, expires_at)
VALUES (:id, :name, :sha256_hash, :scopes, :widgets, :permissions, :created_at, :expires_at)
"""


def create_token(
    database: Database, actor: Actor, name: str, access: Access, lifetime: timedelta | None
) -> tuple[Token, str]:
    """Create a token; return it with the token string, which cannot be read again."""
    id_, text = generate_token()
    begin = datetime.now(UTC)
    created, expires = format_timestamp(begin), _end(begin, lifetime)
    token = Token(id_, name, access, created, expires, None, None)
    lists = {key: json.dumps(each, ensure_ascii=False) for key, each in access._asdict().items()}
    values = {**token._asdict(), **lists, "sha256_hash": hash_token(text)}
    del values["access"]

    def add(transaction: Transaction) -> None:
        if existing := find_by_name(transaction.read, name):
            raise ChangeError(
                f"A token named {quoted(name)} already exists and is "
                f"{existing.status(now())}; token names cannot be reused."
            )
        transaction.execute(ADD_ROW, values)
        transaction.record("create token", after=describe_token(token))

    database.transact(add, actor)
    return token, text


def _end(begin: datetime, lifetime: timedelta | None) -> str | None:
    """Return when a secret that is valid from `begin` expires, or None if it never does."""
    return None if lifetime is None else format_timestamp(begin + lifetime)


REVOKE = "UPDATE token SET revoked_at = :at WHERE name = :name"


def revoke_token(database: Database, actor: Actor, name: str) -> bool:
    """Revoke a token; return False if it was already revoked."""

    def revoke(transaction: Transaction) -> bool:
        token = get_token(transaction.read, name)
        if token.revoked_at is not None:
            return False
        transaction.execute(REVOKE, {"name": name, "at": now()})
        transaction.record("revoke token", before=describe_token(token))
        return True

    return database.transact(revoke, actor)


# SQLite evaluates all expressions before it assigns any column.
ROTATE = """
UPDATE token
SET previous_id = iif(:previous_expires_at IS NULL, NULL, id),
    previous_hash = iif(:previous_expires_at IS NULL, NULL, sha256_hash),
    previous_expires_at = :previous_expires_at,
    id = :id, sha256_hash = :sha256_hash, created_at = :created_at, expires_at = :expires_at,
    last_used_day = NULL
WHERE name = :name
"""


def rotate_token(
    database: Database,
    actor: Actor,
    name: str,
    lifetime: timedelta | None,
    overlap: timedelta | None = None,
) -> tuple[Token, str]:
    """Give a token a new secret, and return the token with the new token string.

    The old secret stays valid until the overlap ends, but not beyond its own expiry. Without an
    overlap, it is refused immediately.
    """
    id_, text = generate_token()
    begin = datetime.now(UTC)
    overlap_end = _end(begin, overlap)

    def rotate(transaction: Transaction) -> Token:
        old = get_token(transaction.read, name)
        if old.revoked_at is not None:
            raise ChangeError(f"The token {quoted(name)} is revoked; create a new one.")
        previous_end = overlap_end and min(overlap_end, old.expires_at or overlap_end)
        token = old._replace(
            id=id_,
            created_at=format_timestamp(begin),
            expires_at=_end(begin, lifetime),
            last_used_day=None,
            previous_expires_at=previous_end,
        )
        values = {key: token._asdict()[key] for key in ROTATED_COLUMNS}
        transaction.execute(ROTATE, {**values, "name": name, "sha256_hash": hash_token(text)})
        before, after = describe_token(old), describe_token(token)
        if overlap:
            after["previousExpiresAt"] = previous_end
        transaction.record("rotate token", before=before, after=after)
        return token

    return database.transact(rotate, actor), text


ROTATED_COLUMNS = ("id", "created_at", "expires_at", "previous_expires_at")
SET_LAST_USED = """
UPDATE token SET last_used_day = :day WHERE name = :name AND last_used_day IS NOT :day
"""


def note_use(database: Database, token: Token) -> None:
    """Record once a day that the token was used; raise WouldBlock if this thread must not wait.

    The use of short-lived tokens is not recorded.
    """
    day = now()[:10]
    if token.last_used_day == day or token.subject is not None:
        return
    if not database.deadline.may_wait:
        raise WouldBlock
    values = {"name": token.name, "day": day}
    database.transact(lambda transaction: transaction.note(SET_LAST_USED, values))
