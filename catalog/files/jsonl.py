"""Catalog files: JSON Lines, one widget document per line."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO

from catalog.documents import (
    MAX_PROBLEMS,
    Document,
    DocumentError,
    check_document,
    parse_json,
)
from catalog.text import quoted

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Twice what flask mirror accepts for a widget.
MAX_LINE_BYTES = 64 * 1024 * 1024


class CatalogFileError(ValueError):
    """The files cannot be imported; problems has one sentence per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_catalog(files: Iterable[BinaryIO]) -> list[Document]:
    """Return all documents of the files; raise CatalogFileError if any of them is invalid."""
    documents: list[Document] = []
    problems: list[str] = []
    places: dict[str, str] = {}
    for place, line in _read_lines(files):
        if len(line) > MAX_LINE_BYTES:
            problems.append(f"{place}: is longer than {MAX_LINE_BYTES} bytes")
            break
        value = None
        try:
            value = _parse_line(line)
            document = check_document(value)
            if document.path in places:
                raise DocumentError([f"is in {places[document.path]} already"])
            places[document.path] = place
            documents.append(document)
        except DocumentError as error:
            prefix = f"{place}{_name_suffix(value)}"
            problems += [f"{prefix}: {problem}" for problem in error.problems]
        if len(problems) >= MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = ["There may be more problems after these."]
            break
    if problems:
        raise CatalogFileError(problems)
    return documents


def _read_lines(files: Iterable[BinaryIO]) -> Iterator[tuple[str, bytes]]:
    """Yield each line that is not blank, with its file and number."""
    for file in files:
        name = getattr(file, "name", "<stdin>")
        lines = iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")
        for number, line in enumerate(lines, start=1):
            # Files that were concatenated have a byte order mark in the middle too.
            content = line.removeprefix(BYTE_ORDER_MARK)
            if content.strip():
                yield f"{name} line {number}", content


def _parse_line(line: bytes) -> object:
    try:
        return parse_json(line)
    except DocumentError:
        raise
    except (ValueError, RecursionError) as error:
        raise DocumentError([f"is not a line of JSON in UTF-8 ({error})"]) from error


def _name_suffix(value: Any) -> str:
    """Return the name of the widget for a message, if the value has one."""
    try:
        widget = value["widget"]
        return f", {quoted(widget['scope'] + '/' + widget['name'])[1:-1]}"
    except (LookupError, TypeError):
        return ""
