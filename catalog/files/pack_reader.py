"""A strict tar reader, for packs.

A pack contains only regular files with short names, so a header of any other kind is rejected
before any of its data is read. The tarfile module would read extended headers of any size into
memory, and the options that prevent this differ between Python releases.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ..domain.messages import quoted

BLOCK_SIZE = 512
CHUNK_SIZE = 1024 * 1024
# Tar programs pad the last record of an archive with zeros. A record usually contains 20 blocks.
MAX_END_BYTES = 1024 * 1024
REGULAR_FILE = b"0"
# The magic numbers of POSIX tar and GNU tar. Both use the same header fields for regular files with
# short names.
MAGIC = (b"ustar\x0000", b"ustar  \0")
OCTAL = re.compile(rb"([0-7]{1,11})[ \0]{1,11}")


class PackError(Exception):
    """A pack cannot be written or read; the message gives the reason in one sentence."""


class Header(NamedTuple):
    """The header of a regular file."""

    name: str
    size: int  # bytes


class PackReader:
    """Reads the members of a pack one after another, from a file or a pipe."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._place = 0
        # The remaining bytes of the current member, including the zeros after it.
        self._unread = 0

    def open(self, name: str) -> Iterator[bytes]:
        """Return the content of the next member in parts; raise PackError if its name differs.

        Parts that are not read before the next call are skipped.
        """
        header = self._next_header()
        if header is None or header.name != name:
            actual = f"has {quoted(header.name)}" if header else "ends"
            raise PackError(f"The pack {actual} where {name} should be.")
        self._unread = header.size + -header.size % BLOCK_SIZE
        return self._read_content(header)

    def check_end(self) -> None:
        """Raise PackError if another member or any other data follows."""
        if header := self._next_header():
            raise PackError(f"The pack has an unexpected member, {quoted(header.name)}.")
        rest = self._file.read(MAX_END_BYTES + 1)
        if len(rest) > MAX_END_BYTES or rest.strip(b"\0"):
            raise PackError(f"The pack has unexpected data after its end, at byte {self._place}.")

    def _read_content(self, header: Header) -> Iterator[bytes]:
        left = header.size
        while left:
            chunk = self._read(min(left, CHUNK_SIZE), header.name)
            self._unread -= len(chunk)
            left -= len(chunk)
            yield chunk

    def _next_header(self) -> Header | None:
        """Return the next header, or None at the end of the archive."""
        while self._unread:
            self._unread -= len(self._read(min(self._unread, CHUNK_SIZE), "a member"))
        place = self._place
        block = self._read(BLOCK_SIZE, "a header")
        if not block.strip(b"\0"):
            return None
        return _parse_header(block, place)

    def _read(self, size: int, what: str) -> bytes:
        data = self._file.read(size)
        self._place += len(data)
        if len(data) < size:
            raise PackError(f"The pack is incomplete: it ends in the middle of {what}.")
        return data


def _parse_header(block: bytes, place: int) -> Header:
    # The checksum is the sum of all bytes, with spaces in place of the checksum itself.
    checksum = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if _parse_octal(block[148:156]) != checksum:
        raise PackError(f"This is not a complete pack: there is no header at byte {place}.")
    name = block[:100].rstrip(b"\0").decode("utf-8", "backslashreplace")
    size = _parse_octal(block[124:136])
    kind, magic, prefix = block[156:157], block[257:265], block[345:]
    # The prefix is used only for names longer than 100 characters.
    if kind != REGULAR_FILE or magic not in MAGIC or prefix.strip(b"\0") or size is None:
        raise PackError(
            f"The pack contains {quoted(name.removesuffix('/'))}, which is not a regular file."
        )
    return Header(name, size)


def _parse_octal(field: bytes) -> int | None:
    """Return a number in a header; None if it is not octal."""
    match = OCTAL.fullmatch(field)
    return int(match[1], 8) if match else None
