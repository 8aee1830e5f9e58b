"""Verifies the signature, issuer, audience and times of an id token with PyJWT.

PyJWT and cryptography belong to the optional oidc extra. Only a catalog with a trust imports this
module.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from ..domain.documents import Json
from ..domain.messages import quoted
from ..domain.timestamps import format_timestamp
from ..domain.trusts import IdToken, IdTokenError

# The accepted algorithms, with the key type of each.
KEY_TYPES = {"RS256": "RSA", "ES256": "EC"}
# The parameters of a public key. Other parameters, such as private ones, are ignored.
PARAMETERS = ("kty", "n", "e", "crv", "x", "y")
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
LEEWAY = 60  # seconds
# The last second that a timestamp can express.
LATEST = 253_402_300_799
REQUIRED_CLAIMS = ["aud", "exp", "iss", "sub"]


def verify(token: IdToken, keys: Sequence[Json], issuer: str, audience: str) -> str:
    """Return when the id token expires; raise IdTokenError if the token is not valid."""
    algorithm = token.header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in KEY_TYPES:
        accepted = " or ".join(KEY_TYPES)
        raise IdTokenError(
            f"The id token is signed with {quoted(algorithm)}; it must be signed with {accepted}."
        )
    key_id = token.header.get("kid")
    for key in _load_keys(keys, key_id, algorithm):
        try:
            claims = jwt.decode(
                token.text,
                key,
                algorithms=[algorithm],
                audience=audience,
                issuer=issuer,
                leeway=LEEWAY,
                options={"require": REQUIRED_CLAIMS},
            )
            return _format_time(min(int(claims["exp"]) + LEEWAY, LATEST))
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError):
            # Several keys may have the same id.
            continue
        except (jwt.PyJWTError, ArithmeticError, ValueError, TypeError) as error:
            raise IdTokenError(_describe(error, token, audience)) from error
    raise IdTokenError(
        f"The signature of the id token does not match the key {quoted(key_id)} of {issuer}."
    )


def _load_keys(keys: Sequence[Json], key_id: object, algorithm: str) -> Iterator[jwt.PyJWK]:
    """Yield the usable keys with this id for the algorithm; raise IdTokenError if one is weak."""
    for key in keys:
        is_usable = key.get("use", "sig") == "sig" and key.get("alg", algorithm) == algorithm
        if key.get("kid") != key_id or key.get("kty") != KEY_TYPES[algorithm] or not is_usable:
            continue
        try:
            public = {name: key[name] for name in PARAMETERS if name in key}
            loaded = jwt.PyJWK(public, algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if isinstance(loaded.key, RSAPublicKey):
            bits = loaded.key.key_size
            if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
                raise IdTokenError(
                    f"The key {quoted(key_id)} of the issuer has {bits} bits; it must have "
                    f"{MIN_RSA_BITS} to {MAX_RSA_BITS}."
                )
        yield loaded


def _format_time(seconds: Any) -> str:
    """Format a time claim from an id token; quote the value if it is not a valid time."""
    try:
        return format_timestamp(datetime.fromtimestamp(int(seconds), UTC))
    except (ArithmeticError, ValueError, OSError):
        return quoted(seconds)


def _describe(error: Exception, token: IdToken, audience: str) -> str:
    """Return the message for an id token whose verification failed with this error."""
    claims = token.claims
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"The id token has no {error.claim} claim."
    if isinstance(error, jwt.ExpiredSignatureError):
        return f"The id token expired at {_format_time(claims['exp'])}."
    if isinstance(error, jwt.ImmatureSignatureError):
        times = [claims.get(key) for key in ("nbf", "iat")]
        begin = max(each for each in (*times, 0) if isinstance(each, int | float))
        return f"The id token is not valid before {_format_time(begin)}."
    if isinstance(error, jwt.InvalidAudienceError):
        received = quoted(claims.get("aud"))
        return f"The id token is for the audience {received}, not {quoted(audience)}."
    return f"The id token is not valid: {str(error).rstrip('.')}."
