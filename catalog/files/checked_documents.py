"""Validates all documents of catalog files before any document is used."""

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from ..domain.documents import Document, DocumentError
from ..store.write.imports import DocumentSize
from .jsonl import CatalogReader

# The number of documents that one transaction writes, in about 0.1 seconds.
BATCH_SIZE = 200
MAX_BATCH_BYTES = 1024 * 1024
# The JSON of each version repeats these texts of the widget; its field names take up to 1 kB.
SHARED_TEXTS = ("scope", "name", "display_name", "description", "icon")
MAX_FIELD_BYTES = 1024


class CheckedFiles:
    """The valid documents, in a temporary file: a large catalog does not fit into memory.

    Validating documents takes six times as long as reading them back.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # The size of each document, by scope/name.
        self.sizes: dict[str, DocumentSize] = {}
        # The offset and the size in bytes of the batch that contains each widget.
        self._places: dict[str, tuple[int, int]] = {}

    def add(self, batch: Sequence[Document], line_sizes: dict[str, int]) -> None:
        """Append a batch to the file; line_sizes has the length of the line of each widget."""
        offset = self._file.tell()
        # marshal takes half the time of pickle. marshal.load() would call a method of the file for
        # each value, so batches() reads a batch at once.
        place = offset, self._file.write(marshal.dumps([tuple(document) for document in batch]))
        for document in batch:
            texts = sum(len(document.widget[column] or "") for column in SHARED_TEXTS)
            self.sizes[document.path] = DocumentSize(
                len(document.versions),
                line_sizes[document.path],
                # JSON takes at most six bytes per character.
                added_size=6 * texts + MAX_FIELD_BYTES,
            )
            self._places[document.path] = place

    def batches(self, paths: Iterable[str]) -> Iterator[list[Document]]:
        """Yield the documents of these widgets in batches."""
        chosen = {*paths}
        for offset, size in sorted({self._places[path] for path in chosen}):
            self._file.seek(offset)
            # The file has no name, so only this process can have written to it.
            batch = [Document(*fields) for fields in marshal.loads(self._file.read(size))]  # noqa: S302
            yield [document for document in batch if document.path in chosen]


def check_files(
    files: Sequence[BinaryIO],
    temporary_file: BinaryIO,
    check: Callable[[object], Document],
    on_batch: Callable[[Sequence[Document], int], None],
) -> CheckedFiles:
    """Write the documents to a temporary file; raise CatalogFileError if anything is invalid.

    on_batch gets each valid batch, and the number of bytes read so far.
    """
    reader, checked = CatalogReader(files, check), CheckedFiles(temporary_file)
    try:
        for batch in reader.batches(BATCH_SIZE, MAX_BATCH_BYTES):
            checked.add(batch, reader.sizes)
            on_batch(batch, reader.bytes_read)
    except DocumentError as error:
        raise reader.all_problems() from error
    return checked
