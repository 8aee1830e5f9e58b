"""What is not HTTP, or could be read in two ways: refused in JSON, and nothing else suffers."""

import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Server, create_demo

CLOCK = b"/api/v1/widgets/acme/clock"
HOST = b"Host: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"0\r\n\r\nGET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def talk(server: Server, sent: bytes) -> bytes:
    """All that the server says to these bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def refusal(answer: bytes) -> tuple[int, str]:
    """The status and the message of the only answer there is, held against the shape of errors."""
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = head.lower().split(b"\r\n")
    assert b"content-type: application/json" in fields
    assert b"x-content-type-options: nosniff" in fields
    assert b"connection: close" in fields
    assert not any(field.startswith(b"server:") for field in fields)
    error = json.loads(body)
    assert list(error) == ["error"]
    assert error["error"].isprintable()
    assert error["error"].endswith(".")
    assert len(error["error"]) < 200
    return int(head.split()[1]), error["error"]


def head(line: bytes = b"GET " + CLOCK + b" HTTP/1.1", *fields: bytes) -> bytes:
    return line + b"\r\n" + HOST + b"".join(fields) + b"\r\n"


def post(*fields: bytes) -> bytes:
    return head(b"POST " + CLOCK + b" HTTP/1.1", *fields)


BAD_REQUESTS = {
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "one word": b"GET\r\n\r\n",
    "two spaces": head(b"GET  " + CLOCK + b" HTTP/1.1"),
    "no version": head(b"GET " + CLOCK),
    "version 2": head(b"GET " + CLOCK + b" HTTP/2.0"),
    "version of nothing": head(b"GET " + CLOCK + b" HTTP/x"),
    "lower case": head(b"get " + CLOCK + b" HTTP/1.1"),
    "method of 10 kB": head(b"g" * 10_000 + b" " + CLOCK + b" HTTP/1.1"),
    "NUL in the address": head(b"GET /api/\x00 HTTP/1.1"),
    "escape in the address": head(b"GET /api/\x1b[2J HTTP/1.1"),
    "line feed in the address": head(b"GET /api/\nx HTTP/1.1"),
    "broken host in the address": head(b"GET http://[ HTTP/1.1"),
    "NUL in a header": head(fields := b"GET / HTTP/1.1", b"X: a\x00b\r\n"),
    "line feed in a header": head(fields, b"X: a\nY: b\r\n"),
    "space before a colon": head(fields, b"Content-Length : 5\r\n"),
    "header without a name": head(fields, b": x\r\n"),
    "header without a colon": head(fields, b"what\r\n"),
    "length in words": post(b"Content-Length: five\r\n"),
    "negative length": post(b"Content-Length: -5\r\n"),
    "signed length": post(b"Content-Length: +5\r\n"),
    "empty length": post(b"Content-Length: \r\n"),
    "two lengths": post(b"Content-Length: 5\r\n", b"Content-Length: 6\r\n") + b"hello",
    "the same length twice": post(b"Content-Length: 5\r\n" * 2) + b"hello",
    "a list of lengths": post(b"Content-Length: 5, 5\r\n") + b"hello",
    "length of 5,000 digits": post(b"Content-Length: " + b"9" * 5_000 + b"\r\n"),
    "length with a continue": post(b"Content-Length: x\r\n", b"Expect: 100-continue\r\n"),
    "length and chunks": post(b"Content-Length: 5\r\n", CHUNKED) + SMUGGLED,
    "chunks and length": post(CHUNKED, b"Content-Length: 5\r\n") + SMUGGLED,
    "chunks twice": post(CHUNKED * 2) + SMUGGLED,
    "a list of chunks": post(b"Transfer-Encoding: chunked, chunked\r\n") + SMUGGLED,
    "chunks and identity": post(CHUNKED, b"Transfer-Encoding: identity\r\n") + SMUGGLED,
    "identity": post(b"Transfer-Encoding: identity\r\n", b"Content-Length: 5\r\n") + b"hello",
    "gzip": post(b"Transfer-Encoding: gzip\r\n"),
    "an encoding of nothing": post(b"Transfer-Encoding:\r\n", b"Content-Length: 5\r\n") + b"hello",
    "an encoding in quotes": post(b'Transfer-Encoding: "chunked"\r\n'),
    "a folded encoding": post(b"Transfer-Encoding:\r\n chunked\r\n", b"Content-Length: 5\r\n"),
    "vertical tab in an encoding": post(b"Transfer-Encoding: \x0bchunked\r\n"),
    "chunks in 1.0": head(b"POST " + CLOCK + b" HTTP/1.0", CHUNKED) + SMUGGLED,
    "a size that is no number": post(CHUNKED) + b"zz\r\nhello\r\n0\r\n\r\n",
    "a negative size": post(CHUNKED) + b"-5\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": post(CHUNKED) + b"3\r\nhello\r\n0\r\n\r\n",
    "a broken extension": post(CHUNKED) + b"5;\x00\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_a_malformed_request_is_refused_and_nothing_after_it_is_read(
    server: Server, sent: bytes
) -> None:
    status, message = refusal(talk(server, sent))
    assert (status, message.startswith("This is not a request of HTTP: ")) == (400, True)
    response, _ = server.request("GET", "/api/health")
    assert response.status == 200


TOO_LARGE = {
    "body by its length": (post(b"Content-Length: 1000000\r\n") + b"x" * 1_000_000, 413),
    "body by its length, with a continue": (
        post(b"Content-Length: 1000000\r\n", b"Expect: 100-continue\r\n"),
        413,
    ),
    "body in chunks": (post(CHUNKED) + b"ffff\r\n" + b"x" * 65535 + b"\r\n0\r\n\r\n", 413),
    "chunk size of 100 kB": (post(CHUNKED) + b"0" * 100_000 + b"\r\n\r\n", 413),
    "trailer of 100 kB": (post(CHUNKED) + b"0\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", 413),
    "path": (head(b"GET /" + b"a" * 100_000 + b" HTTP/1.1"), 414),
    "path of a widget": (head(b"GET " + CLOCK + b"a" * 100_000 + b" HTTP/1.1"), 414),
    "query": (head(b"GET /api/v1/widgets/search?q=" + b"a" * 100_000 + b" HTTP/1.1"), 414),
    "one header": (head(fields, b"X: " + b"a" * 100_000 + b"\r\n"), 431),
    "headers": (head(fields, b"X: y\r\n" * 20_000), 431),
    "a megabyte of nothing": (b"a" * 1_000_000, 414),
}


@pytest.mark.parametrize(("sent", "status"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_is_too_large_is_refused_though_the_client_still_sends(
    server: Server, sent: bytes, status: int
) -> None:
    assert refusal(talk(server, sent))[0] == status


@pytest.mark.parametrize("kind", ["query", "path of a widget", "body by its length"])
def test_a_refusal_under_the_public_api_can_be_read_from_any_origin(
    server: Server, kind: str
) -> None:
    sent, _ = TOO_LARGE[kind]
    assert b"Access-Control-Allow-Origin: *\r\n" in talk(server, sent)


@pytest.mark.parametrize("kind", ["path", "headers", "a megabyte of nothing"])
def test_a_refusal_elsewhere_cannot(server: Server, kind: str) -> None:
    sent, _ = TOO_LARGE[kind]
    assert b"Access-Control" not in talk(server, sent)


def test_a_limit_is_a_setting_and_is_named(tmp_path: Path) -> None:
    long = head(b"GET /" + b"a" * 1_500 + b" HTTP/1.1")
    many = head(fields, b"X: y\r\n" * 500)
    with Server(create_demo(tmp_path / "small.db"), CATALOG_MAX_HEAD_BYTES="1024") as small:
        said = [refusal(talk(small, sent)) for sent in (long, many)]
    assert said == [
        (414, "The address is too long: with the headers it may have 1024 bytes."),
        (431, "The headers are too large: with the address they may have 1024 bytes."),
    ]


ODD_BUT_VALID = {
    "blank lines before": (b"\r\n\r\n" + head(b"GET /api/health HTTP/1.0"), 200),
    "no host": (b"GET /api/health HTTP/1.0\r\n\r\n", 200),
    "a whole address": (head(b"GET http://other/api/health HTTP/1.0"), 200),
    "raw UTF-8 that is none": (head(b"GET /api/v1/widgets/\xff\xfe/x HTTP/1.0"), 404),
    "broken escapes": (head(b"GET /api/v1/widgets/%zz/% HTTP/1.0"), 404),
    "NUL in an escape": (head(b"GET /api/v1/widgets/%00/%00 HTTP/1.0"), 404),
    "an empty continue": (
        head(b"GET /api/health HTTP/1.1", b"Expect: 100-continue\r\nConnection: close\r\n"),
        200,
    ),
    "chunks": (
        post(CHUNKED, b"Connection: close\r\n") + b"5\r\nhello\r\n0\r\n\r\n",
        200,
    ),
    "a header with an underscore": (
        head(b"POST " + CLOCK + b" HTTP/1.0", b"Content_Length: 5\r\n"),
        200,
    ),
}


@pytest.mark.parametrize(("sent", "status"), ODD_BUT_VALID.values(), ids=ODD_BUT_VALID.keys())
def test_what_is_odd_but_has_one_meaning_is_answered(
    server: Server, sent: bytes, status: int
) -> None:
    assert int(talk(server, sent).split()[1]) == status


def test_a_refused_head_request_has_no_body(server: Server) -> None:
    answer = talk(server, head(b"HEAD " + CLOCK + b" HTTP/1.1", b"Content-Length: 1000000\r\n"))
    assert answer.split()[1] == b"413"
    assert answer.partition(b"\r\n\r\n")[2] == b""
