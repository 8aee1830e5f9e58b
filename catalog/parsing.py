"""A request as it comes in: HTTP that has one meaning, or a refusal."""

import re
import time

from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import BadRequest, RequestHeaderFieldsTooLarge

CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class URITooLong(RequestHeaderFieldsTooLarge):
    code = 414
    reason = "URI Too Long"


class RequestTimeout(BadRequest):
    code = 408
    reason = "Request Timeout"


class Parser(HTTPRequestParser):
    """A request as it comes in; whatever could be read in two ways is refused."""

    begun = 0.0  # when its head was there

    def received(self, data: bytes) -> int:
        before = self.header_plus
        consumed = super().received(data)
        if isinstance(self.error, RequestHeaderFieldsTooLarge):
            line, end, _ = (before + data).lstrip().partition(b"\r\n")
            # Waitress stands a request of its own in for one that it has not read.
            self.first_line, self.command, self.request_uri = line, "", ""
            if not end or len(line) >= self.adj.max_request_header_size:
                self.error = URITooLong("")
        # Waitress would wait for the body of a request that has none, or that it has refused.
        if self.error or self.body_rcv is None:
            self.expect_continue = False
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        self.begun = time.perf_counter()
        line, end, fields = header_plus.partition(b"\r\n")
        self.first_line = line
        if CONTROL.search(line):
            raise ParsingError("Start line has a control character")
        if not line.endswith((b" HTTP/1.1", b" HTTP/1.0")):
            raise ParsingError("Start line does not end in HTTP/1.1 or HTTP/1.0")
        if b"transfer-encoding" in fields.lower():
            check_framing(line, fields)
        if not line.isascii():
            # An address may come as people type it: curl sends "q=天気" in UTF-8, as it was given.
            line = re.sub(rb"[\x80-\xff]", lambda byte: b"%%%02X" % ord(byte[0]), line)
        try:
            super().parse_header(line + end + fields)
        except ValueError as error:  # an address or a length that Python cannot make sense of
            raise ParsingError("Start line or Content-Length is invalid") from error


def check_framing(line: bytes, fields: bytes) -> None:
    """Refuse what another server on the way could take for a body of another length."""
    values = re.findall(rb"(?m)^transfer-encoding:[ \t]*(.*?)[ \t]*\r?$", fields.lower())
    if values != [b"chunked"] or not line.endswith(b"1.1"):
        raise ParsingError("Transfer-Encoding must be chunked, once, and in HTTP/1.1")
    if re.search(rb"(?im)^content-length", fields):
        raise ParsingError("Transfer-Encoding and Content-Length exclude each other")
