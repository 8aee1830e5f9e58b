"""Trusts: the issuers of id tokens that the catalog trusts, and the jobs that may use them."""

import json
import sqlite3

from ...domain.documents import Json
from ...domain.permissions import Access
from ...domain.trusts import Trust
from .lookup import Read

LIST_TRUSTS = "SELECT * FROM trust WHERE removed_at IS NULL ORDER BY name"


def list_trusts(read: Read) -> list[Trust]:
    """Return all trusts, sorted by name."""
    return [_trust(row) for row in read(LIST_TRUSTS, {})]


def find_by_issuer(read: Read, issuer: object) -> list[Trust]:
    """Return the trusts for an issuer, sorted by name."""
    return [each for each in list_trusts(read) if each.issuer == issuer]


def find_trust(read: Read, name: str) -> Trust | None:
    """Return the trust with this name, or None."""
    return next((each for each in list_trusts(read) if each.name == name), None)


def _trust(row: sqlite3.Row) -> Trust:
    access = Access(*(json.loads(row[key]) for key in Access._fields))
    values = {key: row[key] for key in Trust._fields if key not in ("claims", "access")}
    return Trust(**values, claims=json.loads(row["claims"]), access=access)


def describe_trust(trust: Trust) -> Json:
    """Return a trust as the audit log and `trust list --json` show it."""
    return {
        "trust": trust.name,
        "issuer": trust.issuer,
        "claims": trust.claims,
        "scopes": trust.access.scopes,
        "widgets": trust.access.widgets,
        "permissions": trust.access.permissions,
        "minutes": trust.minutes,
        "hasKeys": trust.jwks is not None,
        "hasAuthority": trust.ca is not None,
    }
