"""Parser of one HTTP/1 request (RFC 9112): its head, and its body with or without chunks."""

import io
import re
import time
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from .http_syntax import (
    CONTENT_LENGTH,
    MAX_FIELDS,
    MAX_HEAD,
    Fields,
    MalformedRequestError,
    is_host,
    parse_fields,
    percent_encoded,
    split_request_line,
    split_target,
)

CRLF = b"\r\n"
HEAD_END = b"\r\n\r\n"
# Before a request line. RFC 9112, section 2.2, requires a server to ignore at least one.
MAX_EMPTY_LINES = 8
# The first byte of a TLS connection. What its client sends never becomes a complete head: without
# this check it would wait for the request timeout.
TLS_HANDSHAKE = b"\x16"
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# In a chunk extension, without an escape.
QUOTED = rb'"[\t !#-\[\]-~\x80-\xff]*"'
# Extensions are validated and ignored.
SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;%s(?:=(?:%s|%s))?)*\r\n" % (TOKEN, TOKEN, QUOTED))
# What chunk sizes and trailers may have, besides as much as the body itself: chunks of a byte would
# cost the I/O thread many times what they carry.
MAX_FRAMING = 8 * 1024  # bytes
# With a token, these change something over an internal path.
CHANGE_METHODS = ("PUT", "POST", "PATCH")
# The page with a list of installed versions.
FORM_PATH = "/updates"


class Refusal(NamedTuple):
    """Why the server itself responds to a request, with an error."""

    status: str
    message: str


TIMED_OUT = Refusal("408 Request Timeout", "Request timed out before it was complete.")
LINE_TOO_LONG = Refusal(
    "414 URI Too Long", f"Request line too long: with the headers it may have {MAX_HEAD} bytes."
)
HEAD_TOO_LARGE = Refusal(
    "431 Request Header Fields Too Large",
    f"Request headers too large: with the request line they may have {MAX_HEAD} bytes, and there "
    f"may be {MAX_FIELDS} of them.",
)
CANNOT_STORE = Refusal("503 Service Unavailable", "The upload cannot be stored now.")


def too_large(allowed: str) -> Refusal:
    """Return the refusal of a body, with what is allowed."""
    return Refusal("413 Request Entity Too Large", f"Request body too large: {allowed}.")


class ChunkedDecoder:
    """Decodes one body as it arrives; `is_complete` after its last byte."""

    def __init__(self) -> None:
        self.is_complete = False
        # What has arrived of a size line, or of the trailers.
        self._line = b""
        # What precedes a size line: the end of the chunk before it.
        self._chunk_end = b""
        self._in_trailers = False
        # Bytes that are missing of a chunk, and those that framing may still have.
        self._missing, self._allowance = 0, MAX_FRAMING

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
                self._allowance += len(piece)
                position += len(piece)
            else:
                position = self._read_framing(data, position)
        return b"".join(pieces), position - earlier

    def _read_framing(self, data: bytes, start: int) -> int:
        """Read a size line with the end of the chunk before it, or the trailers; return its end."""
        last = b"\n\r\n" if self._in_trailers else b"\n"
        line_start = start + len(self._chunk_end)
        found = data.find(last, line_start)
        end = found + len(last) if found >= 0 else len(data)
        length = end - start
        if length > self._allowance or length > MAX_FRAMING:
            raise MalformedRequestError(
                f"its chunk sizes and trailers exceed the body by {MAX_FRAMING} bytes"
            )
        if found < 0:
            self._line = data[start:]
            return end
        self._allowance -= length
        if self._in_trailers:
            if data.count(CRLF, start, end) > MAX_FIELDS + 1:
                raise MalformedRequestError(f"there are over {MAX_FIELDS} trailers")
            parse_fields(data[start + 1 : end - 2].removesuffix(CRLF))
            self.is_complete = True
            return end
        match = SIZE_LINE.fullmatch(data, line_start, end)
        if not match or not data.startswith(self._chunk_end, start):
            raise MalformedRequestError(
                "a chunk must be its size in 1 to 16 hexadecimal digits, valid extensions, CRLF, "
                "that many bytes and CRLF"
            )
        self._missing = int(match[1], 16)
        self._in_trailers = not self._missing
        self._chunk_end = CRLF if self._missing else b""
        # Trailers begin with the end of this line: then an empty one is found like any other.
        return end - self._in_trailers


