"""Trust in issuers of id tokens: which CI jobs get a token for the catalog.

A CI system signs an id token for a job. The claims in the token describe the job: its repository,
its branch, its environment. A trust names the issuer and the values that some claims must have.
"""

import binascii
import hashlib
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from .documents import Json
from .messages import NotAllowedError, quoted
from .permissions import Access
from .validators import check_http_url, is_loopback

# The maximum size of the body of POST /api/session, which contains one id token.
MAX_SESSION_BYTES = 16 * 1024
MAX_JWKS_BYTES = 512 * 1024
MAX_KEYS = 100
# Only these claims may have a value with a final asterisk in a trust: names of branches, tags and
# environments stay within a repository, but acme* would match the repository acme-evil/x.
PATTERN_CLAIMS = ("ref", "ref_path", "environment")
# The service itself checks these claims in every id token.
CHECKED_CLAIMS = ("aud", "exp", "iat", "iss", "jti", "nbf")
# A trust without any of these claims applies to every project of its issuer.
PROJECT_CLAIMS = {
    "sub", "repository", "repository_id", "repository_owner", "repository_owner_id", "workflow_ref",
    "job_workflow_ref", "project_id", "project_path", "namespace_id", "namespace_path",
}  # fmt: skip
MAX_CLAIM_LENGTH = 1000
BASE64URL = re.compile("[A-Za-z0-9_-]+")


class IdTokenError(Exception):
    """An id token was rejected; the message gives the reason in one sentence."""


class IssuerError(Exception):
    """An issuer's keys are not available; the message gives the reason in one sentence."""


class Trust(NamedTuple):
    """Gives a short-lived token to each job whose id token has this issuer and these claims."""

    id: str
    name: str
    issuer: str
    claims: Mapping[str, str]
    access: Access
    # The lifetime of a short-lived token.
    minutes: int
    # The keys of the issuer as a JSON Web Key Set; if None, the service fetches the keys.
    jwks: str | None
    # Certificates in PEM form that the service trusts when it fetches the keys.
    ca: str | None
    created_at: str

    @property
    def is_for_every_project(self) -> bool:
        """True if no claim limits the trust to certain projects of the issuer."""
        return not self.claims.keys() & PROJECT_CLAIMS

    def find_differences(self, claims: Json) -> list[str]:
        """Return the claims of an id token that differ from the trust, with both values."""
        return [
            f"{key} is {quoted(claims[key])}, not {quoted(wanted)}"
            if key in claims
            else f"it has no {key}, which must be {quoted(wanted)}"
            for key, wanted in self.claims.items()
            if not _has_value(claims.get(key), key, wanted)
        ]


def _has_value(value: object, key: str, wanted: str) -> bool:
    """Return whether the claim has the value that a trust requires; lists and objects never do."""
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, int):
        value = str(value)
    if not isinstance(value, str):
        return False
    if key in PATTERN_CLAIMS and wanted.endswith("*"):
        return value.startswith(wanted[:-1])
    return value == wanted


def parse_claim(text: str) -> tuple[str, str]:
    """Return the claim and the value of KEY=VALUE; raise NotAllowedError if it is invalid."""
    key, equals, value = text.partition("=")
    if not (key and equals and value and len(text) <= MAX_CLAIM_LENGTH and text.isprintable()):
        raise NotAllowedError("KEY=VALUE")
    if key in CHECKED_CLAIMS:
        raise NotAllowedError(
            f"a configurable claim: the service itself checks {', '.join(CHECKED_CLAIMS)}"
        )
    if value.endswith("*") and key not in PATTERN_CLAIMS:
        claims = ", ".join(PATTERN_CLAIMS)
        raise NotAllowedError(f"a value without * at its end: only {claims} may end in *")
    return key, value


def check_issuer(text: str) -> str:
    """Return the URL of an issuer unchanged; raise NotAllowedError if it is invalid."""
    check_http_url(text)
    if not is_issuer_url(text) or set("?#") & set(text):
        raise NotAllowedError(
            "an https URL without a user, a query or a fragment; "
            "http is allowed only for loopback addresses"
        )
    return text


def is_issuer_url(url: str) -> bool:
    """Return whether keys may be fetched from a URL: only over https or from this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = parts.hostname or ""
    return "@" not in parts.netloc and (
        (parts.scheme == "https" and bool(host)) or (parts.scheme == "http" and is_loopback(host))
    )


class IdToken(NamedTuple):
    """The content of an id token whose signature has not been verified yet."""

    text: str
    header: Json
    claims: Json

    @property
    def issuer(self) -> object:
        return self.claims.get("iss")

    @property
    def signed_hash(self) -> str:
        """The SHA-256 of the token without its signature: an altered signature can be valid."""
        return hashlib.sha256(self.text.rpartition(".")[0].encode()).hexdigest()


def parse_id_token(text: object) -> IdToken:
    """Return the content of an id token; raise IdTokenError if it is not a JSON Web Token."""
    try:
        if not isinstance(text, str):
            raise ValueError
        header, claims, _ = map(_decode_segment, text.split("."))
        values = json.loads(header), json.loads(claims)
        # The claims are stored as JSON in UTF-8, which has neither NaN nor lone surrogates.
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise IdTokenError("The id token is not a signed JSON Web Token.") from None
    if not all(isinstance(value, dict) for value in values):
        raise IdTokenError("The id token is not a signed JSON Web Token.")
    return IdToken(text, *values)


def _decode_segment(segment: str) -> bytes:
    """Return the bytes of a token segment; raise ValueError unless it is canonical base64url.

    Without this check, several spellings of the last character would give the same signature.
    """
    if not BASE64URL.fullmatch(segment):
        raise ValueError
    try:
        content = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except binascii.Error:
        raise ValueError from None
    if urlsafe_b64encode(content).rstrip(b"=").decode() != segment:
        raise ValueError
    return content


def parse_jwks(content: bytes) -> list[Json]:
    """Return the keys of a JSON Web Key Set; raise ValueError if it is not one."""
    if len(content) > MAX_JWKS_BYTES:
        raise ValueError
    try:
        keys = json.loads(content)["keys"]
    except (KeyError, TypeError, RecursionError):
        raise ValueError from None
    if not isinstance(keys, list) or not 0 < len(keys) <= MAX_KEYS:
        raise ValueError
    return [key for key in keys if isinstance(key, dict)]


def match_trust(trusts: Sequence[Trust], claims: Json) -> Trust:
    """Return the trust that the claims match; raise IdTokenError if they match none.

    If several trusts match, prefer the trust with the most claims, then the first by name.
    """
    differences = {trust.id: trust.find_differences(claims) for trust in trusts}
    nearest = min(trusts, key=lambda each: (len(differences[each.id]), -len(each.claims)))
    if found := differences[nearest.id]:
        raise IdTokenError(
            f"The id token does not match the trust {nearest.name}: {'; '.join(found)}."
        )
    return nearest
