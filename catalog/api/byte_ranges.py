"""Range requests: the part of a file that a client requests, by RFC 9110 section 14."""

import os
import re
from typing import BinaryIO

# int() fails on more than 4,300 digits. A range with that many is ignored like a malformed one.
_RANGE = re.compile("([0-9]{0,4000})-([0-9]{0,4000})")


def parse_range(header: str, size: int) -> range | None:
    """Return the bytes of a file of this size that a Range header requests.

    None means the whole file: the header is malformed, has another unit, or requests several
    parts. The range is empty if the file has none of the bytes.
    """
    unit, _, ranges = header.partition("=")
    specs = [spec for spec in (part.strip(" \t") for part in ranges.split(",")) if spec]
    spec = _RANGE.fullmatch(specs[0]) if unit.lower() == "bytes" and len(specs) == 1 else None
    if spec is None or spec[0] == "-":
        return None
    if not spec[1]:
        length = int(spec[2])
        # The end of an empty file is the whole file.
        return range(max(size - length, 0), size) if size or not length else None
    first = int(spec[1])
    last = int(spec[2]) if spec[2] else size - 1
    if spec[2] and last < first:
        return None
    return range(min(first, size), min(last + 1, size))


class FilePart:
    """A part of an open file, which wsgi.file_wrapper reads like a whole file."""

    def __init__(self, file: BinaryIO, part: range) -> None:
        self._file = file
        self._part = part
        file.seek(part.start)

    def read(self, size: int = -1) -> bytes:
        left = max(self._part.stop - self._file.tell(), 0)
        return self._file.read(left if size < 0 else min(size, left))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            self._file.seek(self._part.stop + offset)
        else:
            self._file.seek(offset + (self._part.start if whence == os.SEEK_SET else 0), whence)
        return self.tell()

    def tell(self) -> int:
        return self._file.tell() - self._part.start

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
