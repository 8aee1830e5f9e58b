"""Durations on the command line, such as 90d or 12h."""

import re
from datetime import timedelta

from ..text import NotAllowedError

HOURS = {"h": 1, "d": 24}
MAX_HOURS = 100 * 366 * 24
NEVER = "never"


def parse_age(text: str) -> str:
    """Return the text if it is a number of days or hours; raise NotAllowedError."""
    match = re.fullmatch("([1-9][0-9]{0,6})([hd])", text)
    if not (match and int(match[1]) * HOURS[match[2]] <= MAX_HOURS):
        raise NotAllowedError("a number of days or hours, such as 90d or 12h")
    return text


def parse_lifetime(text: str) -> str:
    """Return the text if it is a lifetime; raise NotAllowedError."""
    try:
        return text if text == NEVER else parse_age(text)
    except NotAllowedError as error:
        raise NotAllowedError(f"{error}, or {NEVER}") from None


def lifetime(text: str) -> timedelta | None:
    """Return how long a token is valid; None if forever."""
    return None if text == NEVER else timedelta(hours=int(text[:-1]) * HOURS[text[-1]])


def describe_expiry(expires_at: str | None) -> str:
    """Return until when a token is valid, as words."""
    return f"valid until {expires_at or 'it is revoked'}"
