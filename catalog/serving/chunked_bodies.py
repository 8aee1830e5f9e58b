"""Decoder of chunked request bodies (RFC 9112, section 7.1): strict, linear and bounded."""

import re

from .http_syntax import MalformedRequestError, parse_fields

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# In a chunk extension, without an escape.
QUOTED = rb'"[\t !#-\[\]-~\x80-\xff]*"'
# Extensions are validated and ignored.
SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;%s(?:=(?:%s|%s))?)*\r\n" % (TOKEN, TOKEN, QUOTED))
MAX_SIZE_LINE = 256  # bytes
# What the lines of all chunk sizes may have, besides as much as the body itself: chunks of a byte
# would cost the I/O thread many times what they carry.
MAX_FRAMING = 8 * 1024  # bytes
MAX_TRAILERS = 8 * 1024  # bytes
MAX_TRAILER_LINES = 100
CRLF = b"\r\n"


class ChunkedDecoder:
    """Decodes one body as it arrives; `is_complete` after its last byte."""

    def __init__(self) -> None:
        self.is_complete = False
        # What has arrived of a size line, or of the trailers.
        self._line = b""
        # What precedes a size line: the end of the chunk before it.
        self._chunk_end = b""
        self._in_trailers = False
        # Bytes that are missing of a chunk.
        self._missing = 0
        self._framing = self._payload = 0

    def decode(self, data: bytes) -> tuple[bytes, int]:
        """Return what the data carries, and how many bytes of it belong to this body."""
        earlier = len(self._line)
        data, self._line = self._line + data, b""
        pieces, position = [], 0
        while position < len(data) and not self.is_complete:
            if self._missing:
                piece = data[position : position + self._missing]
                pieces.append(piece)
                self._missing -= len(piece)
                self._payload += len(piece)
                position += len(piece)
                continue
            end = (self._read_trailers if self._in_trailers else self._read_size)(data, position)
            if not end:
                self._line = data[position:]
            position = end or len(data)
        return b"".join(pieces), position - earlier

    def _read_size(self, data: bytes, start: int) -> int:
        """Read a size line with the end of the chunk before it; return its end, 0 if it lacks."""
        size_start = start + len(self._chunk_end)
        end = data.find(b"\n", size_start) + 1
        length = (end or len(data)) - start
        if length > MAX_SIZE_LINE:
            raise MalformedRequestError(f"the line of a chunk size exceeds {MAX_SIZE_LINE} bytes")
        if self._framing + length > MAX_FRAMING + self._payload:
            raise MalformedRequestError("its chunks are too small for the size of the body")
        if not end:
            return 0
        self._framing += length
        if not data.startswith(self._chunk_end, start):
            raise MalformedRequestError("a chunk is longer than its size")
        match = SIZE_LINE.fullmatch(data, size_start, end)
        if not match:
            raise MalformedRequestError(
                "a chunk size must be 1 to 16 hexadecimal digits, valid extensions and CRLF"
            )
        self._missing, self._chunk_end = int(match[1], 16), CRLF
        self._in_trailers = not self._missing
        # Trailers begin with the end of this line: then an empty one is found like any other.
        return end - 1 if self._in_trailers else end

    def _read_trailers(self, data: bytes, start: int) -> int:
        """Validate and ignore the trailers; return their end, 0 if it lacks."""
        found = data.find(b"\n\r\n", start)
        section = data[start + 1 : found + 1 if found >= 0 else None]
        if len(section) > MAX_TRAILERS or section.count(CRLF) > MAX_TRAILER_LINES:
            raise MalformedRequestError(
                f"its trailers exceed {MAX_TRAILERS} bytes or {MAX_TRAILER_LINES} lines"
            )
        if found < 0:
            return 0
        parse_fields(section.removesuffix(CRLF))
        self.is_complete = True
        return found + 3
