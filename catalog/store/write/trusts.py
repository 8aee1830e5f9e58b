"""Adds and removes trusts, and issues their short-lived tokens."""

import json
from datetime import UTC, datetime, timedelta

from ...domain.changes import ChangeError, MissingError
from ...domain.messages import quoted
from ...domain.timestamps import format_timestamp, now
from ...domain.token_text import generate_token, hash_token
from ...domain.trusts import IdToken, IdTokenError, Trust
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from ..read.trusts import describe_trust, find_trust

ADD_TRUST = """
INSERT INTO trust (id, name, issuer, claims, permissions, scopes, widgets, minutes, jwks, ca,
    created_at)
VALUES (:id, :name, :issuer, :claims, :permissions, :scopes, :widgets, :minutes, :jwks, :ca,
    :created_at)
"""


def add_trust(database: Database, actor: Actor, trust: Trust) -> None:
    """Add a trust; raise ChangeError if its name is already in use."""
    values = trust._asdict() | {"claims": _json_text(trust.claims)}
    values |= {key: _json_text(each) for key, each in values.pop("access")._asdict().items()}

    def add(transaction: Transaction) -> None:
        if find_trust(transaction.read, trust.name):
            raise ChangeError(
                f"A trust named {quoted(trust.name)} already exists; remove it first."
            )
        transaction.execute(ADD_TRUST, values)
        transaction.record("add trust", after=describe_trust(trust))

    database.transact(add, actor)


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# Removing a trust also invalidates its short-lived tokens.
REMOVE_TRUST = "UPDATE trust SET removed_at = :at WHERE name = :name AND removed_at IS NULL"


def remove_trust(database: Database, actor: Actor, name: str) -> None:
    """Remove a trust and its short-lived tokens; raise MissingError if it does not exist."""

    def remove(transaction: Transaction) -> None:
        trust = find_trust(transaction.read, name)
        if trust is None:
            raise MissingError(f"There is no trust {quoted(name)}.")
        transaction.execute(REMOVE_TRUST, {"name": name, "at": now()})
        transaction.record("remove trust", before=describe_trust(trust))

    database.transact(remove, actor)


FIND_USED = "SELECT 1 FROM short_token WHERE id_token_hash = :hash"
REMOVE_EXPIRED = "DELETE FROM short_token WHERE expires_at <= :now AND id_token_end <= :now"
ADD_SHORT = """
INSERT INTO short_token (id, sha256_hash, trust_id, subject, claims, created_at, expires_at,
    id_token_hash, id_token_end)
VALUES (:id, :sha256_hash, :trust_id, :subject, :claims, :created_at, :expires_at,
    :id_token_hash, :id_token_end)
"""


def issue_short_token(
    database: Database, trust: Trust, id_token: IdToken, id_token_end: str
) -> tuple[str, str]:
    """Return a new short-lived token and its expiry; raise IdTokenError if the id token was used.

    From id_token_end on, the service rejects the id token as expired.
    """
    id_, text = generate_token()
    begin = datetime.now(UTC)
    end = format_timestamp(begin + timedelta(minutes=trust.minutes))
    values = {
        "id": id_,
        "sha256_hash": hash_token(text),
        "trust_id": trust.id,
        "subject": id_token.claims["sub"],
        "claims": _json_text(id_token.claims),
        "created_at": format_timestamp(begin),
        "expires_at": end,
        "id_token_hash": id_token.signed_hash,
        "id_token_end": id_token_end,
    }

    def issue(transaction: Transaction) -> None:
        if transaction.read(FIND_USED, {"hash": id_token.signed_hash}):
            raise IdTokenError("The id token was already used; it is accepted only once.")
        # These writes change the content revision: if two nodes in a cluster get the same id token,
        # the second node reads again and refuses it.
        transaction.execute(REMOVE_EXPIRED, {"now": values["created_at"]})
        transaction.execute(ADD_SHORT, values)

    database.transact(issue)
    return text, end
