"""Text: folding for search, quoting and shortening for messages."""

import json
import os
import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

MAX_QUOTED_LENGTH = 80  # characters

_SEPARATORS = str.maketrans("", "", "-_. ")
_REPLACEMENT = re.compile(r"((?:.* )?Replaced by )([^/]+)/([^/]+)\.", re.DOTALL)

_encoder = json.JSONEncoder(ensure_ascii=False, default=str)


def fold(text: str) -> str:
    """Return the text in lower case and without marks, so that "meteo" finds "Météo"."""
    if text.isascii():
        return text.lower()
    # Normalizing sorts each run of marks in quadratic time, so remove them before as well as
    # after it: the decomposition itself adds only a few marks to each character.
    decomposed = unicodedata.normalize("NFKD", _without_marks(text))
    return _without_marks(decomposed).casefold()


def _without_marks(text: str) -> str:
    # U+0300 is the first mark.
    return "".join([c for c in text if c < "\u0300" or not unicodedata.category(c).startswith("M")])


def quoted(value: object) -> str:
    """Return the value as JSON on one line, cut to MAX_QUOTED_LENGTH, for use in a message."""
    # The value may be many megabytes, so encode only as much of it as is used.
    text = ""
    for part in _encoder.iterencode(value[:MAX_QUOTED_LENGTH] if isinstance(value, str) else value):
        text += part
        if len(text) >= MAX_QUOTED_LENGTH:
            break
    if isinstance(value, str):
        # Single quotes need no escape in a JSON error body.
        text = "'" + text[1:-1].replace('\\"', '"') + "'"
    text = escape_unprintable(text[:MAX_QUOTED_LENGTH])
    return text if len(text) < MAX_QUOTED_LENGTH else text[: MAX_QUOTED_LENGTH - 3] + "..."


def escape_unprintable(text: str) -> str:
    """Return the text with control characters, line ends and the like as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shorten(text: str, length: int) -> str:
    """Return the text, cut between words if it is longer than the length."""
    if len(text) <= length:
        return text
    cut = text[:length]
    words = cut.rsplit(None, 1) if " " in cut[length // 2 :] else []
    return (words[0] if words else cut) + "…"


def bundle_file_name(name: str, version: str) -> str:
    """Return the name of the file for the bundle of a version."""
    # Only characters that are not special to a shell, a file system or sha256sum.
    stem = f"{name[:80]}-{version[:80]}"
    return re.sub(r"[^A-Za-z0-9._+-]+|^[.-]", "_", stem) + ".js"


def without_separators(name: str) -> str:
    """Return the name as people remember it: folded, and without dots, dashes and the like."""
    return fold(name).translate(_SEPARATORS)


def is_mistakable(name: str, other: str) -> bool:
    """Return whether two names differ only by case, separators or one character."""
    short, long = without_separators(name), without_separators(other)
    if len(short) > len(long):
        short, long = long, short
    if name == other or len(long) - len(short) > 1:
        return False
    pairs = enumerate(zip(short, long, strict=False))
    same = next((place for place, (one, two) in pairs if one != two), len(short))
    rest = short[same + 1 :] if len(short) == len(long) else short[same:]
    # Most names of three letters are one character from another.
    return short == long or (len(short) > 3 and rest == long[same + 1 :])


def add_replacement(message: str, widget: object) -> str:
    """Return the warning with a last sentence that names the widget to use instead."""
    return f"{message} Replaced by {widget}.".lstrip()


def find_replacement(message: str) -> tuple[str, str, str] | None:
    """Return scope and name of what replaces a widget, after the text before them; else None."""
    match = _REPLACEMENT.fullmatch(message)
    return (match[1], match[2], match[3]) if match else None


class NotAllowedError(ValueError):
    """A value that is refused; the message says only what is allowed."""

    def about(self, name: str, value: object) -> str:
        """Return what the value of this name must be and what it is, without a full stop."""
        return f"{name} must be {self}, not {quoted(value)}"


def path_text(path: Path) -> str:
    """Return the path as text, with escapes for bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def error_reason(error: OSError | UnicodeError) -> str:
    """Return why a name or an address cannot be used."""
    # Python itself refuses some names of hosts, without an error number.
    return getattr(error, "strerror", None) or str(error)


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Return the count with its noun, such as 1 widget or 2 widgets."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"


def format_elapsed(time: str | None) -> str:
    """Return how long ago a timestamp was, in words."""
    if time is None:
        return "never"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{plural(int(seconds // length), unit)} ago"
    return "just now"
