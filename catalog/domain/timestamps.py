"""Formats times as sortable strings or in words, and parses them."""

import re
from datetime import UTC, datetime, timedelta

from .messages import plural

# A calendar date, alone or with a time and an offset. fromisoformat() checks the numbers.
DATE_OR_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,](?P<fraction>[0-9]{1,9}))?)?"
    r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?)?"
)
MILLISECOND = timedelta(milliseconds=1)


def format_timestamp(moment: datetime) -> str:
    """Return the UTC time in the format of JavaScript's toISOString."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now() -> str:
    """Return the current time as a stored timestamp."""
    return format_timestamp(datetime.now(UTC))


def parse_time(text: str) -> str:
    """Return a date or time as a stored timestamp; raise ValueError if it is invalid.

    A date stands for its first moment in UTC, and a time without an offset is in UTC. Digits beyond
    milliseconds are rounded up, so that versions from the same millisecond count as earlier.
    """
    try:
        match = DATE_OR_TIME.fullmatch(text)
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        if (match["fraction"] or "")[3:].strip("0"):
            moment += MILLISECOND
    except (ValueError, OverflowError):
        raise ValueError(
            "an ISO 8601 date or time such as 2026-11-30 or 2026-11-30T12:00:00Z"
        ) from None
    return format_timestamp(moment)


def format_elapsed(time: str | None) -> str:
    """Return how long ago a timestamp was, in words."""
    if time is None:
        return "never"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{plural(int(seconds // length), unit)} ago"
    return "just now"
