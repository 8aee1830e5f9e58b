"""Decoder of chunked request bodies (RFC 9112, section 7.1), strict and linear."""

from typing import BinaryIO, Protocol

from catalog.serving.http_syntax import (
    CONTROLS_BUT_TAB,
    HEX_DIGITS,
    MalformedRequestError,
    is_token,
    parse_fields,
)

MAX_SIZE_DIGITS = 16
CRLF = b"\r\n"
UNQUOTABLE = b'"\\' + CONTROLS_BUT_TAB


class Buffer(Protocol):
    """The buffer in which waitress stores a body."""

    def __len__(self) -> int: ...
    def append(self, data: bytes) -> None: ...
    def getfile(self) -> BinaryIO: ...


class ChunkedReceiver:
    """Replacement of waitress's receiver, which accepts malformed extensions and trailers.

    The parser limits the number of bytes, including those of chunk-size lines and trailers.
    """

    completed = False
    # Waitress reads this attribute; a malformed body raises MalformedRequestError instead.
    error = None

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._line = bytearray()
        self._remaining = 0
        self._in_chunk = False
        self._trailers: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._buffer)

    def getfile(self) -> BinaryIO:
        return self._buffer.getfile()

    def getbuf(self) -> Buffer:
        return self._buffer

    def received(self, data: bytes) -> int:
        """Decode the data and return how many bytes of it belong to this body."""
        position = 0
        while position < len(data) and not self.completed:
            if self._remaining:
                piece = data[position : position + self._remaining]
                self._buffer.append(piece)
                self._remaining -= len(piece)
                position += len(piece)
            else:
                end = data.find(b"\n", position) + 1 or len(data)
                self._line += data[position:end]
                position = end
                if self._line.endswith(b"\n"):
                    line, self._line = bytes(self._line), bytearray()
                    self._end_line(line)
        return position

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
                self.completed = True
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
