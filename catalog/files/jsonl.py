"""Catalog files: JSON Lines, one widget document a line."""

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
# Twice what flask mirror takes of a widget.
MAX_LINE_BYTES = 64 * 1024 * 1024


class CatalogFileError(ValueError):
    """The files cannot be imported; problems holds a sentence for each thing wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_catalog(files: Iterable[BinaryIO]) -> list[Document]:
    """Every document in the files; raises CatalogFileError where any of them has a problem."""
    documents: list[Document] = []
    problems: list[str] = []
    places: dict[str, str] = {}
    for place, line in _lines(files):
        if len(line) > MAX_LINE_BYTES:
            problems.append(f"{place}: is longer than {MAX_LINE_BYTES} bytes")
            break
        given = None
        try:
            given = _parsed(line)
            checked = check_document(given)
            if checked.path in places:
                raise DocumentError([f"is in {places[checked.path]} already"])
            places[checked.path] = place
            documents.append(checked)
        except DocumentError as error:
            where = f"{place}{_named(given)}"
            problems += [f"{where}: {problem}" for problem in error.problems]
        if len(problems) >= MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = ["There may be more problems after these."]
            break
    if problems:
        raise CatalogFileError(problems)
    return documents


def _lines(files: Iterable[BinaryIO]) -> Iterator[tuple[str, bytes]]:
    for file in files:
        name = getattr(file, "name", "<stdin>")
        lines = iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")
        for number, line in enumerate(lines, start=1):
            content = line.removeprefix(BYTE_ORDER_MARK)  # also where files were joined
            if content.strip():
                yield f"{name} line {number}", content


def _parsed(line: bytes) -> object:
    try:
        return parse_json(line)
    except DocumentError:
        raise
    except (ValueError, RecursionError) as error:
        raise DocumentError([f"is not a line of JSON in UTF-8 ({error})"]) from error


def _named(given: Any) -> str:
    try:
        widget = given["widget"]
        return f", {quoted(widget['scope'] + '/' + widget['name'])[1:-1]}"
    except (LookupError, TypeError):
        return ""
