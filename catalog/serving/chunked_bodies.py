"""Decoder of chunked request bodies (RFC 9112, section 7.1): strict, linear and bounded."""

from .http_syntax import (
    CONTROLS_BUT_TAB,
    HEX_DIGITS,
    MalformedRequestError,
    is_token,
    parse_fields,
)

MAX_SIZE_DIGITS = 16
# What the lines of all chunk sizes may have, besides as much as the body itself: chunks of a byte
# would cost the I/O thread many times what they carry.
MAX_FRAMING = 8 * 1024  # bytes
MAX_TRAILERS = 8 * 1024  # bytes
MAX_TRAILER_LINES = 100
CRLF = b"\r\n"
UNQUOTABLE = b'"\\' + CONTROLS_BUT_TAB


class ChunkedDecoder:
    """Decodes one body as it arrives; `is_complete` after its last byte."""

    def __init__(self) -> None:
        self.is_complete = False
        self._line = bytearray()
        self._remaining = 0
        self._in_chunk = False
        self._trailers: list[bytes] | None = None
        self._framing = self._payload = self._trailer_bytes = 0

    def decode(self, data: bytes) -> tuple[bytes, int]:
        """Return what the data carries, and how many bytes of it belong to this body."""
        pieces = []
        position = 0
        while position < len(data) and not self.is_complete:
            if self._remaining:
                piece = data[position : position + self._remaining]
                pieces.append(piece)
                self._remaining -= len(piece)
                self._payload += len(piece)
                position += len(piece)
            else:
                end = data.find(b"\n", position) + 1 or len(data)
                self._line += data[position:end]
                self._count(end - position)
                position = end
                if self._line.endswith(b"\n"):
                    line, self._line = bytes(self._line), bytearray()
                    self._end_line(line)
        return b"".join(pieces), position

    def _count(self, size: int) -> None:
        """Add to the bytes of lines; raise if there are too many of them."""
        if self._trailers is not None:
            self._trailer_bytes += size
            lines = len(self._trailers)
            if self._trailer_bytes > MAX_TRAILERS or lines > MAX_TRAILER_LINES:
                raise MalformedRequestError(
                    f"its trailers exceed {MAX_TRAILERS} bytes or {MAX_TRAILER_LINES} lines"
                )
            return
        self._framing += size
        if self._framing > MAX_FRAMING + self._payload:
            raise MalformedRequestError("its chunks are too small for the size of the body")

    def _end_line(self, line: bytes) -> None:
        if not line.endswith(CRLF):
            raise MalformedRequestError("a line of a chunked body does not end in CRLF")
        line = line.removesuffix(CRLF)
        if self._trailers is not None:
            if line:
                self._trailers.append(line)
            else:
                # Trailers are validated and ignored.
                parse_fields(CRLF.join(self._trailers))
                self.is_complete = True
        elif self._in_chunk:
            if line:
                raise MalformedRequestError("a chunk is longer than its size")
            self._in_chunk = False
        else:
            self._remaining = chunk_size(line)
            self._in_chunk = self._remaining > 0
            if not self._in_chunk:
                self._trailers = []


def chunk_size(line: bytes) -> int:
    """Return the size in a chunk-size line; its extensions are validated and ignored."""
    digits, semicolon, extensions = line.partition(b";")
    if not 0 < len(digits) <= MAX_SIZE_DIGITS or digits.translate(None, HEX_DIGITS):
        raise MalformedRequestError(
            f"a chunk size must be 1 to {MAX_SIZE_DIGITS} hexadecimal digits"
        )
    if semicolon and not all(map(is_extension, extensions.split(b";"))):
        raise MalformedRequestError("a chunk extension must be a name or a name, = and a value")
    return int(digits, 16)


def is_extension(data: bytes) -> bool:
    """Return whether the bytes are a name or name=value; a quoted value has no ; and no escape."""
    name, equals, value = data.partition(b"=")
    if not is_token(name):
        return False
    if value.startswith(b'"'):
        text = value[1:-1]
        return len(value) > 1 and value.endswith(b'"') and text.translate(None, UNQUOTABLE) == text
    return not equals or is_token(value)
