"""HTTP client of the mirror: one deadline covers a request from connecting to the last byte."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import document
from flask import Flask
from mirrors import run_mirror
from upstreams import SEARCH, FakeUpstream, status, trickle

from catalog.mirror.connections import UpstreamError
from catalog.mirror.upstream import Upstream

CLOCK = "/api/v1/widgets/acme/clock"
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


@pytest.fixture
def server() -> Iterator[FakeUpstream]:
    with closing(FakeUpstream(document())) as running:
        yield running


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
