"""The parser and llhttp, the parser of Node.js, read the same requests in the same way."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from serving.test_malformed_http import BAD_REQUESTS, TOO_LARGE, UNUSUAL_BUT_VALID

from catalog.serving.http_parser import HttpRequest
from catalog.serving.http_syntax import percent_encoded

httptools = pytest.importorskip("httptools")

MAX_BODY = 1024 * 1024  # bytes
# How requests are cut into pieces.
SIZES = (1, 2, 7, 64, 1 << 20)
GENERATED = 4_000


@dataclass
class Message:
    """What a parser has read of the first request."""

    method: str = ""
    target: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_complete: bool = False
    error: str = field(default="", compare=False)


def pieces_of(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def read(data: bytes, size: int) -> Message:
    """What the parser of the service reads."""
    parser = HttpRequest(MAX_BODY)
    for piece in pieces_of(data, size):
        while piece and not parser.is_complete:
            piece = piece[parser.receive(piece) :]
    parser.body.seek(0)
    return Message(
        parser.method,
        parser.request_uri,
        parser.headers,
        parser.body.read(),
        parser.is_complete and not parser.error,
        parser.error.message if parser.error else "",
    )


class Events:
    """What llhttp reports of the first request."""

    def __init__(self) -> None:
        self.message, self._target = Message(), b""
        self._has_head = False
        self.parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        if not self.message.is_complete:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        message = self.message
        # Trailers come after the head.
        if message.is_complete or self._has_head or b"_" in name:
            return
        key = name.decode("latin-1").upper().replace("-", "_")
        key = key if key in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{key}"
        text = value.decode("latin-1").strip(" \t")
        message.fields[key] = f"{message.fields[key]}, {text}" if key in message.fields else text

    def on_headers_complete(self) -> None:
        if not self.message.is_complete:
            self._has_head = True
            self.message.method = self.parser.get_method().decode()
            self.message.target = percent_encoded(self._target)

    def on_body(self, body: bytes) -> None:
        if not self.message.is_complete:
            self.message.body += body

    def on_message_complete(self) -> None:
        self.message.is_complete = True


def read_with_llhttp(data: bytes, size: int) -> Message:
    events = Events()
    try:
        for piece in pieces_of(data, size):
            events.parser.feed_data(piece)
            if events.message.is_complete:
                break
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        events.message.error = str(error)
    message = events.message
    # The parser gives the application the length that a chunked body turned out to have.
    if message.fields.pop("HTTP_TRANSFER_ENCODING", None) is not None:
        message.fields["CONTENT_LENGTH"] = str(len(message.body))
    # The host of an absolute target wins.
    _, scheme, rest = message.target.partition("://")
    if scheme and not message.target.startswith("/"):
        message.fields["HTTP_HOST"] = rest.partition("/")[0].partition("?")[0]
    return message


METHODS = [b"GET", b"POST", b"PUT", b"OPTIONS", b"HEAD", b"PATCH", b"DELETE"]
TARGETS = [b"/", b"/a/b?c=d&e", b"*", b"http://h.example/x?y", b"https://h:81", b"/\xe5\xa4\xa9"]
TARGETS += [b"/%41%zz", b"//a", b"/a?b?c", b"/;=~|^"]
FIELDS = [b"Host: a", b"Host: a", b"Host: [::1]:80", b"host:a.example:8080", b"X: \t y \t", b"X-Y:"]
FIELDS += [b"X: a,b", b"X: c", b"X_Y: z", b"Accept: */*", b"Connection: close", b"Cookie: a=b; c"]
# Without Connection: upgrade, after which llhttp leaves the body to its caller.
FIELDS += [b"Expect: 100-continue", b"Upgrade: h2c", b"x: \x80\xff"]
FIELDS += [b"Content-Type: text/plain", b"Keep-Alive: 5", b"TE: trailers", b"!#$%&'*+-.^`|~: 1"]
LENGTHS = [b"Content-Length: 5", b"content-length:\t5 ", b"Content-Length: 005"]
CHUNKED = [b"Transfer-Encoding: chunked", b"transfer-encoding:\tChunked\t"]
CHUNKS = [b"5\r\nhello\r\n", b"1;a=b\r\nx\r\n", b'2;a="b c";d\r\nxy\r\n', b"00a\r\n0123456789\r\n"]
CHUNKS += [b"3 ;a\t= b\r\nxyz\r\n"]
LAST = [b"0\r\n\r\n", b"000;x\r\n\r\n", b"0\r\nX: y\r\nZ:\r\n\r\n"]
BYTES = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"0",
    b"5",
    b"a",
    b"\0",
    b"\xff",
    b"#",
]


def generate(rng: Random) -> bytes:
    """A request that is valid, or was before up to two bytes of it changed."""
    version = rng.choice([b"1.1", b"1.1", b"1.1", b"1.0"])
    line = b"%s %s HTTP/%s" % (rng.choice(METHODS), rng.choice(TARGETS), version)
    fields, body = rng.choices(FIELDS, k=rng.randrange(5)), b""
    fields += [b"Host: a"] * (rng.random() < 0.6)
    kind = rng.randrange(4)
    if kind in (1, 3):
        fields.append(rng.choice(LENGTHS))
        body = b"hello"
    if kind == 2 or (kind == 3 and rng.random() < 0.2):
        fields.append(rng.choice(CHUNKED))
        body = b"".join(rng.choices(CHUNKS, k=rng.randrange(4))) + rng.choice(LAST)
    rng.shuffle(fields)
    request = bytearray(b"\r\n".join([line, *fields, b"", body]))
    for _ in range(rng.choice([0, 0, 1, 2])):
        start = rng.randrange(len(request))
        request[start : start + rng.randrange(3)] = rng.choice([b"", *BYTES])
    # A request that follows must not be read as a part of it.
    return bytes(request) + b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"


# What the parser accepts and llhttp refuses.
EXCEPTIONS = {
    "raw bytes over 127 in the target, as curl sends them": re.compile(rb"[^\r]*[\x80-\xff]"),
    "a method that is not registered": re.compile(rb"(?!(%s) )" % b"|".join(METHODS)),
    "white space in chunk extensions": re.compile(rb"(?s).*\r\n[0-9A-Fa-f]+[^\r]*[ \t]"),
    "a tab after chunked": re.compile(rb"(?is).*\r\ntransfer-encoding:[ \t]*chunked *\t"),
}


def compare(data: bytes, size: int) -> str:
    """Return how the two parsers agree; fail if they read different requests."""
    ours, theirs = read(data, size), read_with_llhttp(data, size)
    if ours.is_complete and not theirs.is_complete:
        start = data.lstrip(b"\r\n")
        reasons = [name for name, pattern in EXCEPTIONS.items() if pattern.match(start)]
        assert reasons, (data, size, theirs)
        return reasons[0]
    if ours.is_complete:
        assert ours == theirs, (data, size)
        return "accepted"
    # Otherwise a part of the next request would be read as a part of this one.
    assert ours.error or not theirs.is_complete, (data, size)
    return "refused"


def test_hand_written_requests_are_read_as_llhttp_reads_them() -> None:
    large = [sent for sent, _ in TOO_LARGE.values()]
    requests = [*BAD_REQUESTS.values(), *UNUSUAL_BUT_VALID.values(), *large]
    counts = Counter(compare(sent[:20_000], size) for sent in requests for size in SIZES)
    assert counts["accepted"] >= 80
    assert counts["refused"] >= 450


def test_generated_requests_are_read_as_llhttp_reads_them() -> None:
    rng = Random(1)  # noqa: S311
    counts = Counter(compare(generate(rng), rng.choice(SIZES)) for _ in range(GENERATED))
    # So the comparison is not of broken requests only.
    assert counts["accepted"] > GENERATED / 5
    assert set(counts) == {"accepted", "refused", *EXCEPTIONS}
