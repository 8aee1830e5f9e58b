"""Reads a tar archive of plain files from a stream, in bounded memory.

The tarfile module also follows extended headers, whatever their number and size: it reads each into
memory and calls itself for the next. And it takes an archive without its end marker for complete.
"""

import io
import tarfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

    from _typeshed import WriteableBuffer

BLOCK = tarfile.BLOCKSIZE
# After the two empty blocks that mark the end, up to the record size of the writer.
MAX_PADDING = 1024 * 1024


class ArchiveError(Exception):
    """The bytes are not a complete archive of plain files; the message says why."""


class NotAFileError(ArchiveError):
    """The archive holds something else than a plain file; the message is its name."""


class Member(io.RawIOBase):
    """A file in the archive, to be read once and before the next one."""

    def __init__(self, archive: BinaryIO, name: str, size: int) -> None:
        self.name = name
        self.size = size
        # Where it is set, it takes in all that is read or skipped.
        self.digest: Hash | None = None
        self._archive = archive
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        content = self._archive.read(min(len(view), self._left))
        if self._left and len(view) and not content:
            raise ArchiveError("it ends in the middle of a file")
        view[: len(content)] = content
        self._left -= len(content)
        if self.digest:
            self.digest.update(content)
        return len(content)

    def skip(self) -> None:
        """Read what is left of the file."""
        chunk = bytearray(1024 * 1024)
        while self.readinto(chunk):
            pass


def members(archive: BinaryIO) -> Iterator[Member]:
    """The files of an archive as they come; raises ArchiveError for anything else."""
    while (block := _read_exactly(archive, BLOCK)) != bytes(BLOCK):
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise ArchiveError(str(error)) from error
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or header.size < 0:
            raise NotAFileError(header.name)
        member = Member(archive, header.name, header.size)
        yield member
        member.skip()
        _read_exactly(archive, -member.size % BLOCK)
    _read_exactly(archive, BLOCK)
    rest = archive.read(MAX_PADDING + 1)
    if len(rest) > MAX_PADDING or rest.strip(b"\0"):
        raise ArchiveError("it continues after its end marker")


def _read_exactly(archive: BinaryIO, size: int) -> bytes:
    content = archive.read(size)
    if len(content) < size:
        raise ArchiveError("it ends before its end marker")
    return content