class Parser:
    """One request as it is received; `completed` at its end, `error` if it is refused."""

    # time.perf_counter() when the head was complete.
    started_at = 0.0
    command = request_uri = path = query = ""
    first_line = b""
    version = "1.0"
    error: Refusal | None = None
    completed = False
    headers_finished = False
    expect_continue = False
    # 0 for a chunked body, of which each byte has to be looked at.
    content_length = 0
    # Whether a large body follows that has to be accepted or refused first.
    needs_admission = False
    # Why the application gets the request without its body, which the client may still send.
    refused_body = ""

    def __init__(self, max_body: int) -> None:
        """Begin a request whose body may have less than this many bytes."""
        self.headers: Fields = {}
        self.body: BinaryIO = io.BytesIO()
        self.body_size = 0
        self._max_body = max_body
        self._head = bytearray()
        self._empty_lines = 0
        self._chunks: ChunkedDecoder | None = None

    def received(self, data: bytes) -> int:
        """Parse the data and return how many bytes of it belong to this request."""
        try:
            if self.headers_finished:
                return self._receive_body(data)
            return self._receive_head(data)
        except MalformedRequestError as error:
            self.refuse(Refusal("400 Bad Request", f"Malformed HTTP request: {error}."))
        except OSError:
            # The disk is full, or the directory of uploads cannot be written.
            self.refuse(CANNOT_STORE)
        return len(data)

    def refuse(self, error: Refusal) -> None:
        """End the request: the server responds with the error and closes the connection."""
        self.error = error
        self.completed = True
        self.expect_continue = False
        # Of an incomplete head, for the log.
        self.first_line = self.first_line or bytes(self._head).partition(CRLF)[0]

    def close(self) -> None:
        """Free the body; the file of a large one is removed."""
        # What could not be written fails once more.
        with suppress(OSError):
            self.body.close()

    def _receive_head(self, data: bytes) -> int:
        head = self._head
        head += data
        if head.startswith(TLS_HANDSHAKE):
            raise MalformedRequestError("it begins with TLS, but this is a port for plain HTTP")
        while head.startswith(CRLF):
            del head[:2]
            self._empty_lines += 1
            if self._empty_lines > MAX_EMPTY_LINES:
                raise MalformedRequestError(
                    "there are too many empty lines before the request line"
                )
        # Earlier data has been searched already, but may end with the first bytes of HEAD_END.
        end = head.find(HEAD_END, max(0, len(head) - len(data) - len(HEAD_END) + 1))
        size = len(head) if end < 0 else end + len(HEAD_END)
        if size >= MAX_HEAD:
            self.first_line, line_end, _ = bytes(head[:size]).partition(CRLF)
            is_line_too_long = not line_end or len(self.first_line) >= MAX_HEAD
            self.refuse(LINE_TOO_LONG if is_line_too_long else HEAD_TOO_LARGE)
        elif end >= 0:
            self.headers_finished = True
            self._parse_head(bytes(head[:end]))
        else:
            return len(data)
        used = len(data) - (len(head) - size)
        self._head = bytearray()
        return used

    def _parse_head(self, head: bytes) -> None:
        """Parse a complete head without its last empty line."""
        self.started_at = time.perf_counter()
        self.first_line, _, section = head.partition(CRLF)
        self.command, target, self.version = split_request_line(self.first_line)
        self.request_uri = percent_encoded(target)
        authority, self.path, self.query = split_target(self.command, target)
        if section.count(CRLF) >= MAX_FIELDS:
            self.refuse(HEAD_TOO_LARGE)
            return
        self.headers = parse_fields(section)
        # An empty one is valid (RFC 9110, section 7.2).
        host = self.headers.get("HTTP_HOST", None if self.version == "1.1" else "")
        if host is None or (host and not is_host(host)):
            raise MalformedRequestError(
                "HTTP/1.1 requires one Host, a name or an address, with or without a port"
            )
        if authority is not None:
            self.headers["HTTP_HOST"] = authority
        self._expect_body()

    def _expect_body(self) -> None:
        """Decide from the fields whether a body follows, and how its end is found."""
        encoding = self.headers.pop("HTTP_TRANSFER_ENCODING", None)
        length = self.headers.get("CONTENT_LENGTH")
        if encoding is not None:
            if encoding.lower() != "chunked" or self.version != "1.1":
                raise MalformedRequestError(
                    "Transfer-Encoding must be chunked, once, and in HTTP/1.1"
                )
            if length is not None:
                raise MalformedRequestError(
                    "Transfer-Encoding and Content-Length exclude each other"
                )
            self._chunks = ChunkedDecoder()
            self.needs_admission = self.is_change
        else:
            if length is not None and not CONTENT_LENGTH.fullmatch(length):
                raise MalformedRequestError("Content-Length must be 1 to 19 digits, once")
            self.content_length = int(length or 0)
            is_large = self.content_length >= self._max_body
            self.needs_admission = is_large and (self.is_change or self.is_form)
            if is_large and not self.needs_admission:
                self.refuse(too_large("no request needs a body"))
                return
        # A request without a body is complete and needs no 100 Continue.
        self.completed = not (self.content_length or self._chunks)
        expects = self.headers.get("HTTP_EXPECT", "").lower() == "100-continue"
        self.expect_continue = expects and self.version == "1.1" and not self.completed

    @property
    def is_change(self) -> bool:
        """Whether it is to change something over an internal path, with a token, valid or not."""
        return (
            "HTTP_AUTHORIZATION" in self.headers
            and self.command in CHANGE_METHODS
            and self.path.startswith("/api/")
            and not self.path.startswith("/api/v1/")
        )

    @property
    def is_form(self) -> bool:
        """Whether it is the form of a page that may be large, without a token."""
        return self.command == "POST" and self.path == FORM_PATH

    def accept_body(self, file: BinaryIO, limit: int) -> None:
        """Receive a large body into the file, up to the limit."""
        self.needs_admission = False
        self.body, self._max_body = file, limit + 1

    def refuse_body(self, reason: str) -> None:
        """Have the application respond without the body, and close the connection."""
        self.needs_admission = self.expect_continue = False
        self.refused_body = reason
        self.headers["HTTP_CONNECTION"] = "close"
        self.headers["CONTENT_LENGTH"] = "0"
        self.completed = True

    def _receive_body(self, data: bytes) -> int:
        if self._chunks is not None:
            piece, used = self._chunks.decode(data)
        else:
            piece = data[: self.content_length - self.body_size]
            used = len(piece)
        self.body.write(piece)
        # Otherwise the last bytes would be written, and could fail, when the body is read.
        self.body.flush()
        self.body_size += len(piece)
        if self._chunks is None:
            self.completed = self.body_size == self.content_length
        elif self.body_size >= self._max_body:
            is_upload = not isinstance(self.body, io.BytesIO)
            limit = f"it may have {self._max_body - 1} bytes"
            self.refuse(too_large(limit if is_upload else "no request needs a body"))
        elif self._chunks.is_complete:
            self.completed = True
            # The application gets it like one whose length was known.
            self.headers["CONTENT_LENGTH"] = str(self.body_size)
        return used
