"""Validates all documents in catalog files before any of them is used."""

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from ..domain.documents import MAX_DOCUMENT_BYTES, Document, DocumentError
from .jsonl import CatalogReader

# The number of documents that one transaction writes, which takes about 0.1 seconds.
BATCH_SIZE = 200
MAX_BATCH_BYTES = 1024 * 1024
# The JSON of each version repeats these columns of the widget; its field names take up to 1 kB. A
# character takes at most six bytes in JSON.
REPEATED_COLUMNS = ("scope", "name", "display_name", "description", "icon")
FIELD_NAMES_BYTES = 1024
BYTES_PER_CHARACTER = 6


class CheckedFiles:
    """Valid documents in a temporary file, since a large catalog does not fit into memory.

    Validating documents takes six times as long as reading them back.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # The size of each batch in bytes.
        self._sizes: list[int] = []
        # Each widget as scope/name.
        self.paths: set[str] = set()
        self.versions = 0
        # The widgets whose documents could be too large, as scope/name.
        self._suspects: set[str] = set()

    def add(self, batch: Sequence[Document]) -> None:
        """Append a batch to the file."""
        # marshal takes half as long as pickle. marshal.load() would call a method of the file for
        # each value, so batches() reads each batch as a whole.
        size = self._file.write(marshal.dumps([tuple(each) for each in batch]))
        self._sizes.append(size)
        if max_json_size(batch, size) > MAX_DOCUMENT_BYTES:
            self._suspects |= {
                each.path
                for each in batch
                if max_json_size([each], len(marshal.dumps(tuple(each)))) > MAX_DOCUMENT_BYTES
            }
        self.paths.update(document.path for document in batch)
        self.versions += sum(len(document.versions) for document in batch)

    def batches(self) -> Iterator[list[Document]]:
        """Yield the documents in batches; only one caller at a time may read them."""
        self._file.seek(0)
        for size in self._sizes:
            # The file has no name, so only this process can have written to it.
            yield [Document(*fields) for fields in marshal.loads(self._file.read(size))]  # noqa: S302

    def large_documents(self) -> Iterator[Document]:
        """Yield the documents that could be too large."""
        for batch in self.batches() if self._suspects else ():
            yield from (document for document in batch if document.path in self._suspects)


def max_json_size(documents: Iterable[Document], size: int) -> int:
    """Return an upper bound for the JSON size of documents that take this many bytes in a file."""
    size *= BYTES_PER_CHARACTER
    for document in documents:
        repeated = sum(len(document.widget[column] or "") for column in REPEATED_COLUMNS)
        size += len(document.versions) * (repeated * BYTES_PER_CHARACTER + FIELD_NAMES_BYTES)
    return size


def check_files(
    files: Sequence[BinaryIO],
    temporary_file: BinaryIO,
    check: Callable[[object], Document],
    on_batch: Callable[[Sequence[Document], int], None],
) -> CheckedFiles:
    """Write the documents to a temporary file; raise CatalogFileError if anything is invalid.

    on_batch() is called with each valid batch and the number of bytes read so far.
    """
    reader, checked = CatalogReader(files, check), CheckedFiles(temporary_file)
    try:
        for batch in reader.batches(BATCH_SIZE, MAX_BATCH_BYTES):
            checked.add(batch)
            on_batch(batch, reader.bytes_read)
    except DocumentError as error:
        raise reader.all_problems() from error
    return checked
