"""HTTP client of the mirror: retries, redirects, sizes, and one deadline for a whole request."""

import gzip
import json
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import document
from flask import Flask
from mirrors import run_mirror
from ports import free_port
from upstreams import (
    SEARCH,
    FakeUpstream,
    Fault,
    body,
    hang_up,
    redirect,
    silent,
    status,
    trickle,
)

from catalog.mirror import upstream as upstream_module
from catalog.mirror.connections import UpstreamError
from catalog.mirror.upstream import Upstream

CLOCK = "/api/v1/widgets/acme/clock"


@pytest.fixture
def server() -> Iterator[FakeUpstream]:
    with closing(FakeUpstream(document())) as running:
        yield running


@pytest.fixture
def client(server: FakeUpstream) -> Iterator[Upstream]:
    with closing(Upstream(server.url)) as client:
        yield client


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the waits between retries, in seconds, instead of waiting."""
    waits: list[float] = []
    monkeypatch.setattr("catalog.mirror.upstream.time.sleep", waits.append)
    return waits


RETRIES: dict[str, tuple[list[Fault], list[float]]] = {
    "waits double": ([status(500), hang_up, status(500), hang_up], [0, 1, 2, 4]),
    "429 with Retry-After": ([status(429, Retry_After="7"), status(429, Retry_After="0")], [7, 1]),
    "503 with Retry-After": ([status(503, Retry_After="60")], [60]),
}


@pytest.mark.parametrize(("faults", "expected"), RETRIES.values(), ids=RETRIES)
def test_retry_waits(
    server: FakeUpstream,
    client: Upstream,
    waits: list[float],
    faults: list[Fault],
    expected: list[float],
) -> None:
    server.fail(CLOCK, *faults)
    assert (client.get(CLOCK).status, waits) == (200, expected)


def test_long_retry_after_is_an_error(
    server: FakeUpstream, client: Upstream, waits: list[float]
) -> None:
    server.fail(CLOCK, status(429, Retry_After="3600"))
    with pytest.raises(UpstreamError, match="the response status is 429"):
        client.get(CLOCK)
    assert (waits, len(server.requests)) == ([], 1)


@pytest.mark.parametrize(
    "value", ["soon", "-5", "", "9" * 5000, "Fri, 31 Dec 99999999999 23:59:59 GMT"]
)
def test_invalid_retry_after_is_ignored(
    server: FakeUpstream, client: Upstream, waits: list[float], value: str
) -> None:
    server.fail(CLOCK, status(503, Retry_After=value), status(429, Retry_After=value))
    assert client.get(CLOCK).status == 200
    assert waits == [0, 1]


def test_redirect_to_another_path_and_host_is_followed(
    server: FakeUpstream, client: Upstream
) -> None:
    with closing(FakeUpstream(document(icon="elsewhere"))) as other:
        server.fail(CLOCK, redirect("/moved"))
        server.fail("/moved", redirect(other.url + CLOCK))
        assert json.loads(client.get(CLOCK).body) == document(icon="elsewhere")


def test_redirect_from_https_to_http_is_refused(
    server: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.encrypt(tmp_path, monkeypatch)
    server.fail(CLOCK, redirect("/moved"))
    server.fail("/moved", redirect("http://b.example/x"))
    with (
        closing(Upstream(server.url)) as client,
        pytest.raises(UpstreamError, match=r"redirects from https to 'http://b\.example/x'"),
    ):
        client.get(CLOCK)
    assert server.paths() == [CLOCK, "/moved"]


def bomb(layers: int) -> bytes:
    """Return a body that becomes 64 MB when that many layers of gzip are removed."""
    content = b" " * 64_000_000
    for _ in range(layers):
        content = gzip.compress(content, 1)
    return content


@pytest.mark.parametrize("layers", [1, 2])
def test_compressed_body_beyond_the_limit_is_refused_without_its_memory(
    server: FakeUpstream, client: Upstream, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    monkeypatch.setattr(upstream_module, "MAX_RESPONSE_BYTES", 1_000_000)
    server.fail(CLOCK, body(bomb(layers), Content_Encoding=", ".join(["gzip"] * layers)))
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamError, match="larger than 1000000 bytes"):
            client.get(CLOCK)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6_000_000


def test_server_that_does_not_respond_times_out(
    server: FakeUpstream, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setattr("catalog.mirror.connections.READ_SECONDS", 0.05)
    server.fail(CLOCK, *[silent] * 100)
    with (
        closing(Upstream(server.url)) as client,
        pytest.raises(UpstreamError, match="does not respond in time"),
    ):
        client.get(CLOCK)
    assert waits == [0, 1, 2, 4]


def test_unreachable_host_is_not_tried_again_for_each_request(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Upstream(f"http://127.0.0.1:{free_port()}")) as client:
        for _ in range(3):
            with pytest.raises(UpstreamError, match=r"^127\.0\.0\.1 cannot be reached$"):
                client.get(CLOCK)
            # As if the time had passed.
            monkeypatch.setattr("catalog.mirror.connections.MAX_UNREACHABLE_SECONDS", 0)
    assert waits == [0, 1, 2, 4]


def test_gzip_is_requested_and_decompressed(server: FakeUpstream, client: Upstream) -> None:
    compressed = gzip.compress(json.dumps(document()).encode())
    server.fail(CLOCK, body(compressed, Content_Encoding="gzip"))
    assert json.loads(client.get(CLOCK).body) == document()
    assert server.request_headers(CLOCK)[0]["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize("etag", ["x" * 2000, "a\0b", "a\tb", "\xfc"])
def test_unusable_etag_is_ignored(server: FakeUpstream, client: Upstream, etag: str) -> None:
    server.fail(CLOCK, body(b"{}", ETag=f'"{etag}"'))
    assert client.get(CLOCK).etag is None


def test_one_connection_is_used_for_many_requests(server: FakeUpstream, client: Upstream) -> None:
    etag = client.get(CLOCK).etag
    for path in (CLOCK, "/api/v1/widgets/acme/none", CLOCK):
        client.get(path, etag)
    assert (len(server.requests), server.connections) == (4, 1)


BUNDLE = "/bundles/1.0.0.js"
SECONDS = 0.1
TOO_SLOW = "the server does not respond in time"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = bytes.fromhex("1f8b08000000000000ff")
# The beginning of a response, and what is then sent again and again.
TRICKLES = {
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers of 100 Continue": (b"HTTP/1.1 100 Continue\r\nx: ", b"x"),
    "status line": (b"HTTP/1.1 200 O", b"K"),
    "header": (OK + b"x: ", b"x"),
    "headers": (OK, b"x: y\r\n"),
    "body": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "body without a length": (OK + b"\r\n", b" "),
    "chunk size": (CHUNKED, b"0"),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "trailer": (CHUNKED + b"0\r\n", b"x: y\r\n"),
    "compressed body of length 0": (
        OK + b"Content-Encoding: gzip\r\n\r\n" + GZIP,
        b"\x00\x00\x00\xff\xff",
    ),
}


def assert_too_slow(url: str) -> None:
    """Assert that a request for the clock fails at the deadline."""
    with (
        closing(Upstream(url, max_seconds=SECONDS)) as client,
        pytest.raises(UpstreamError, match=f"^{TOO_SLOW}$"),
    ):
        client.get(CLOCK)


@pytest.mark.parametrize(("beginning", "more"), TRICKLES.values(), ids=TRICKLES)
def test_trickling_response_ends_at_the_deadline(
    server: FakeUpstream, beginning: bytes, more: bytes
) -> None:
    server.fail(CLOCK, trickle(beginning, more))
    assert_too_slow(server.url)
    assert len(server.requests) <= 1


@pytest.mark.parametrize("part", ["100 Continue", "status line", "chunk size", "body"])
def test_trickling_response_over_tls_ends_at_the_deadline(
    server: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    server.encrypt(tmp_path, monkeypatch)
    with closing(Upstream(server.url)) as client:
        assert client.get(CLOCK).status == 200
    server.fail(CLOCK, trickle(*TRICKLES[part]))
    assert_too_slow(server.url)


def test_tls_handshake_without_a_reply_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert_too_slow(f"https://127.0.0.1:{listener.getsockname()[1]}")


def give_addresses(monkeypatch: pytest.MonkeyPatch, name: str, addresses: list[str]) -> None:
    """Let the resolver find these addresses of a name."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **keywords: Any) -> list[Any]:
        found = addresses if host == name else [host]
        return [each for one in found for each in resolve(one, *arguments, **keywords)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_all_addresses_of_a_host_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        # The kernel drops connections while the queue of a listening socket is full.
        for _ in range(3):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(address)
        give_addresses(monkeypatch, "many.example", ["127.0.0.1"] * 10_000)
        assert_too_slow(f"http://many.example:{address[1]}")


def test_next_address_is_tried_if_one_refuses(
    server: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server listens on the second one only.
    give_addresses(monkeypatch, "two.example", ["127.0.0.2", "127.0.0.1"])
    with closing(Upstream(f"http://two.example:{server.port}")) as client:
        assert client.get(CLOCK).status == 200


def test_retries_share_one_deadline(server: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_RETRY_SECONDS", 0)
    # A retry waits until the deadline has passed.
    monkeypatch.setattr(
        "catalog.mirror.upstream.time.sleep", lambda _: server.stopping.wait(2 * SECONDS)
    )
    server.fail(CLOCK, status(503, Retry_After="1"), status(503, Retry_After="1"))
    assert_too_slow(server.url)
    assert len(server.requests) <= 2


@pytest.mark.parametrize("path", [SEARCH, CLOCK, BUNDLE], ids=["list", "detail", "bundle"])
def test_command_reports_the_deadline(
    mirror_app: Flask, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.Upstream", partial(Upstream, max_seconds=SECONDS))
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"tick")))
    upstream.fail(path, trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert result.exit_code == 1
    assert TOO_SLOW in result.stderr
