"""The logins that `widget-catalog login` stores by URL: the token and CA file of each service."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ..domain.changes import ChangeError
from ..domain.token_text import token_id
from ..system.atomic_files import atomic_replace, locked_directory

VARIABLE = "CATALOG_TOKEN"


class TokenError(ChangeError):
    """No usable token was found; the message gives the reason."""


def token_file() -> Path:
    """Return the path of the file with the stored tokens."""
    configuration = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not configuration.is_absolute():
        try:
            configuration = Path.home() / ".config"
        except RuntimeError:
            raise TokenError(f"There is no home directory; set HOME or {VARIABLE}.") from None
    return configuration / "widget-catalog" / "tokens.json"


def find_token(url: str) -> str | None:
    """Return the token in the environment, or else the stored token; None if neither exists."""
    if text := os.environ.get(VARIABLE):
        return check_token(text, VARIABLE)
    stored = read_logins().get(url)
    return stored["token"] if stored else None


def missing_token(url: str) -> TokenError:
    """Return the error for a user without a token for a service."""
    login = f"widget-catalog login --server {url}"
    # A GitHub, Gitea or Forgejo job gets no variables for id tokens if it lacks the permission.
    in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
    hint = " This job is not allowed to request an id token: see id-token in its permissions."
    return TokenError(
        f"There is no token for {url}: run {login}, or set {VARIABLE}.{hint if in_actions else ''}"
    )


def stored_ca(url: str) -> str | None:
    """Return the --ca file that the login to the service stored, or None."""
    try:
        return read_logins().get(url, {}).get("ca")
    except TokenError:
        # A command that needs a token reports this error later.
        return None


def check_token(text: str, source: str) -> str:
    """Return the token without surrounding spaces; raise TokenError if it is mistyped."""
    # The message does not show the value, which may be most of a valid token.
    if token_id(token := text.strip()) is None:
        raise TokenError(f"{source} is not a token: it is incomplete or mistyped.")
    return token


def read_logins(path: Path | None = None) -> dict[str, dict[str, str]]:
    """Return the stored logins by URL; raise TokenError if the file is damaged or not private.

    Every login has a token.
    """
    path = path or token_file()
    try:
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise TokenError(f"Other users can read {path}; make it private: chmod 600 {path}")
            logins: dict[str, dict[str, str]] = json.load(file)
            if not all(token_id(login["token"]) for login in logins.values()):
                raise ValueError
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise TokenError(
            f"{path} is not a valid token file; remove it and log in again."
        ) from error
    return logins


def store_login(url: str, token: str | None, ca: str | None = None) -> None:
    """Store the token and CA file of a service; if the token is None, remove both."""
    path = token_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked_directory(path.parent):
        logins = read_logins()
        logins.pop(url, None)
        if token is not None:
            logins[url] = {"token": token, **({"ca": os.path.abspath(ca)} if ca else {})}
        write_logins(path, logins)


def write_logins(path: Path, logins: Mapping[str, Mapping[str, str]]) -> None:
    """Replace a token file with a new one that only its owner can read."""
    # If the file is a symbolic link, replace its target and keep the link.
    with atomic_replace(path.resolve()) as new:
        new.write_text(json.dumps(logins, indent=2) + "\n", encoding="utf-8")
