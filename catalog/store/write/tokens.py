"""Access tokens: how they are made and checked, and what each may do.

A token is `wcat_`, an id of 8 characters, 43 characters that stand for 256 random bits, and a
checksum of 6 characters, all of them letters and digits. The id finds the row, the checksum tells
a typing error without the database, and lets a scanner for secrets know a token with certainty.
The bits are random, so a plain SHA-256 of the token is as good as a slow hash.
"""

import hashlib
import hmac
import json
import re
import secrets
import sqlite3
import string
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from catalog.documents import Json
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import WouldBlock
from catalog.store.write.audit import (
    MAX_ATTEMPTS,
    RECORD,
    Actor,
    json_text,
    now,
    record,
    record_values,
)
from catalog.store.write.lookup import ChangeError, ConflictError, MissingError
from catalog.text import quoted
from catalog.validators import format_timestamp

PREFIX = "wcat_"
ALPHABET = string.digits + string.ascii_letters
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 8, 43, 6
TOKEN = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{ID_LENGTH}}})[0-9A-Za-z]{{{SECRET_LENGTH + 6}}}")

PUBLISH, YANK, DESCRIBE, ADMIN = "publish", "yank", "describe", "admin"
PERMISSIONS = (PUBLISH, YANK, DESCRIBE, ADMIN)
MAX_NAME_LENGTH = 100

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

    def missing_right(self, permission: str, scope: str | None = None) -> str | None:
        """Return what the token lacks for this change, as a sentence; None if it may be made."""
        return missing_right(self.name, self.permissions, self.scopes, permission, scope)


def missing_right(
    name: str,
    permissions: Sequence[str],
    scopes: Sequence[str],
    permission: str,
    scope: str | None,
) -> str | None:
    """Return what a token with these permissions and scopes lacks, as a sentence, or None."""
    if ADMIN in permissions:
        return None
    if permission not in permissions:
        return f"The token {name} does not have the permission {permission}."
    if scope not in scopes:
        return f"The token {name} is not for the scope {quoted(scope)}."
    return None


def generate_token() -> tuple[str, str]:
    """Return the id of a new token, and its text."""
    id_ = "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))
    secret = _base62(secrets.randbits(256), SECRET_LENGTH)
    text = f"{PREFIX}{id_}{secret}"
    return id_, text + _checksum(text)


def _base62(number: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), CHECKSUM_LENGTH)


def token_id(text: str) -> str | None:
    """Return the id in the text of a token; None if it is not one, or was mistyped."""
    match = TOKEN.fullmatch(text)
    if not match or text[-CHECKSUM_LENGTH:] != _checksum(text[:-CHECKSUM_LENGTH]):
        return None
    return match[1]


