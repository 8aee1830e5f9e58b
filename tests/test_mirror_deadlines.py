"""No server can hold a mirror: one deadline covers an exchange from connecting to its last byte."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from builders import document
from upstreams import SEARCH, FakeUpstream, dribble, status

from app import create_app
from catalog.mirror.upstream import Upstream, UpstreamError

CLOCK = "/api/v1/widgets/acme/clock"
BUNDLE = "/bundles/1.0.0.js"
SECONDS = 0.3
TOO_SLOW = "does not complete its response within 0 seconds"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = bytes.fromhex("1f8b08000000000000ff")
HELD = {
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
    "encoding of nothing": (
        OK + b"Content-Encoding: gzip\r\n\r\n" + GZIP,
        b"\x00\x00\x00\xff\xff",
    ),
}


@pytest.fixture
def fake() -> Iterator[FakeUpstream]:
    made = FakeUpstream(document())
    yield made
    made.close()


@pytest.fixture
def upstream(fake: FakeUpstream) -> Iterator[Upstream]:
    with closing(Upstream(fake.url, 1, SECONDS)) as made:
        yield made


@pytest.mark.parametrize(("beginning", "more"), HELD.values(), ids=HELD)
def test_response_that_trickles_in_ends_at_the_deadline(
    fake: FakeUpstream, upstream: Upstream, beginning: bytes, more: bytes
) -> None:
    fake.fail(CLOCK, dribble(beginning, more))
    with pytest.raises(UpstreamError, match=rf"^127\.0\.0\.1:\d+ {TOO_SLOW}$"):
        upstream.get(CLOCK)
    assert len(fake.requests) <= 1


@pytest.mark.parametrize("held", ["100 Continue", "status line", "chunk size", "body"])
def test_response_over_tls_that_trickles_in_ends_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    with closing(encrypted(tmp_path, monkeypatch)) as fake:
        with closing(Upstream(fake.url, 1)) as upstream:
            assert upstream.get(CLOCK).status == 200
        fake.fail(CLOCK, dribble(*HELD[held]))
        with (
            closing(Upstream(fake.url, 1, SECONDS)) as upstream,
            pytest.raises(UpstreamError, match=TOO_SLOW),
        ):
            upstream.get(CLOCK)


def encrypted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUpstream:
    """A server with a certificate of its own, which is trusted."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed here: there is no certificate to serve with.")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [openssl, "req", "-x509", *kind, *name, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    fake = FakeUpstream(document())
    fake.encrypt(context)
    return fake


def test_tls_handshake_without_an_end_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with (
            closing(Upstream(f"https://127.0.0.1:{port}", 1, SECONDS)) as upstream,
            pytest.raises(UpstreamError, match=rf"^127\.0\.0\.1:{port} {TOO_SLOW}$"),
        ):
            upstream.get(CLOCK)


def test_all_addresses_of_a_host_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        # The system drops what comes when the queue of a listening socket is full.
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found * 10_000)
        with (
            closing(Upstream(f"http://many.example:{address[1]}", 1, SECONDS)) as upstream,
            pytest.raises(UpstreamError, match=TOO_SLOW),
        ):
            upstream.get(CLOCK)


def test_next_address_is_tried_where_one_refuses(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()
    served = ("127.0.0.1", fake.server.server_port)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", each) for each in (free, served)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with closing(Upstream("http://two.example", 1)) as upstream:
        assert upstream.get(CLOCK).status == 200


def test_retries_end_at_a_deadline_of_their_own(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_RETRY_SECONDS", 0)
    monkeypatch.setattr("urllib3.util.retry.time.sleep", fake.released.wait)
    fake.fail(CLOCK, status(503, Retry_After="1"), status(503, Retry_After="1"))
    with (
        closing(Upstream(fake.url, 1, SECONDS)) as upstream,
        pytest.raises(UpstreamError, match=TOO_SLOW),
    ):
        upstream.get(CLOCK)
    assert len(fake.requests) <= 2


@pytest.mark.parametrize("path", [SEARCH, CLOCK, BUNDLE], ids=["list", "detail", "bundle"])
def test_command_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("catalog.commands.mirror.Upstream", partial(Upstream, max_seconds=SECONDS))
    app = create_app({"DATABASE": tmp_path / "mirror.db"})
    with closing(FakeUpstream()) as fake:
        fake.put(document("acme/clock", fake.with_bundle("1.0.0", b"tick")))
        fake.fail(path, dribble(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
        result = app.test_cli_runner().invoke(args=["mirror", fake.url, "--bundles"])
    app.extensions["database"].close()
    assert result.exit_code == 1
    assert TOO_SLOW in result.stderr
