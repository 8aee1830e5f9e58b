"""Malformed or ambiguous requests: refused in JSON, without an effect on other requests."""

import json
import socket
from contextlib import suppress

import pytest
from conftest import Server

from catalog.serving.http_syntax import MAX_HEAD

CLOCK = b"/api/v1/widgets/acme/clock"
HOST = b"Host: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"0\r\n\r\nGET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def talk(server: Server, sent: bytes) -> bytes:
    """Send these bytes and return all that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def parse_error(response: bytes) -> tuple[int, str]:
    """The status and the message of the only response, which must have the shape of an error."""
    head, _, body = response.partition(b"\r\n\r\n")
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


def host(*values: bytes, version: bytes = b"1.1") -> bytes:
    """A request with these Host fields."""
    lines = b"".join(b"Host: " + value + b"\r\n" for value in values)
    return b"GET " + CLOCK + b" HTTP/" + version + b"\r\n" + lines + b"\r\n"


def chunks(body: bytes) -> bytes:
    return post(CHUNKED) + body


BAD_REQUEST_LINES = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "one word": b"GET\r\n\r\n",
    "empty target": head(b"GET  HTTP/1.1"),
    "space in the target": head(b"GET /api/ health HTTP/1.1"),
    "space at the start": head(b" GET " + CLOCK + b" HTTP/1.1"),
    "tab for a space": head(b"GET\t" + CLOCK + b" HTTP/1.1"),
    "line ended by LF": head().replace(b"\r\n", b"\n", 1),
    "all lines ended by LF": head().replace(b"\r\n", b"\n"),
    "incomplete, but a line ended by LF": b"GET " + CLOCK + b" HTTP/1.1\n",
    "no version": head(b"GET " + CLOCK),
    "version 2": head(b"GET " + CLOCK + b" HTTP/2.0"),
    "lower case": head(b"get " + CLOCK + b" HTTP/1.1"),
    "method that is no token": head(b"GE(T " + CLOCK + b" HTTP/1.1"),
    "method of 10 kB": head(b"G" * 10_000 + b" " + CLOCK + b" HTTP/1.1"),
    "CONNECT": head(b"CONNECT localhost:80 HTTP/1.1"),
    "NUL in the target": head(b"GET /api/\x00 HTTP/1.1"),
    "line feed in the target": head(b"GET /api/\nx HTTP/1.1"),
    "fragment": head(b"GET " + CLOCK + b"#x HTTP/1.1"),
    "relative path": head(b"GET api/health HTTP/1.1"),
    "asterisk": head(b"GET * HTTP/1.1"),
    "scheme that is not served": head(b"GET ftp://localhost/ HTTP/1.1"),
    "URL with a user": head(b"GET http://user@localhost/ HTTP/1.1"),
    "URL with a broken host": head(b"GET http://[ HTTP/1.1"),
}

BAD_HOSTS = {
    "none": host(),
    "two": host(b"a", b"b"),
    "two in HTTP/1.0": host(b"a", b"b", version=b"1.0"),
    "a list": host(b"a, b"),
    "space": host(b"a b"),
    "user": host(b"a@b"),
    "raw UTF-8": host("天.example".encode()),
    "only a port": host(b":80"),
    "port out of range": host(b"a:65536"),
    "IPv6 without brackets": host(b"::1"),
    "IPv6 with a zone": host(b"[fe80::1%25eth0]"),
}

BAD_FIELDS = {
    "NUL": head(fields := b"GET / HTTP/1.1", b"X: a\x00b\r\n"),
    "line feed": head(fields, b"X: a\nY: b\r\n"),
    "carriage return": head(fields, b"X: a\rY: b\r\n"),
    "space before a colon": head(fields, b"Content-Length : 5\r\n"),
    "space before a name": head(fields, b" Content-Length: 5\r\n"),
    "folded value": head(fields, b"X: a\r\n b\r\n"),
    "no name": head(fields, b": x\r\n"),
    "no colon": head(fields, b"what\r\n"),
    "name in parentheses": head(fields, b"(a): c\r\n"),
}

BAD_FRAMING = {
    "length in words": post(b"Content-Length: five\r\n"),
    "negative length": post(b"Content-Length: -5\r\n"),
    "signed length": post(b"Content-Length: +5\r\n"),
    "length with a superscript": post(b"Content-Length: \xb2\r\n"),
    "empty length": post(b"Content-Length: \r\n"),
    "two lengths": post(b"Content-Length: 5\r\n", b"Content-Length: 6\r\n") + b"hello",
    "the same length twice": post(b"Content-Length: 5\r\n" * 2) + b"hello",
    "a list of lengths": post(b"Content-Length: 5, 5\r\n") + b"hello",
    "length of 5,000 digits": post(b"Content-Length: " + b"9" * 5_000 + b"\r\n"),
    "length and chunks": post(b"Content-Length: 5\r\n", CHUNKED) + SMUGGLED,
    "chunks and length": post(CHUNKED, b"Content-Length: 5\r\n") + SMUGGLED,
    "chunks and no length": post(CHUNKED, b"Content-Length: 0\r\n") + SMUGGLED,
    "chunks twice": post(CHUNKED * 2) + SMUGGLED,
    "a list of chunks": post(b"Transfer-Encoding: chunked, chunked\r\n") + SMUGGLED,
    "chunks and an empty element": post(b"Transfer-Encoding: chunked,\r\n") + SMUGGLED,
    "chunks with a parameter": post(b"Transfer-Encoding: chunked;q=1\r\n") + SMUGGLED,
    "chunks and identity": post(CHUNKED, b"Transfer-Encoding: identity\r\n") + SMUGGLED,
    "identity": post(b"Transfer-Encoding: identity\r\n", b"Content-Length: 5\r\n") + b"hello",
    "gzip and chunks": post(b"Transfer-Encoding: gzip, chunked\r\n"),
    "almost chunked": post(b"Transfer-Encoding: xchunked\r\n") + SMUGGLED,
    "an empty encoding": post(b"Transfer-Encoding:\r\n", b"Content-Length: 5\r\n") + b"hello",
    "a folded encoding": post(b"Transfer-Encoding:\r\n chunked\r\n", b"Content-Length: 5\r\n"),
    "space after the encoding's name": post(b"Transfer-Encoding : chunked\r\n") + SMUGGLED,
    "vertical tab in an encoding": post(b"Transfer-Encoding: \x0bchunked\r\n"),
    "chunks in 1.0": head(b"POST " + CLOCK + b" HTTP/1.0", CHUNKED) + SMUGGLED,
}

BAD_CHUNKS = {
    "a size that is no number": chunks(b"zz\r\nhello\r\n0\r\n\r\n"),
    "a signed size": chunks(b"+5\r\nhello\r\n0\r\n\r\n"),
    "a size with an underscore": chunks(b"0_5\r\nhello\r\n0\r\n\r\n"),
    "a size of 17 digits": chunks(b"00000000000000005\r\nhello\r\n0\r\n\r\n"),
    "no size": chunks(b"\r\n5\r\nhello\r\n0\r\n\r\n"),
    "space after a size": chunks(b"5 \r\nhello\r\n0\r\n\r\n"),
    "a size ended by LF": chunks(b"5\nhello\r\n0\r\n\r\n"),
    "a chunk longer than its size": chunks(b"3\r\nhello\r\n0\r\n\r\n"),
    "a chunk ended by LF": chunks(b"5\r\nhello\n0\r\n\r\n"),
    "NUL in an extension": chunks(b"5;\x00\r\nhello\r\n0\r\n\r\n"),
    "an extension without a value": chunks(b"5;a=\r\nhello\r\n0\r\n\r\n"),
    "an extension with half a quote": chunks(b'5;a="b\r\nhello\r\n0\r\n\r\n'),
    "a carriage return in an extension": chunks(b'5;a="\r"\r\nhello\r\n0\r\n\r\n'),
    "a trailer without a colon": chunks(b"0\r\nwhat\r\n\r\n"),
    "a folded trailer": chunks(b"0\r\nX: a\r\n b\r\n\r\n"),
    "a trailer ended by LF": chunks(b"0\r\nX: a\n\r\n"),
}

BAD_REQUESTS = {
    f"{part}: {name}": sent
    for part, requests in {
        "request line": BAD_REQUEST_LINES,
        "Host": BAD_HOSTS,
        "field": BAD_FIELDS,
        "framing": BAD_FRAMING,
        "chunk": BAD_CHUNKS,
    }.items()
    for name, sent in requests.items()
}


@pytest.mark.parametrize("sent", BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_a_malformed_request_is_refused_and_nothing_after_it_is_read(
    server: Server, sent: bytes
) -> None:
    status, message = parse_error(talk(server, sent))
    assert (status, message.startswith("Malformed HTTP request: ")) == (400, True)
    response, _ = server.request("GET", "/api/health")
    assert response.status == 200


BODY_OF_A_MEGABYTE = post(b"Content-Length: 1000000\r\n") + b"x" * 1_000_000
BODY_IN_CHUNKS = chunks(b"ffff\r\n" + b"x" * 65535 + b"\r\n0\r\n\r\n")
LONG_PATH = head(b"GET /" + b"a" * 16_400 + b" HTTP/1.1")
LONG_QUERY = head(b"GET /api/v1/widgets/search?q=" + b"a" * 100_000 + b" HTTP/1.1")
LONG_EXTENSION = b"5;" + b"a" * 5_000 + b"\r\nhello\r\n"
TOO_LARGE = {
    "body by its length": (BODY_OF_A_MEGABYTE, 413),
    "body with a continue": (post(b"Content-Length: 1000000\r\nExpect: 100-continue\r\n"), 413),
    "body in chunks": (BODY_IN_CHUNKS, 413),
    "chunk size of 100 kB": (chunks(b"0" * 100_000 + b"\r\n\r\n"), 400),
    "trailer of 100 kB": (chunks(b"0\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"), 400),
    "101 trailers": (chunks(b"0\r\n" + b"X: y\r\n" * 102 + b"\r\n"), 400),
    "5 kB of an extension and 5 kB of a trailer": (
        chunks(LONG_EXTENSION + b"0\r\nX: " + b"y" * 5_000 + b"\r\n\r\n"),
        400,
    ),
    "9 kB of a trailer after 10 kB": (
        chunks(b"2710\r\n" + b"x" * 10_000 + b"\r\n0\r\nX: " + b"y" * 9_000 + b"\r\n\r\n"),
        400,
    ),
    "chunks of a byte": (chunks(b"1\r\na\r\n" * 2_500 + b"0\r\n\r\n"), 400),
    "path": (LONG_PATH, 414),
    "query": (LONG_QUERY, 414),
    "one header": (head(fields, b"X: " + b"a" * 100_000 + b"\r\n"), 431),
    "a head of 16 KiB and a byte": (
        head(fields, b"X: " + b"y" * (MAX_HEAD + 1 - len(head(fields, b"X: \r\n"))) + b"\r\n"),
        431,
    ),
    "101 headers": (head(fields, b"X: y\r\n" * 100), 431),
    "a megabyte of nothing": (b"a" * 1_000_000, 414),
}


@pytest.mark.parametrize(("sent", "status"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_a_request_that_is_too_large_is_refused_while_the_client_still_sends(
    server: Server, sent: bytes, status: int
) -> None:
    assert parse_error(talk(server, sent))[0] == status


# A refused request, and whether it is one to the public API.
REFUSED = {
    "long query": (LONG_QUERY, True),
    "body by its length": (BODY_OF_A_MEGABYTE, True),
    "body in chunks": (BODY_IN_CHUNKS, True),
    "malformed chunk": (chunks(b"zz\r\n"), True),
    "invalid Host": (host(b"a b"), True),
    "absolute URL": (head(b"GET http://localhost" + CLOCK + b"#x HTTP/1.1"), True),
    "encoded path": (head(b"GET " + CLOCK.replace(b"api", b"%61pi") + b"#x HTTP/1.1"), True),
    "long path": (LONG_PATH, False),
    "registry": (head(b"GET /api/widgets/acme/registry.json#x HTTP/1.1"), False),
    "one word": (b"GET\r\n\r\n", False),
}


@pytest.mark.parametrize(("sent", "is_public"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_has_cors_and_cache_headers_under_the_public_api_only(
    server: Server, sent: bytes, is_public: bool
) -> None:
    response = talk(server, sent)
    parse_error(response)
    assert response.count(b"Access-Control-Allow-Origin: *\r\n") == is_public
    assert response.count(b"Access-Control-Expose-Headers: ETag, Retry-After\r\n") == is_public
    assert response.count(b"Cache-Control: no-cache\r\n") == is_public


def health(*fields: bytes) -> bytes:
    return head(b"GET /api/health HTTP/1.0", *fields)


def last_chunks(body: bytes) -> bytes:
    return post(CHUNKED, b"Connection: close\r\n") + body


UNUSUAL_BUT_VALID = {
    "no host": b"GET /api/health HTTP/1.0\r\n\r\n",
    "many empty lines before": b"\r\n" * 100 + health(),
    "an absolute URL": head(b"GET HTTPS://a/api/health HTTP/1.0"),
    "an absolute URL without a path": head(b"GET http://other?q=clock HTTP/1.0"),
    "an empty host": host(b"", version=b"1.0"),
    "a host with an empty port": host(b"localhost:", version=b"1.0"),
    "a host of every permitted character": host(b"a-._~!$&'()*+,;=%C3%A9", version=b"1.0"),
    "an IPv6 host": host(b"[2001:db8::1.2.3.4]:65535", version=b"1.0"),
    "a value that contains a header name": health(b"Referer: http://a/?transfer-encoding: x\r\n"),
    "an empty header": health(b"X:\r\n"),
    "a header of every permitted character": health(b"!#$%&'*+-.^`|~09azAZ: \t!\"~\x80\xff\r\n"),
    "a head of exactly 16 KiB": health(
        b"X: " + b"y" * (MAX_HEAD - len(health(b"X: \r\n"))) + b"\r\n"
    ),
    "100 headers": health(b"X: y\r\n" * 99),
    "a length between spaces": post(b"Content-Length: \t 5 \t\r\nConnection: close\r\n") + b"hello",
    "a length with an underscore": post(b"Content_Length: 5\r\nConnection: close\r\n"),
    "an empty continue": head(fields, b"Expect: 100-continue\r\nConnection: close\r\n"),
    "chunks in lower case": post(b"transfer-encoding: \t Chunked \t\r\nConnection: close\r\n")
    + b"0\r\n\r\n",
    "a chunk size with zeros": last_chunks(b"0000000000000005\r\nhello\r\n00\r\n\r\n"),
    "500 chunks of a byte": last_chunks(b"1\r\na\r\n" * 500 + b"0\r\n\r\n"),
    "chunk extensions": last_chunks(b'5;a;b=c;d="e f"\r\nhello\r\n0;a\r\n\r\n'),
    "spaces in chunk extensions": last_chunks(
        b'5 ; a\t=  b ;c = "d" ; e\r\nhello\r\n0\t;a\r\n\r\n'
    ),
    "a chunk extension of 5 kB": last_chunks(LONG_EXTENSION + b"0\r\n\r\n"),
    "100 trailers": last_chunks(b"0\r\n" + b"X: y\r\n" * 100 + b"\r\n"),
}


@pytest.mark.parametrize("sent", UNUSUAL_BUT_VALID.values(), ids=UNUSUAL_BUT_VALID.keys())
def test_an_unusual_but_unambiguous_request_is_served(server: Server, sent: bytes) -> None:
    assert talk(server, sent).split()[1] == b"200"


@pytest.mark.parametrize("path", [b'|{<">}^`\\/x', b"\xff\xfe/x", b"%zz/%", b"%00/%00"])
def test_a_path_of_unusual_bytes_is_404(server: Server, path: bytes) -> None:
    response = talk(server, head(b"GET /api/v1/widgets/" + path + b" HTTP/1.0"))
    assert response.split()[1] == b"404"


def test_a_refused_head_request_has_no_body(server: Server) -> None:
    response = talk(server, head(b"HEAD " + CLOCK + b" HTTP/1.1", b"Content-Length: 1000000\r\n"))
    assert response.split()[1] == b"413"
    assert response.partition(b"\r\n\r\n")[2] == b""


def test_the_host_of_the_target_wins_over_the_header(server: Server) -> None:
    page = talk(server, head(b"GET http://catalog.example:81/docs HTTP/1.0"))
    assert b"http://catalog.example:81/api/" in page
    assert b"http://localhost/api/" not in page


def test_a_pipelined_request_begins_where_a_chunked_body_ends(server: Server) -> None:
    body = b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"
    responses = talk(server, chunks(body) + head(b"GET /api/version HTTP/1.0"))
    assert responses.count(b"HTTP/1.") == 2
    assert b'{"success":true}' in responses
    assert b'{"version":' in responses
