"""Requests to an issuer of id tokens for its discovery document and its keys."""

import re
from urllib.parse import urljoin

from ..domain.documents import Json, parse_json
from ..domain.messages import quoted
from ..domain.trusts import MAX_JWKS_BYTES, IssuerError, is_issuer_url, parse_jwks
from .http_client import HttpClient, Response
from .http_connections import Origin, TransferError
from .tls import PemText

DISCOVERY_PATH = "/.well-known/openid-configuration"
FETCH_SECONDS = 5
MIN_AGE, MAX_AGE = 5 * 60, 24 * 60 * 60  # seconds
MAX_REDIRECTS = 3
REDIRECTS = (301, 302, 303, 307, 308)
AGE = re.compile(r"max-age=([0-9]{1,9})\b")


def fetch_keys(issuer: str, ca: str | None) -> tuple[list[Json], int]:
    """Return an issuer's keys, and the number of seconds that they may be cached."""
    client = HttpClient(
        issuer,
        PemText(ca) if ca else None,
        seconds=FETCH_SECONDS,
        max_bytes=MAX_JWKS_BYTES,
        protects_local_network=True,
    )
    try:
        url = issuer.rstrip("/") + DISCOVERY_PATH
        try:
            described = parse_json(_get(client, url).body)
        except (ValueError, RecursionError):
            described = None
        if not isinstance(described, dict) or described.get("issuer") != issuer:
            raise IssuerError(f"{url} is not the discovery document of {issuer}.")
        url = str(described.get("jwks_uri"))
        if not is_issuer_url(url):
            raise IssuerError(
                f"The issuer {issuer} publishes its keys at {quoted(url)}, which is not an "
                "https URL."
            )
        response = _get(client, url)
        try:
            return parse_jwks(response.body), _cache_seconds(response)
        except ValueError:
            raise IssuerError(f"{url} is not a JSON Web Key Set.") from None
    finally:
        client.close()


def _get(client: HttpClient, url: str) -> Response:
    """Return the response for a URL; follow redirects within the same origin."""
    for _ in range(MAX_REDIRECTS):
        try:
            response = client.request("GET", url)
            if response.status == 200:
                return response
            target = urljoin(url, response.headers.get("Location", ""))
            is_redirect = response.status in REDIRECTS
            if is_redirect and Origin.of(target) != Origin.of(url):
                raise IssuerError(f"{url} redirects to another origin, {quoted(target)}.")
        except TransferError as error:
            raise IssuerError(f"{url} {error}.") from error
        except ValueError:
            is_redirect = False
        if not is_redirect:
            raise IssuerError(f"{url} responded {response.status}.")
        url = target
    raise IssuerError(f"{url} redirects more than {MAX_REDIRECTS} times.")


def _cache_seconds(response: Response) -> int:
    """Return how many seconds a response may be cached: its max-age, within our limits."""
    match = AGE.search(response.headers.get("Cache-Control", ""))
    return min(max(int(match[1]) if match else 0, MIN_AGE), MAX_AGE)
