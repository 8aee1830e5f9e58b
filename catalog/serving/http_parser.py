"""A parser for a single HTTP/1 request (RFC 9112): it parses the head and finds the body's end."""

import io
import re
import time
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from .. import V1_PREFIX
from ..domain.request_kinds import Kind, classify
from ..domain.trusts import MAX_SESSION_BYTES
from .chunked import ChunkedDecoder
from .http_syntax import (
    CONTENT_LENGTH,
    CRLF,
    MAX_FIELDS,
    MAX_HEAD,
    Fields,
    MalformedRequestError,
    has_bare_line_feed,
    is_host,
    parse_fields,
    percent_encoded,
    split_request_line,
    split_target,
)

HEAD_END = b"\r\n\r\n"
EMPTY_LINES = re.compile(rb"(?:\r\n)+")
# The first byte of a TLS connection. A TLS client never sends a complete head: without this check,
# it would have to wait for the request timeout.
TLS_HANDSHAKE = b"\x16"


class HttpError(NamedTuple):
    """An error response from the server itself, not from the application."""

    status: str
    message: str


TIMED_OUT = HttpError("408 Request Timeout", "Request timed out before it was complete.")
LINE_TOO_LONG = HttpError(
    "414 URI Too Long",
    f"Request line too long: it must not exceed {MAX_HEAD} bytes with the headers.",
)
HEAD_TOO_LARGE = HttpError(
    "431 Request Header Fields Too Large",
    f"Request headers too large: they must not exceed {MAX_FIELDS} fields, or {MAX_HEAD} bytes "
    "with the request line.",
)
CANNOT_STORE = HttpError("503 Service Unavailable", "The upload cannot be stored now.")


