"""Reader for tar archives of regular files, in bounded memory.

The tarfile module is not safe for archives from an unknown source: it reads extended headers of any
size into memory, recurses for each of them, and accepts an archive without an end marker.
"""

import io
import tarfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

    from _typeshed import WriteableBuffer

BLOCK_SIZE = tarfile.BLOCKSIZE
CHUNK_SIZE = 1024 * 1024
# Writers pad an archive after its end marker, two empty blocks, to their record size.
MAX_PADDING = 1024 * 1024  # bytes


class ArchiveError(Exception):
    """The bytes are not a complete archive of regular files; the message says why."""


class NotAFileError(ArchiveError):
    """A member of the archive is not a regular file; the message is its name."""


class Member(io.RawIOBase):
    """A file in the archive. It can be read once, and only before the next one is requested."""

    def __init__(self, archive: BinaryIO, name: str, size: int) -> None:
        self.name = name
        self.size = size
        # If set, it is updated with everything that is read or skipped.
        self.digest: Hash | None = None
        self._archive = archive
        self._remaining = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        content = self._archive.read(min(len(view), self._remaining))
        if self._remaining and len(view) and not content:
            raise ArchiveError("it ends in the middle of a file")
        view[: len(content)] = content
        self._remaining -= len(content)
        if self.digest:
            self.digest.update(content)
        return len(content)

    def skip(self) -> None:
        """Read the rest of the file."""
        chunk = bytearray(CHUNK_SIZE)
        while self.readinto(chunk):
            pass


def read_members(archive: BinaryIO) -> Iterator[Member]:
    """Yield the files of an archive in order; raise ArchiveError if it is invalid."""
    while (block := _read_exactly(archive, BLOCK_SIZE)) != bytes(BLOCK_SIZE):
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise ArchiveError(str(error)) from error
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or header.size < 0:
            raise NotAFileError(header.name)
        member = Member(archive, header.name, header.size)
        yield member
        member.skip()
        _read_exactly(archive, -member.size % BLOCK_SIZE)
    _read_exactly(archive, BLOCK_SIZE)
    padding = archive.read(MAX_PADDING + 1)
    if len(padding) > MAX_PADDING or padding.strip(b"\0"):
        raise ArchiveError("it continues after its end marker")


def _read_exactly(archive: BinaryIO, size: int) -> bytes:
    content = archive.read(size)
    if len(content) < size:
        raise ArchiveError("it ends before its end marker")
    return content
