"""mirror over HTTP: retries, redirects, sizes, and one deadline for a whole request."""

import gzip
import json
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from ports import free_port
from upstreams import (
    SEARCH,
    FakeUpstream,
    Fault,
    body,
    hang_up,
    numbered,
    redirect,
    silent,
    status,
    trickle,
    truncate,
)

CLOCK, BUNDLE = "/api/v1/widgets/acme/clock", "/bundles/1.0.0.js"


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    """An upstream with one widget; here, a mirror waits between its retries."""
    with closing(FakeUpstream()) as running:
        running.put(document("acme/clock", running.with_bundle("1.0.0", b"tick")))
        yield running


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the waits between retries, in seconds, instead of waiting."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits


def failure(app: Flask, url: str, *options: str) -> str:
    """Run a mirror that fails, and return its output."""
    result = run_mirror(app, url, *options)
    assert result.exit_code == 1
    return result.stderr


OVERFLOWS = ("9" * 5000, "Fri, 31 Dec 99999999999 23:59:59 GMT")
RETRIES: dict[str, tuple[list[Fault], list[float]]] = {
    "waits double": ([status(500), hang_up, truncate(10), status(504)], [0, 1, 2, 4]),
    "Retry-After": (
        [status(429, Retry_After="7"), status(503, Retry_After="60"), status(502)],
        [7, 60, 2],
    ),
    "invalid Retry-After": (
        [status(503, Retry_After=value) for value in ("soon", "-5", *OVERFLOWS)],
        [0, 1, 2, 4],
    ),
}


@pytest.mark.parametrize("path", [SEARCH, CLOCK], ids=["list", "detail"])
@pytest.mark.parametrize(("faults", "expected"), RETRIES.values(), ids=RETRIES)
def test_passing_faults_are_retried_after_a_wait(
    mirror_app: Flask,
    upstream: FakeUpstream,
    waits: list[float],
    faults: list[Fault],
    expected: list[float],
    path: str,
) -> None:
    upstream.fail(path, *faults)
    assert mirror_summary(mirror_app, upstream.url).startswith("1 added, ")
    assert waits == expected


def test_long_retry_after_is_an_error(
    mirror_app: Flask, upstream: FakeUpstream, waits: list[float]
) -> None:
    upstream.fail(CLOCK, status(429, Retry_After="3600"))
    assert "acme/clock: it responded 429" in failure(mirror_app, upstream.url)
    assert (waits, upstream.paths().count(CLOCK)) == ([], 1)