class HttpRequest:
    """A request as it arrives; is_complete is set at its end, error if the server rejects it."""

    # time.perf_counter() when the head was complete.
    started_at = 0.0
    method = request_uri = path = query = ""
    kind = Kind.PAGE
    first_line = b""
    version = "1.0"
    error: HttpError | None = None
    has_head = has_body = is_complete = False
    expects_continue = False
    # The length of the body in bytes; 0 if the body is chunked.
    content_length = 0
    # True if uploads.py must admit the body before it is received.
    needs_admission = False
    # The reason why the application gets the request without its body. The client may still be
    # sending.
    rejected_body = ""

    def __init__(self, max_body: int) -> None:
        """Begin a request whose body must be shorter than this many bytes."""
        self.headers: Fields = {}
        self.body: BinaryIO = io.BytesIO()
        self.body_size = 0
        self._max_body = max_body
        self._head = bytearray()
        self._chunks: ChunkedDecoder | None = None

    @property
    def is_cut_off(self) -> bool:
        """Whether the rest of the request is ignored; the client may still be sending it."""
        return bool(self.error or self.rejected_body)

    def receive(self, data: bytes) -> int:
        """Parse the data and return how many bytes of it belong to this request."""
        try:
            if self.has_head:
                return self._receive_body(data)
            return self._receive_head(data)
        except MalformedRequestError as error:
            self.fail(HttpError("400 Bad Request", f"Malformed HTTP request: {error}."))
        except OSError:
            # The disk is full, or the upload directory is not writable.
            self.fail(CANNOT_STORE)
        return len(data)

    def fail(self, error: HttpError) -> None:
        """End the request: the server sends the error and closes the connection."""
        self.error = error
        self.is_complete = True
        self.needs_admission = self.expects_continue = False
        # The log shows the first line of an incomplete head.
        self.first_line = self.first_line or bytes(self._head).partition(CRLF)[0]

    def close(self) -> None:
        """Free the body, and remove an upload's file."""
        # If the disk is full, close() tries to write the last bytes again, and fails again.
        with suppress(OSError):
            self.body.close()

    def _receive_head(self, data: bytes) -> int:
        head = self._head
        head += data
        if head.startswith(TLS_HANDSHAKE):
            raise MalformedRequestError("it is a TLS handshake, but this port is for plain HTTP")
        # RFC 9112, section 2.2, requires a server to ignore an empty line before a request line.
        if empty_lines := EMPTY_LINES.match(head):
            del head[: empty_lines.end()]
        # Earlier data has already been searched, but it may end with the first bytes of HEAD_END.
        end = head.find(HEAD_END, max(0, len(head) - len(data) - len(HEAD_END) + 1))
        size = len(head) if end < 0 else end + len(HEAD_END)
        if size > MAX_HEAD or (end < 0 and size == MAX_HEAD):
            self.first_line, line_end, _ = bytes(head[:size]).partition(CRLF)
            is_line_too_long = not line_end or len(self.first_line) >= MAX_HEAD
            self.fail(LINE_TOO_LONG if is_line_too_long else HEAD_TOO_LARGE)
        elif end >= 0:
            self.has_head = True
            self._parse_head(bytes(head[:end]))
        else:
            if has_bare_line_feed(head, max(0, len(head) - len(data))):
                raise MalformedRequestError("a line ends in LF alone instead of CRLF")
            return len(data)
        used = len(data) - (len(head) - size)
        self._head = bytearray()
        return used

    def _parse_head(self, head: bytes) -> None:
        """Parse a complete head, from which the final empty line has been removed."""
        self.started_at = time.perf_counter()
        self.first_line, _, section = head.partition(CRLF)
        self.method, target, self.version = split_request_line(self.first_line)
        self.request_uri = percent_encoded(target)
        authority, self.path, self.query = split_target(self.method, target)
        if section.count(CRLF) >= MAX_FIELDS:
            self.fail(HEAD_TOO_LARGE)
            return
        self.headers = parse_fields(section)
        # An empty Host is valid (RFC 9110, section 7.2).
        host = self.headers.get("HTTP_HOST", None if self.version == "1.1" else "")
        if host is None or (host and not is_host(host)):
            raise MalformedRequestError(
                "HTTP/1.1 requires one Host header: a name or address, with an optional port"
            )
        if authority is not None:
            self.headers["HTTP_HOST"] = authority
        self._find_body_length()
        self.has_body = self.content_length > 0 or self._chunks is not None
        self.kind = classify(self.method, self.path, has_body=self.has_body)
        if self.has_body:
            self._expect_body()
        else:
            self.is_complete = True

    def _find_body_length(self) -> None:
        """Determine from the headers whether a body follows, and where it ends."""
        encoding = self.headers.pop("HTTP_TRANSFER_ENCODING", None)
        length = self.headers.get("CONTENT_LENGTH")
        if encoding is not None:
            if encoding.lower() != "chunked" or self.version != "1.1":
                raise MalformedRequestError(
                    "Transfer-Encoding must be given once, as chunked, and only in HTTP/1.1"
                )
            if length is not None:
                raise MalformedRequestError(
                    "Transfer-Encoding and Content-Length must not be combined"
                )
            self._chunks = ChunkedDecoder()
        elif length is not None:
            if not CONTENT_LENGTH.fullmatch(length):
                raise MalformedRequestError("Content-Length must be given once, as 1 to 19 digits")
            self.content_length = int(length)

    def _expect_body(self) -> None:
        """Decide whether the body may follow, must be admitted first, or is too large."""
        expects = self.headers.get("HTTP_EXPECT", "").lower() == "100-continue"
        self.expects_continue = expects and self.version == "1.1"
        if self.kind is Kind.SESSION:
            self._max_body = MAX_SESSION_BYTES + 1
        if self._chunks is not None:
            # A chunked body may turn out to be large.
            self.needs_admission = self.kind is Kind.CHANGE
        elif self.content_length >= self._max_body:
            self.needs_admission = self.kind in (Kind.CHANGE, Kind.FORM)
            if not self.needs_admission:
                self._fail_as_too_large()

    def _fail_as_too_large(self) -> None:
        allowed = f"it must not exceed {self._max_body - 1} bytes"
        if self.path.startswith(V1_PREFIX):
            allowed = "no request needs a body"
        self.fail(HttpError("413 Request Entity Too Large", f"Request body too large: {allowed}."))

    def accept_body(self, file: BinaryIO, limit: int) -> None:
        """Receive a large body into the file, up to the limit."""
        self.needs_admission = False
        self.body, self._max_body = file, limit + 1

    def reject_body(self, reason: str) -> None:
        """Let the application respond without the body; afterwards the connection is closed."""
        self.needs_admission = self.expects_continue = False
        self.rejected_body = reason
        self.headers["HTTP_CONNECTION"] = "close"
        self.headers["CONTENT_LENGTH"] = "0"
        self.is_complete = True

    def _receive_body(self, data: bytes) -> int:
        if self._chunks is not None:
            piece, used = self._chunks.decode(data)
        else:
            piece = data[: self.content_length - self.body_size]
            used = len(piece)
        self.body.write(piece)
        # Without flush(), the last bytes would be written when the body is read, and a full disk
        # would cause an error only then.
        self.body.flush()
        self.body_size += len(piece)
        if self._chunks is None:
            self.is_complete = self.body_size == self.content_length
        elif self.body_size >= self._max_body:
            self._fail_as_too_large()
        elif self._chunks.is_complete:
            self.is_complete = True
            # The application gets the body as if its length had been known from the start.
            self.headers["CONTENT_LENGTH"] = str(self.body_size)
        return used
