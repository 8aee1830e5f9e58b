"""Validates all documents in catalog files before any of them is used."""

import marshal
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from ..domain.documents import Document, DocumentError
from .jsonl import CatalogReader

# The number of documents that one transaction writes, which takes about 0.1 seconds.
BATCH_SIZE = 200
MAX_BATCH_BYTES = 1024 * 1024


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

    def add(self, batch: Sequence[Document]) -> None:
        """Append a batch to the file."""
        # marshal takes half as long as pickle. marshal.load() would call a method of the file for
        # each value, so batches() reads each batch as a whole.
        self._sizes.append(self._file.write(marshal.dumps([tuple(each) for each in batch])))
        self.paths.update(document.path for document in batch)
        self.versions += sum(len(document.versions) for document in batch)

    def batches(self) -> Iterator[list[Document]]:
        """Yield the documents in batches; only one caller at a time may read them."""
        self._file.seek(0)
        for size in self._sizes:
            # The file has no name, so only this process can have written to it.
            yield [Document(*fields) for fields in marshal.loads(self._file.read(size))]  # noqa: S302


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
