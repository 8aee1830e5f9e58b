"""Catalog files: JSON Lines, one widget document per line."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

from ..domain.documents import MAX_PROBLEMS, Document, DocumentError, check_document, parse_json
from ..domain.messages import quoted
from ..system.data_files import find_data_file

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# This is twice the size that widget-catalog mirror accepts for a widget.
MAX_LINE_BYTES = 64 * 1024 * 1024
# A batch ends when its lines reach this many bytes: parsed, they take several times as much memory.
MAX_BATCH_BYTES = 8 * 1024 * 1024


class CatalogFileError(ValueError):
    """The files cannot be imported; problems has one sentence per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class CatalogReader:
    """Reads documents from catalog files in batches: a large catalog does not fit into memory."""

    def __init__(
        self, files: Iterable[BinaryIO], check: Callable[[object], Document] = check_document
    ) -> None:
        self._check = check
        self._lines = self._read_lines(files)
        # The file and line where each widget was found.
        self.places: dict[str, tuple[str, int]] = {}
        self.bytes_read = 0
        self._problems: list[str] = []

    def batches(self, size: int, max_bytes: int = MAX_BATCH_BYTES) -> Iterator[list[Document]]:
        """Yield lists of up to this many documents; raise DocumentError at the first invalid one.

        all_problems() can then read the rest of the files.
        """
        batch: list[Document] = []
        end = self.bytes_read + max_bytes
        for name, number, line in self._lines:
            batch.append(self._read_document(name, number, line))
            if len(batch) == size or self.bytes_read >= end:
                yield batch
                batch, end = [], self.bytes_read + max_bytes
        if batch:
            yield batch

    def all_problems(self) -> CatalogFileError:
        """Read the rest of the files after an error, and return up to MAX_PROBLEMS problems."""
        for name, number, line in self._lines:
            if len(self._problems) >= MAX_PROBLEMS:
                break
            try:
                self._read_document(name, number, line)
            except DocumentError:
                continue
        if len(self._problems) >= MAX_PROBLEMS:
            self._problems[MAX_PROBLEMS:] = ["There may be more problems after these."]
        return CatalogFileError(self._problems)

    def _read_lines(self, files: Iterable[BinaryIO]) -> Iterator[tuple[str, int, bytes]]:
        """Yield each line that is not blank, with its file and number."""
        for file in files:
            name = getattr(file, "name", "<stdin>")
            lines = iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")
            for number, line in enumerate(lines, start=1):
                self.bytes_read += len(line)
                # If files were concatenated, a byte order mark can also occur in the middle.
                content = line.removeprefix(BYTE_ORDER_MARK)
                if content.strip():
                    yield name, number, content

    def _read_document(self, name: str, number: int, line: bytes) -> Document:
        value = None
        try:
            if len(line) > MAX_LINE_BYTES:
                # Stop here: the rest of this line would be read as further lines.
                self._lines = iter(())
                raise DocumentError([f"is longer than {MAX_LINE_BYTES} bytes"])
            value = parse_json(line)
            document = self._check(value)
            if document.path in self.places:
                place = "{} line {}".format(*self.places[document.path])
                raise DocumentError([f"is already in {place}"])
        except (ValueError, RecursionError) as error:
            prefix = f"{name} line {number}{_name_suffix(value)}"
            problems = [f"is not valid JSON in UTF-8 ({error})"]
            if isinstance(error, DocumentError):
                problems = error.problems
            self._problems += [f"{prefix}: {problem}." for problem in problems]
            raise DocumentError(problems) from error
        self.places[document.path] = name, number
        return document


def read_catalog(files: Iterable[BinaryIO]) -> list[Document]:
    """Return all documents in small files; raise CatalogFileError if any of them is invalid."""
    reader = CatalogReader(files)
    try:
        return [document for batch in reader.batches(1000) for document in batch]
    except DocumentError as error:
        raise reader.all_problems() from error


def read_demo() -> list[Document]:
    """Return the demo catalog's documents."""
    with find_data_file("seed/demo.jsonl").open("rb") as file:
        return read_catalog([file])


def total_size(files: Sequence[BinaryIO]) -> int:
    """Return the total size of the files in bytes; a pipe, which has no size, counts as 0."""
    sizes = []
    for file in files:
        try:
            sizes.append(os.fstat(file.fileno()).st_size)
        except OSError:
            # An in-memory file, such as tests use, has no descriptor.
            continue
    return sum(sizes)


def _name_suffix(value: Any) -> str:
    """Return the widget name in the value for use in a message; "" if there is none."""
    try:
        widget = value["widget"]
        return f", {quoted(widget['scope'] + '/' + widget['name'])[1:-1]}"
    except (LookupError, TypeError):
        return ""
