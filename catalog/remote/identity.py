"""A CI job's identity: its id token, and the short-lived token that a service issues for it."""

import hashlib
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ..domain.documents import Json, parse_json
from ..domain.timestamps import format_timestamp
from ..system.atomic_files import locked_directory
from ..system.http_client import HttpClient
from ..system.http_connections import TransferError
from .token_file import TokenError, read_logins, token_file, write_logins

ID_VARIABLE = "CATALOG_ID_TOKEN"
# GitHub, Gitea and Forgejo set these variables for a job that may request id tokens.
URL_VARIABLE = "ACTIONS_ID_TOKEN_REQUEST_URL"
BEARER_VARIABLE = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
REQUEST_SECONDS = 30
# A stored token that expires sooner than this is not used again.
MARGIN = timedelta(seconds=30)


class Identity(NamedTuple):
    """The id token of a job."""

    id_token: str
    # True if several commands in the job may use the id token, so the short-lived token is stored.
    is_shared: bool


def find_identity(audience: str, ca: str | None) -> Identity | None:
    """Return the identity of this job for a service; None if the job has no id token."""
    if text := os.environ.get(ID_VARIABLE, "").strip():
        return Identity(text, is_shared=True)
    url, bearer = os.environ.get(URL_VARIABLE), os.environ.get(BEARER_VARIABLE)
    if not url or not bearer:
        return None
    return Identity(_request_id_token(url, bearer, audience, ca), is_shared=False)


def _request_id_token(url: str, bearer: str, audience: str, ca: str | None) -> str:
    """Return an id token for the audience; raise TokenError if the CI system issues none."""
    target = f"{url}{'&' if '?' in url else '?'}audience={quote(audience, safe='')}"
    problem = f"Cannot request an id token for this job: {url.partition('?')[0]}"
    with closing(HttpClient(url, ca, seconds=REQUEST_SECONDS)) as client:
        try:
            response = client.request("GET", target, {"Authorization": f"Bearer {bearer}"})
        except TransferError as error:
            raise TokenError(f"{problem} {error}.") from error
    if response.status != 200:
        raise TokenError(f"{problem} responded {response.status}.")
    try:
        document = parse_json(response.body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("value"), str):
        raise TokenError(f"{problem} sent no id token.")
    return str(document["value"])


def short_token_file() -> Path:
    """Return the path of the file that stores short-lived tokens."""
    return token_file().with_name("short-tokens.json")


def exchange_once(
    url: str, identity: Identity, exchange: Callable[[str], Json], warn: Callable[[str], None]
) -> str:
    """Return the stored short-lived token for an id token, or exchange the id token for a new one.

    The service accepts an id token only once, but several commands in a job may share the token.
    """
    if not identity.is_shared:
        return str(exchange(identity.id_token)["token"])
    key = f"{url} {hashlib.sha256(identity.id_token.encode()).hexdigest()}"
    path, issued = short_token_file(), None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # If another command in the job is exchanging the id token, wait for its result.
        with locked_directory(path.parent):
            usable = format_timestamp(datetime.now(UTC) + MARGIN)
            tokens = {
                name: token
                for name, token in read_logins(path).items()
                if token.get("expiresAt", "") > usable
            }
            if key not in tokens:
                tokens[key] = issued = exchange(identity.id_token)
                write_logins(path, tokens)
            return tokens[key]["token"]
    except OSError as error:
        warn(f"Cannot store the token of this job in {path}: {error.strerror or error}.")
        return str((issued or exchange(identity.id_token))["token"])