def hash_token(text: str) -> str:
    """Return the hash of the text of a token, as it is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


_COLUMNS = "id, name, scopes, permissions, created_at, expires_at, revoked_at, last_used_day"
FIND_TOKEN = f"SELECT sha256_hash, {_COLUMNS} FROM token WHERE id = :id"
LIST_TOKENS = f"SELECT {_COLUMNS} FROM token ORDER BY name"
FIND_BY_NAME = f"SELECT {_COLUMNS} FROM token WHERE name = :name"


def find_valid(database: Database, text: str) -> Token | None:
    """Return the token with this text if it is active, None otherwise.

    A malformed one needs no database. For all others there are one hash, one lookup and one
    comparison in constant time, whatever the reason for which they are refused.
    """
    id_ = token_id(text)
    if id_ is None:
        return None
    row = database.reader().execute(FIND_TOKEN, {"id": id_}).fetchone()
    stored = NO_HASH if row is None else row["sha256_hash"]
    is_same = hmac.compare_digest(stored, hash_token(text))
    if row is None or not is_same:
        return None
    token = _token(row)
    return token if token.status(now()) == "active" else None


def _token(row: sqlite3.Row) -> Token:
    values = {key: row[key] for key in Token._fields}
    return Token(**{**values, **{key: json.loads(row[key]) for key in ("scopes", "permissions")}})


def has_tokens(database: Database) -> bool:
    """Return whether a token was ever created."""
    return database.reader().execute("SELECT 1 FROM token LIMIT 1").fetchone() is not None


def list_tokens(connection: sqlite3.Connection) -> list[Token]:
    """Return all tokens by name, with those that are expired or revoked."""
    return [_token(row) for row in connection.execute(LIST_TOKENS)]


def get_token(database: Database, name: str) -> Token:
    """Return the token with this name; raise MissingError if there is none."""
    with database.read() as connection:
        row = connection.execute(FIND_BY_NAME, {"name": name}).fetchone()
    if row is None:
        raise MissingError(f"There is no token {quoted(name)}.")
    return _token(row)


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
    entry = record_values(actor, "create token", after=describe_token(token))
    try:
        database.write([(ADD_ROW, values), entry])
    except sqlite3.IntegrityError as error:
        old = get_token(database, name)
        raise ChangeError(
            f"There is a token {quoted(name)} already, and it is {old.status(now())}; "
            "a name is used once."
        ) from error
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


# Both change a token only as it was read: another command may have rotated or revoked it since.
_UNCHANGED = "id = :old_id AND revoked_at IS NULL"
RECORD_TOKEN = f"{RECORD} NULL, NULL, NULL, :before, :after FROM token WHERE {_UNCHANGED}"
REVOKE = f"UPDATE token SET revoked_at = :at WHERE {_UNCHANGED}"
ROTATE = f"""
UPDATE token
SET id = :id, sha256_hash = :sha256_hash, created_at = :created_at, expires_at = :expires_at,
    last_used_day = NULL
WHERE {_UNCHANGED}
"""


def revoke_token(database: Database, actor: Actor, name: str) -> bool:
    """Revoke a token; return False if it was revoked before."""
    for _ in range(MAX_ATTEMPTS):
        token = get_token(database, name)
        if token.revoked_at is not None:
            return False
        values = {"old_id": token.id, "before": json_text(describe_token(token)), "after": None}
        entry = record(RECORD_TOKEN, actor, "revoke token", **values)
        _, count = database.write([entry, (REVOKE, {"old_id": token.id, "at": now()})])
        # If it was rotated meanwhile, the new secret is revoked.
        if count:
            return True
    raise _conflict(name)


def rotate_token(
    database: Database, actor: Actor, name: str, lifetime: timedelta | None
) -> tuple[Token, str]:
    """Give a token another text; the old one is refused from now on."""
    old = get_token(database, name)
    if old.revoked_at is not None:
        raise ChangeError(f"The token {quoted(name)} is revoked; create another one.")
    id_, text = generate_token()
    created, expires = _period(lifetime)
    token = old._replace(id=id_, created_at=created, expires_at=expires, last_used_day=None)
    states = {"before": json_text(describe_token(old)), "after": json_text(describe_token(token))}
    entry = record(RECORD_TOKEN, actor, "rotate token", old_id=old.id, **states)
    period = {"created_at": created, "expires_at": expires}
    values = {"id": id_, "sha256_hash": hash_token(text), "old_id": old.id, **period}
    _, count = database.write([entry, (ROTATE, values)])
    if not count:
        raise _conflict(name)
    return token, text


def _conflict(name: str) -> ConflictError:
    return ConflictError(f"The token {quoted(name)} was changed at the same time; try again.")


SET_LAST_USED = "UPDATE token SET last_used_day = :day WHERE id = :id AND last_used_day IS NOT :day"


def note_use(database: Database, token: Token) -> None:
    """Record that the token is used today; this writes once a day, and not on the I/O thread."""
    day = now()[:10]
    if token.last_used_day == day:
        return
    if database.deadline.on_io_thread:
        raise WouldBlock
    database.write([(SET_LAST_USED, {"id": token.id, "day": day})])