def test_redirect_to_another_path_and_host_is_followed(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    with closing(FakeUpstream(document(icon="elsewhere"))) as other:
        upstream.fail(CLOCK, redirect("/moved"))
        upstream.fail("/moved", redirect(other.url + CLOCK))
        mirror_summary(mirror_app, upstream.url)
    assert exported(mirror_app)["acme/clock"]["widget"]["icon"] == "elsewhere"


def test_redirect_from_https_to_http_is_refused(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.encrypt(tmp_path, monkeypatch)
    upstream.fail(CLOCK, redirect("/moved"))
    upstream.fail("/moved", redirect("http://b.example/x"))
    message = failure(mirror_app, upstream.url)
    assert "acme/clock: it redirects from https to 'http://b.example/x'" in message


def bomb(layers: int) -> bytes:
    """Return a body that becomes 64 MB when that many layers of gzip are removed."""
    content = b" " * 64_000_000
    for _ in range(layers):
        content = gzip.compress(content, 1)
    return content


@pytest.mark.parametrize("layers", [1, 2])
def test_compressed_body_beyond_the_limit_is_refused_without_its_memory(
    mirror_app: Flask, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    monkeypatch.setattr("catalog.system.http_client.MAX_RESPONSE_BYTES", 1_000_000)
    # Imports all modules.
    mirror_summary(mirror_app, upstream.url)
    upstream.fail(CLOCK, body(bomb(layers), Content_Encoding=", ".join(["gzip"] * layers)))
    tracemalloc.start()
    try:
        assert "more than 1000000 bytes" in failure(mirror_app, upstream.url)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6_000_000


def test_server_that_does_not_respond_times_out(
    mirror_app: Flask, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setattr("catalog.system.http_client.MAX_WAIT_SECONDS", 0.05)
    upstream.fail(CLOCK, *[silent] * 5)
    assert "acme/clock: it did not respond within 0.05 s." in failure(mirror_app, upstream.url)
    assert waits[-4:] == [0, 1, 2, 4]


def test_an_upstream_that_refuses_connections_is_retried_once_for_all_requests(
    mirror_app: Flask, waits: list[float]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    reason = "it cannot be reached: Connection refused."
    assert failure(mirror_app, url) == f"Error: Cannot mirror {url}: {reason}\n"
    # The changes were requested before the list.
    assert waits == [0, 1, 2, 4]


def test_the_host_of_many_bundles_is_retried_once_if_it_cannot_be_reached(
    mirror_app: Flask, upstream: FakeUpstream, waits: list[float]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for number in range(12):
        bundle = upstream.with_bundle(f"2.0.{number}", b"x%d" % number)
        upstream.put(document(f"acme/w{number}", {**bundle, "bundleUrl": f"{url}/{number}.js"}))
    message = failure(mirror_app, upstream.url, "--bundles")
    assert message.count(": it cannot be reached: Connection refused.") == 12
    # Each of the four workers may have begun before the first one gives up.
    assert len(waits) <= 16


@pytest.mark.parametrize("etag", ["x" * 2000, "a\tb", "\xfc"])
def test_unusable_etag_is_ignored(mirror_app: Flask, upstream: FakeUpstream, etag: str) -> None:
    upstream.fail(CLOCK, body(json.dumps(document()).encode(), ETag=f'"{etag}"'))
    for _ in range(2):
        mirror_summary(mirror_app, upstream.url)
    assert "If-None-Match" not in upstream.request_headers(CLOCK)[1]


def test_connections_are_used_for_many_requests(mirror_app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(*numbered(20))
    mirror_summary(mirror_app, upstream.url)
    # Two lists, the details, and one question for the about of a widget.
    assert len(upstream.requests) == 24
    # One for the list, and four for the details.
    assert upstream.connections <= 5
    assert {headers["Accept-Encoding"] for _, headers in upstream.requests} == {"gzip"}


SECONDS = 0.1
TOO_SLOW = "it did not respond within 0.1 s"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = bytes.fromhex("1f8b08000000000000ff")
# The beginning of a response, and what is then sent again and again.
TRICKLES = {
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "status line": (b"HTTP/1.1 200 O", b"K"),
    "headers": (OK, b"x: y\r\n"),
    "body": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "body without a length": (OK + b"\r\n", b" "),
    "chunk size": (CHUNKED, b"0"),
    "trailer": (CHUNKED + b"0\r\n", b"x: y\r\n"),
    "compressed body of length 0": (
        OK + b"Content-Encoding: gzip\r\n\r\n" + GZIP,
        b"\x00\x00\x00\xff\xff",
    ),
}


@pytest.fixture
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_REQUEST_SECONDS", SECONDS)


@pytest.mark.usefixtures("short_deadline")
@pytest.mark.parametrize(
    ("path", "part", "scheme"),
    [
        *((CLOCK, part, "http") for part in TRICKLES),
        *((path, "100 Continue", "http") for path in (SEARCH, BUNDLE)),
        *((SEARCH, part, "https") for part in ("100 Continue", "body")),
    ],
)
def test_trickling_response_ends_at_the_deadline(
    mirror_app: Flask,
    upstream: FakeUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    part: str,
    scheme: str,
) -> None:
    if scheme == "https":
        upstream.encrypt(tmp_path, monkeypatch)
    upstream.fail(path, trickle(*TRICKLES[part]))
    assert TOO_SLOW in failure(mirror_app, upstream.url, "--bundles")
    assert upstream.paths().count(path) <= 1


@pytest.mark.usefixtures("short_deadline")
def test_tls_handshake_without_a_reply_ends_at_the_deadline(mirror_app: Flask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert TOO_SLOW in failure(mirror_app, f"https://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.usefixtures("short_deadline")
def test_retries_share_one_deadline(
    mirror_app: Flask, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_RETRY_SECONDS", 0)
    # A retry waits until the deadline has passed.
    monkeypatch.setattr("time.sleep", lambda _: upstream.stopping.wait(2 * SECONDS))
    upstream.fail(SEARCH, *[status(503, Retry_After="1")] * 2)
    assert TOO_SLOW in failure(mirror_app, upstream.url)
    assert upstream.paths().count(SEARCH) <= 2
