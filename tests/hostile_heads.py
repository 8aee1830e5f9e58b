"""Requests made to be expensive: long runs of each kind of byte in each position of a head."""

import socket
from collections.abc import Iterator
from contextlib import suppress

from conftest import Server

# A little under the limit of a head.
RUN = 16_000  # bytes
# A little under the limit of a body with its chunk-size lines.
BODY_RUN = 20_000  # bytes

PIECES = {
    "digits": b"1",
    "lower case": b"a",
    "upper case": b"A",
    "spaces": b" ",
    "tabs": b"\t",
    "spaces and letters": b" a",
    "commas": b",",
    "list": b"a,",
    "quoted list": b'"a",',
    "semicolons": b";",
    "parameters": b";a=b",
    "colons": b":",
    "slashes": b"/",
    "dots": b".",
    "hyphens": b"-",
    "ranges": b"1-2,",
    "equals": b"=",
    "quotes": b'"',
    "backslashes": b"\\",
    "brackets": b"[",
    "underscores": b"_",
    "ampersands": b"&",
    "arguments": b"a&",
    "plus": b"+",
    "question marks": b"?",
    "percent": b"%",
    "percent-encoded": b"%ff",
    "NUL": b"\0",
    "CR": b"\r",
    "LF": b"\n",
    "CRLF": b"\r\n",
    "fields": b"a:\r\n",
    "folded": b"\r\n a",
    "UTF-8": "天".encode(),
    "combining marks": "\u0301".encode(),
    "invalid UTF-8": b"\xff",
}

SEARCH = b"/api/v1/widgets/search?q=clock"
BUNDLE = b"/api/v1/widgets/acme/clock/1.0.0/bundle.js"
END = b"Connection: close\r\n\r\n"
FIELDS = b"Host: localhost\r\n" + END
CHUNKED = b"POST /api/v1/widgets/acme/clock HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + FIELDS

# What is before and after a run, in the request line.
LINES = {
    "method": (b"", b" /api/health HTTP/1.1"),
    "after the method": (b"GET", b" /api/health HTTP/1.1"),
    "path": (b"GET /", b" HTTP/1.1"),
    "path of the API": (b"GET /api/", b" HTTP/1.1"),
    "path of a widget": (b"GET /api/v1/widgets/acme/", b" HTTP/1.1"),
    "query": (b"GET /api/v1/widgets/search?", b" HTTP/1.1"),
    "parameter": (b"GET /api/v1/widgets/search?q=", b" HTTP/1.1"),
    "query of a page": (b"GET /?q=", b" HTTP/1.1"),
    "scheme": (b"GET ", b"://a/ HTTP/1.1"),
    "authority": (b"GET http://", b"/api/health HTTP/1.1"),
    "authority of an unknown scheme": (b"GET a://", b" x HTTP/1.1"),
    "port": (b"GET http://a:", b"/api/health HTTP/1.1"),
    "before the version": (b"GET /api/health ", b"HTTP/1.1"),
    "version": (b"GET /api/health HTTP/", b"1.1"),
    "after the version": (b"GET /api/health HTTP/1.1", b""),
}

# The same, in a header line.
HEADER_LINES = {
    "field name": (b"", b": x"),
    "before a colon": (b"x", b": y"),
    "after a colon": (b"x:", b"a"),
    "inside a value": (b"x: a", b"b"),
    "end of a value": (b"x: a", b""),
}

HEADERS = [b"Content-Length", b"Transfer-Encoding", b"Connection", b"Expect", b"Upgrade", b"TE"]
HEADERS += [b"If-None-Match", b"If-Modified-Since", b"If-Match", b"If-Range", b"Range", b"Accept"]
HEADERS += [b"Accept-Encoding", b"Accept-Language", b"Cookie", b"Content-Type", b"Authorization"]
HEADERS += [
    b"Origin",
    b"Access-Control-Request-Headers",
    b"Cache-Control",
    b"Referer",
    b"Forwarded",
]
HEADERS += [b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host", b"X-Forwarded-Prefix"]

# The same, in a chunked body.
BODIES = {
    "chunk size": (b"", b"\r\nhello\r\n0\r\n\r\n"),
    "after a chunk size": (b"5", b"\r\nhello\r\n0\r\n\r\n"),
    "name of a chunk extension": (b"5;", b"\r\nhello\r\n0\r\n\r\n"),
    "value of a chunk extension": (b"5;a=", b"\r\nhello\r\n0\r\n\r\n"),
    "quoted value of a chunk extension": (b'5;a="', b'"\r\nhello\r\n0\r\n\r\n'),
    "after a chunk": (b"5\r\nhello", b"\r\n0\r\n\r\n"),
    "trailer name": (b"0\r\n", b": x\r\n\r\n"),
    "trailer value": (b"0\r\nx: a", b"b\r\n\r\n"),
}


def hostile_requests() -> Iterator[tuple[str, bytes]]:
    """Each request, with a description."""
    for piece_name, piece in PIECES.items():
        run = piece * (RUN // len(piece))
        for position, (before, after) in LINES.items():
            yield f"{piece_name} in {position}", before + run + after + b"\r\n" + FIELDS
        for position, (before, after) in HEADER_LINES.items():
            yield f"{piece_name} in {position}", get(SEARCH, before + run + after)
        yield f"{piece_name} in Host", b"GET / HTTP/1.1\r\nHost: " + run + b"\r\n" + END
        yield f"{piece_name} in an IPv6 Host", b"GET / HTTP/1.1\r\nHost: [" + run + b"]\r\n" + END
        for name in HEADERS:
            for before in (b"", b"a", b'"', b"bytes=1-2,"):
                path = BUNDLE if b"Range" in name else SEARCH
                field = name + b": " + before + run + b"b"
                yield f"{piece_name} after {before!r} in {name.decode()}", get(path, field)
        body = piece * (BODY_RUN // len(piece))
        for position, (before, after) in BODIES.items():
            yield f"{piece_name} in {position}", CHUNKED + before + body + after
    yield "small chunks", CHUNKED + b"1\r\na\r\n" * (BODY_RUN // 6) + b"0\r\n\r\n"
    yield "fields of different names", get(SEARCH, *(b"x%d:" % n for n in range(RUN // 9)))


def get(path: bytes, *fields: bytes) -> bytes:
    lines = b"".join(field + b"\r\n" for field in fields)
    return b"GET " + path + b" HTTP/1.1\r\n" + lines + FIELDS


def exchange(server: Server, sent: bytes) -> tuple[bytes, float]:
    """Send the bytes; return the response and the CPU time that the server used."""
    started = server.cpu_seconds()
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        # A server that closes before it has read everything resets the connection.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while data := connection.recv(65536):
                received += data
    return received, server.cpu_seconds() - started
