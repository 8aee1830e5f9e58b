"""Request parser: waitress's interface, with its own parsing of heads and chunked bodies.

Waitress parses heads with regular expressions that need seconds for a run of digits or spaces, and
accepts some requests that a proxy in front of it could read differently.
"""

import time
from copy import copy
from typing import Protocol

from waitress.adjustments import Adjustments
from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser
from waitress.receiver import FixedStreamReceiver
from waitress.utilities import BadRequest, RequestEntityTooLarge, RequestHeaderFieldsTooLarge

from catalog.rights import REFUSED_BODY
from catalog.serving.chunked_bodies import Buffer, ChunkedReceiver
from catalog.serving.http_syntax import (
    MalformedRequestError,
    check_host,
    content_length,
    parse_fields,
    percent_encoded,
    split_request_line,
    split_target,
)

HEAD_END = b"\r\n\r\n"
# Before a request line. RFC 9112, section 2.2, requires a server to ignore at least one.
MAX_EMPTY_LINES = 8
# The first byte of a TLS connection. What its client sends never becomes a complete head: without
# this check it would wait for the request timeout.
TLS_HANDSHAKE = b"\x16"


# With a token, these may have a body over the usual limit; see uploads.py.
UPLOAD_METHODS = ("PUT", "POST", "PATCH")


class UploadBuffer(Buffer, Protocol):
    """The buffer of a large body."""

    @property
    def is_full(self) -> bool: ...
    def deadline(self, now: float) -> float: ...
    def close(self) -> None: ...


class URITooLong(RequestHeaderFieldsTooLarge):
    code = 414
    reason = "URI Too Long"


class RequestTimeout(BadRequest):
    code = 408
    reason = "Request Timeout"


class Parser(HTTPRequestParser):
    """One request as it is received; `error` is set if it is refused."""

    # time.perf_counter() when the head was complete.
    started_at = 0.0
    command = request_uri = path = query = ""
    first_line = b""
    adj: Adjustments
    body_rcv: ChunkedReceiver | FixedStreamReceiver | None
    # Whether a large body follows that has to be accepted or refused first.
    needs_admission = False
    # Whether the client may still send a body that was refused.
    is_cut_short = False
    # A large body that was accepted.
    upload: UploadBuffer | None = None

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.url_scheme = adj.url_scheme
        self.header_plus = bytearray()
        self.empty_lines = 0

    def received(self, data: bytes) -> int:
        """Parse the data and return how many bytes of it belong to this request."""
        in_head = self.body_rcv is None and not self.completed
        try:
            return self._receive_head(data) if in_head else super().received(data)
        except MalformedRequestError as error:
            self._refuse(BadRequest(str(error)))
            return len(data)

    def _receive_head(self, data: bytes) -> int:
        head = self.header_plus
        head += data
        if head.startswith(TLS_HANDSHAKE):
            raise MalformedRequestError("it begins with TLS, but this is a port for plain HTTP")
        while head.startswith(b"\r\n"):
            del head[:2]
            self.empty_lines += 1
            if self.empty_lines > MAX_EMPTY_LINES:
                raise MalformedRequestError(
                    "there are too many empty lines before the request line"
                )
        # Earlier data has been searched already, but may end with the first bytes of HEAD_END.
        end = head.find(HEAD_END, max(0, len(head) - len(data) - len(HEAD_END) + 1))
        size = len(head) if end < 0 else end + len(HEAD_END)
        if size >= self.adj.max_request_header_size:
            self._refuse_large_head(bytes(head[:size]))
        elif end >= 0:
            self.headers_finished = True
            self.header_bytes_received = size
            self.parse_header(bytes(head[:end]))
        else:
            return len(data)
        self.header_plus = bytearray()
        return len(data) - (len(head) - size)

    def _refuse_large_head(self, head: bytes) -> None:
        self.first_line, end, _ = head.partition(b"\r\n")
        is_line_too_long = not end or len(self.first_line) >= self.adj.max_request_header_size
        self._refuse((URITooLong if is_line_too_long else RequestHeaderFieldsTooLarge)(""))

    def _refuse(self, error: BadRequest) -> None:
        self.error = error
        self.completed = True
        self.expect_continue = False

    def parse_header(self, head: bytes) -> None:
        """Parse a complete head without its last empty line; raise MalformedRequestError."""
        self.started_at = time.perf_counter()
        self.first_line, _, section = head.partition(b"\r\n")
        self.command, target, self.version = split_request_line(self.first_line)
        self.request_uri = percent_encoded(target)
        authority, self.path, self.query = split_target(self.command, target)
        self.headers = parse_fields(section)
        check_host(self.headers.get("HOST"), self.version)
        if authority is not None:
            self.headers["HOST"] = authority
        self._expect_body()

    def _expect_body(self) -> None:
        """Decide from the fields whether a body follows, and how its end is found."""
        encoding = self.headers.pop("TRANSFER_ENCODING", None)
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
            self.chunked = True
            self.body_rcv = ChunkedReceiver(OverflowableBuffer(self.adj.inbuf_overflow))
            self.needs_admission = self.is_change
        elif length is not None and (size := content_length(length)):
            self.content_length = size
            if size >= self.adj.max_request_body_size:
                self.needs_admission = self.is_change
                if not self.needs_admission:
                    self._refuse(RequestEntityTooLarge(""))
                    return
            self.body_rcv = FixedStreamReceiver(size, OverflowableBuffer(self.adj.inbuf_overflow))
        # A request without a body is complete and needs no 100 Continue.
        self.completed = self.body_rcv is None
        expect = self.headers.get("EXPECT", "").lower()
        self.expect_continue = (
            expect == "100-continue" and self.version == "1.1" and not self.completed
        )

    @property
    def is_change(self) -> bool:
        """Whether it is to change something over an internal path, with a token, valid or not."""
        return (
            "AUTHORIZATION" in self.headers
            and self.command in UPLOAD_METHODS
            and self.path.startswith("/api/")
            and not self.path.startswith("/api/v1/")
        )

    def accept_body(self, body: UploadBuffer, limit: int) -> None:
        """Receive a large body into the buffer, up to the limit."""
        self.needs_admission = False
        self.upload = body
        # All other requests share the original.
        self.adj = copy(self.adj)
        self.adj.max_request_body_size = limit + 1
        if self.chunked:
            self.body_rcv = ChunkedReceiver(body)
        else:
            self.body_rcv = FixedStreamReceiver(self.content_length, body)

    def refuse_body(self, reason: str) -> None:
        """Have the application respond to a request without its body, and close the connection.

        The length of a chunked body is unknown: it is received up to the usual limit.
        """
        self.needs_admission = False
        if self.chunked:
            return
        self.headers[REFUSED_BODY.removeprefix("HTTP_")] = reason
        self.headers["CONNECTION"] = "close"
        self.headers["CONTENT_LENGTH"] = "0"
        self.body_rcv = None
        self.completed = True
        self.expect_continue = False
        self.is_cut_short = True
