"""Text for a terminal: columns line up in every script, and no text can steer the cursor."""

import json
import shutil
import sys
import unicodedata
from collections.abc import Sequence

GAP = "  "
READABLE = 12
NARROWEST = 4


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, first: int) -> list[str]:
    """The rows as lines; at a terminal the column numbered first, then the widest, give way."""
    cells = [[plain(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    if sys.stdout is not None and sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - len(GAP) * (len(widths) - 1)
        widths[first] -= min(max(sum(widths) - room, 0), max(widths[first] - READABLE, 0))
        while sum(widths) > room and max(widths) > NARROWEST:
            widest = widths.index(max(widths))
            # Down to the next widest at once, or as far as is needed.
            others = max(width for column, width in enumerate(widths) if column != widest)
            spare = sum(widths) - room
            widths[widest] -= max(1, min(spare, widths[widest] - others))
    return [GAP.join(map(fitted, row, widths)).rstrip() for row in cells]


def plain(text: str) -> str:
    """The text without what a terminal obeys: line ends, escapes, changes of direction."""
    return "".join(c if c.isprintable() else " " for c in text)


def json_text(value: object) -> str:
    """The value as JSON for people; what a terminal obeys is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0  # joins the character before it, as vowels and ends of Hangul syllables do
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """The text in just so many columns, cut with an ellipsis where it is longer."""
    taken = width(text)
    if taken > columns:
        text, taken = _beginning(text, columns - 1)
        text, taken = text + "…", taken + 1
    return text + " " * (columns - taken)


def _beginning(text: str, columns: int) -> tuple[str, int]:
    taken = 0
    for position, character in enumerate(text):
        if taken + _columns(character) > columns:
            return text[:position], taken
        taken += _columns(character)
    return text, taken
