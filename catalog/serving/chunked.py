"""A decoder for chunked bodies (RFC 9112, section 7.1), with limits on the framing."""

import re

from .http_syntax import CRLF, MAX_FIELDS, MalformedRequestError, has_bare_line_feed, parse_fields

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# A quoted string in a chunk extension, without escapes.
QUOTED = rb'"[\t !#-\[\]-~\x80-\xff]*"'
# Spaces and tabs that RFC 9112 allows around the delimiters of a chunk extension. The possessive
# quantifier never tries a shorter run, so that matching takes linear time.
SPACE = rb"[ \t]*+"
# Chunk extensions are validated and ignored.
EXTENSION = rb"%s;%s%s(?:%s=%s(?:%s|%s))?" % (SPACE, SPACE, TOKEN, SPACE, SPACE, TOKEN, QUOTED)
SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:%s)*\r\n" % EXTENSION)
# Chunk sizes and trailers may take as many bytes as the body itself, plus this many. Without a
# limit, chunks of one byte could cost the I/O thread far more than their content is worth.
MAX_FRAMING = 8 * 1024  # bytes


class ChunkedDecoder:
    """Decodes one body as it arrives; is_complete becomes true after its last byte."""

    def __init__(self) -> None:
        self.is_complete = False
        # The part of a size line, or of the trailers, that has arrived so far.
        self._line = b""
        # The CRLF that ends the previous chunk; empty before the first chunk.
        self._chunk_end = b""
        self._in_trailers = False
        # How many bytes of the chunk are missing, and how many more bytes framing may take.
        self._missing, self._allowance = 0, MAX_FRAMING

    def decode(self, data: bytes) -> tuple[bytes, int]:
        """Return the decoded content, and how many bytes of the data belong to this body."""
        earlier = len(self._line)
        data, self._line = self._line + data, b""
        pieces, position = [], 0
        while position < len(data) and not self.is_complete:
            if self._missing:
                piece = data[position : position + self._missing]
                pieces.append(piece)
                self._missing -= len(piece)
                self._allowance += len(piece)
                position += len(piece)
            else:
                position = self._read_framing(data, position)
        return b"".join(pieces), position - earlier

    def _read_framing(self, data: bytes, start: int) -> int:
        """Read the size line of the next chunk, or the trailers; return the position after them."""
        last = b"\n\r\n" if self._in_trailers else b"\n"
        line_start = start + len(self._chunk_end)
        found = data.find(last, line_start)
        end = found + len(last) if found >= 0 else len(data)
        length = end - start
        if length > self._allowance or length > MAX_FRAMING:
            raise MalformedRequestError(
                f"its chunk sizes and trailers exceed the body by over {MAX_FRAMING} bytes"
            )
        is_wrong_end = not self._chunk_end.startswith(data[start:line_start])
        if found < 0 and not is_wrong_end:
            if self._in_trailers and has_bare_line_feed(data, start + 1):
                raise MalformedRequestError("a trailer does not end in CRLF")
            self._line = data[start:]
            return end
        self._allowance -= length
        if self._in_trailers:
            if data.count(CRLF, start, end) > MAX_FIELDS + 1:
                raise MalformedRequestError(f"there are more than {MAX_FIELDS} trailers")
            parse_fields(data[start + 1 : end - 2].removesuffix(CRLF))
            self.is_complete = True
            return end
        match = SIZE_LINE.fullmatch(data, line_start, end)
        if not match or is_wrong_end:
            raise MalformedRequestError(
                "a chunk must consist of its size (1 to 16 hexadecimal digits), valid extensions, "
                "CRLF, its data and CRLF"
            )
        self._missing = int(match[1], 16)
        self._in_trailers = not self._missing
        self._chunk_end = CRLF if self._missing else b""
        # The trailers begin with the end of this line, so that empty trailers need no special case.
        return end - self._in_trailers
