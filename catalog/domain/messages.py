"""Formats values in messages: quoted, shortened, or counted."""

import json

MAX_QUOTED_LENGTH = 80  # characters

_encoder = json.JSONEncoder(ensure_ascii=False, default=str)


def quoted(value: object) -> str:
    """Return the value as JSON on one line, cut to MAX_QUOTED_LENGTH, for use in a message."""
    # The value may be many megabytes long, so only the part that is used is encoded.
    text = ""
    for part in _encoder.iterencode(value[:MAX_QUOTED_LENGTH] if isinstance(value, str) else value):
        text += part
        if len(text) >= MAX_QUOTED_LENGTH:
            break
    if isinstance(value, str):
        # Single quotes do not need escaping in a JSON error body.
        text = "'" + text[1:-1].replace('\\"', '"') + "'"
    text = escape_unprintable(text[:MAX_QUOTED_LENGTH])
    return text if len(text) < MAX_QUOTED_LENGTH else text[: MAX_QUOTED_LENGTH - 3] + "..."


def escape_unprintable(text: str) -> str:
    """Return the text with escapes for control characters, line ends and similar characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shorten(text: str, length: int) -> str:
    """Return the text, cut between words if it is longer than the given length."""
    if len(text) <= length:
        return text
    cut = text[:length]
    words = cut.rsplit(None, 1) if " " in cut[length // 2 :] else []
    return (words[0] if words else cut) + "…"


class NotAllowedError(ValueError):
    """A value is not allowed; the message only describes the allowed values."""

    def about(self, name: str, value: object) -> str:
        """Return a sentence about the allowed values and the actual one, without its full stop."""
        return f"{name} must be {self}, not {quoted(value)}"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Return the count with its noun, such as 1 widget or 2 widgets."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"
