"""Text for a terminal: aligned columns in every writing system, and no control characters."""

import json
import shutil
import sys
import unicodedata
from collections.abc import Sequence

GAP = "  "
READABLE_WIDTH = 12  # columns
MIN_WIDTH = 4  # columns


def format_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, shrink_first: int
) -> list[str]:
    """Return a table as lines.

    A table that is too wide for the terminal is shortened: first the column at index
    shrink_first, down to READABLE_WIDTH, then always the widest column.
    """
    cells = [[replace_unprintable(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    if sys.stdout is not None and sys.stdout.isatty():
        available = shutil.get_terminal_size().columns - len(GAP) * (len(widths) - 1)
        _shrink(widths, available, shrink_first)
    return [GAP.join(map(fit_to_width, row, widths)).rstrip() for row in cells]


def _shrink(widths: list[int], available: int, shrink_first: int) -> None:
    while sum(widths) > available and max(widths) > MIN_WIDTH:
        is_readable = widths[shrink_first] > READABLE_WIDTH
        widths[shrink_first if is_readable else widths.index(max(widths))] -= 1


def replace_unprintable(text: str) -> str:
    """Replace each control character and direction mark in a string with a space."""
    return "".join(c if c.isprintable() else " " for c in text)


def format_json(value: object) -> str:
    """Return the value as indented JSON, with escapes for terminal control characters."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def display_width(text: str) -> int:
    """Return how many terminal columns a string takes up."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    # Combining marks, and Hangul vowels and final consonants, join the preceding character.
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit_to_width(text: str, columns: int) -> str:
    """Return the string padded with spaces, or cut with an ellipsis, to this many columns."""
    used = display_width(text)
    if used > columns:
        text, used = _truncate(text, columns - 1)
        text, used = text + "…", used + 1
    return text + " " * (columns - used)


def _truncate(text: str, columns: int) -> tuple[str, int]:
    used = 0
    for position, character in enumerate(text):
        if used + _character_width(character) > columns:
            return text[:position], used
        used += _character_width(character)
    return text, used
