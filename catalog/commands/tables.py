"""Tables for a terminal: columns line up in every script, and no text can move the cursor."""

import shutil
import sys
import unicodedata
from collections.abc import Sequence

GAP = "  "


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, shrink: int) -> list[str]:
    """The rows as lines; at a terminal the column numbered shrink gives way so that all fit."""
    cells = [[plain(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    if sys.stdout.isatty():
        spare = shutil.get_terminal_size().columns - sum(widths) - len(GAP) * (len(widths) - 1)
        widths[shrink] = max(widths[shrink] + min(spare, 0), len(headings[shrink]), 8)
    return [GAP.join(map(fitted, row, widths)).rstrip() for row in cells]


def plain(text: str) -> str:
    """The text without what a terminal obeys: line ends, escapes, changes of direction."""
    return "".join(c if c.isprintable() else " " for c in text)


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """The text in just so many columns, cut with an ellipsis where it is longer."""
    if width(text) > columns:
        while width(text) > columns - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (columns - width(text))
