"""POST /api/session: exchanges the id token of a trusted job for a short-lived token."""

from flask import Response, current_app, jsonify
from werkzeug.exceptions import Forbidden, ServiceUnavailable

from ...domain.messages import quoted
from ...domain.trusts import (
    MAX_SESSION_BYTES,
    IdToken,
    IdTokenError,
    IssuerError,
    Trust,
    match_trust,
    parse_id_token,
    parse_jwks,
)
from ...store.connection.sqlite import WouldBlock
from ...store.read.trusts import find_by_issuer
from ...store.write.trusts import issue_short_token
from .authentication import count_failure
from .blueprint import database, internal
from .bodies import check_body_accepted, check_object, read_limited


@internal.post("/session")
def create_session() -> Response:
    """Respond with a short-lived token, or with the reason why the id token was rejected."""
    # Use a thread that may wait: fetching the issuer's keys can take a while.
    if not database().deadline.may_wait:
        raise WouldBlock
    check_body_accepted(MAX_SESSION_BYTES, "it")
    body = check_object(read_limited(MAX_SESSION_BYTES) or b"{}", "The body", {"idToken"})
    try:
        id_token = parse_id_token(body.get("idToken"))
        trust, end = find_trust(id_token)
        token, expires_at = issue_short_token(database(), trust, id_token, end)
    except IdTokenError as error:
        count_failure()
        raise Forbidden(str(error)) from None
    except IssuerError as error:
        current_app.logger.warning("An id token cannot be verified: %s", error)
        raise ServiceUnavailable(str(error), retry_after=10) from None
    return jsonify(token=token, expiresAt=expires_at)


def find_trust(id_token: IdToken) -> tuple[Trust, str]:
    """Return the trust that a valid id token matches, and the id token's expiry."""
    trusts = find_by_issuer(database().fetch, id_token.issuer)
    if not trusts:
        raise IdTokenError(
            f"There is no trust for the issuer {quoted(id_token.issuer)} of the id token."
        )
    audience: str = current_app.config["PUBLIC_URL"]
    if not audience:
        raise IdTokenError(
            "This service does not accept id tokens: CATALOG_PUBLIC_URL, their audience, is unset."
        )
    try:
        # This import is local: only a catalog with a trust needs the libraries in the oidc extra.
        from ...system.id_tokens import verify
    except ImportError:
        raise IssuerError(
            "This service cannot verify id tokens: install widget-catalog[oidc]."
        ) from None
    # Trusts with the same issuer may have different keys.
    sources: dict[tuple[str | None, str | None], list[Trust]] = {}
    for trust in trusts:
        sources.setdefault((trust.jwks, trust.ca), []).append(trust)
    refusals = []
    for (jwks, ca), members in sources.items():
        issuer = members[0].issuer
        if jwks is not None:
            keys = parse_jwks(jwks.encode())
        else:
            keys = current_app.extensions["issuer_keys"].find(
                issuer, ca, id_token.header.get("kid")
            )
        try:
            end = verify(id_token, keys, issuer, audience)
            return match_trust(members, id_token.claims), end
        except IdTokenError as error:
            refusals.append(error)
    raise refusals[-1]
