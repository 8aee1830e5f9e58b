"""Parsing of request heads: in linear time, and exact."""

import time

import pytest
from conftest import Server
from hostile_heads import exchange
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.serving.http_parser import HttpRequest

# For a head of 16 kB. With the parser of waitress, each of these took seconds.
CPU_LIMIT = 0.5  # seconds
MAX_BODY = 1024 * 1024  # bytes

HOST = b"Host: localhost\r\nConnection: close\r\n\r\n"
FORMERLY_QUADRATIC = {
    "digits in the target": (b"GET a://" + b"1" * 16_000 + b" x HTTP/1.1\r\n" + HOST, 400),
    "spaces in a value": (
        b"GET /api/health HTTP/1.1\r\nx:" + b" " * 16_000 + b"a\r\n" + HOST,
        200,
    ),
    "spaces in an encoding": (
        b"GET /api/health HTTP/1.1\r\ntransfer-encoding:a" + b" " * 16_000 + b"b\r\n" + HOST,
        400,
    ),
}


@pytest.mark.parametrize(
    ("sent", "status"), FORMERLY_QUADRATIC.values(), ids=FORMERLY_QUADRATIC.keys()
)
def test_a_long_run_of_one_byte_costs_little_cpu_time(
    server: Server, sent: bytes, status: int
) -> None:
    assert server.request("GET", "/api/health")[0].status == 200
    response, cpu = exchange(server, sent)
    assert int(response.split()[1]) == status
    assert cpu < CPU_LIMIT


def parse(*pieces: bytes) -> tuple[HttpRequest, int]:
    """Give the pieces to a parser; return it and the number of bytes that it used."""
    parser, used = HttpRequest(MAX_BODY), 0
    for piece in pieces:
        while piece and not parser.is_complete:
            count = parser.receive(piece)
            piece, used = piece[count:], used + count
    return parser, used


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


LINE = b"GET / HTTP/1.1\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LARGE = {
    "fields of one name": cut(LINE + b"x:\r\n" * 250_000 + HOST, 4096),
    "head in small pieces": cut(LINE + b"x:" + b"a" * 16_000 + b"\r\n" + HOST, 1),
    "size of a chunk in small pieces": cut(
        LINE + CHUNKED + HOST + b"5;" + b"a" * 1_000_000 + b"\r\nhello\r\n0\r\n\r\n", 16
    ),
    "trailers": cut(LINE + CHUNKED + HOST + b"0\r\n" + b"x:\r\n" * 60_000 + b"\r\n", 4096),
    "small chunks": cut(LINE + CHUNKED + HOST + b"8\r\nabcdefgh\r\n" * 20_000 + b"0\r\n\r\n", 4096),
}
# A body of 160 kB in small chunks is the most expensive of them.
LARGE_CPU_LIMIT = 0.5  # seconds


@pytest.mark.parametrize("pieces", LARGE.values(), ids=LARGE.keys())
def test_a_large_request_is_parsed_or_refused_in_little_cpu_time(pieces: list[bytes]) -> None:
    started = time.thread_time()
    parser, _ = parse(*pieces)
    cpu = time.thread_time() - started
    assert parser.is_complete
    assert cpu < LARGE_CPU_LIMIT


# Parts of requests: most combinations of them get further than the first byte.
PARTS = [
    *(b"GET ", b"OPTIONS ", b"CONNECT ", b"/", b"*", b"http://", b"a", b"[::1]", b":80", b"?q="),
    *(b"#", b"%4", b"\xff", b" ", b"\t", b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"5", b"0"),
    *(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"Host: a\r\n", b"x:", b"X_Y: z\r\n", b";", b'="'),
    *(b"Content-Length: 5\r\n", CHUNKED, b"Expect: 100-continue\r\n", b"5\r\nhello\r\n"),
    *(LINE + b"Host: a\r\n", LINE + b"Host: a\r\n" + CHUNKED + b"\r\n"),
]
noise = st.lists(st.sampled_from(PARTS) | st.binary(max_size=4), max_size=14).map(b"".join)


@pytest.mark.parametrize(("length", "status"), [(1000, 304), (1001, 200)])
def test_a_long_list_of_etags_is_ignored(server: Server, length: int, status: int) -> None:
    etag = server.request("GET", "/openapi.json")[0].headers["ETag"]
    known = f'{etag}, "{"a" * (length - len(etag) - 4)}"'
    assert server.request("GET", "/openapi.json", If_None_Match=known)[0].status == status


@settings(derandomize=True, max_examples=300, deadline=None)
@given(data=noise, size=st.integers(1, 20))
def test_any_bytes_are_parsed_or_refused_however_they_are_cut(data: bytes, size: int) -> None:
    whole, used = parse(data)
    pieces, used_of_pieces = parse(*cut(data, size))
    assert (whole.error and whole.error.status[:3]) in (None, "400")
    assert bool(whole.error) == bool(pieces.error)
    if not whole.error:
        assert used == used_of_pieces
        for name in ("method", "path", "query", "headers", "is_complete"):
            assert getattr(whole, name) == getattr(pieces, name)
        whole.body.seek(0)
        pieces.body.seek(0)
        assert whole.body.read() == pieces.body.read()
