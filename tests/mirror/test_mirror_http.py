"""HTTP client of the mirror: passing faults are retried, wrong responses refused, sizes bounded."""

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from ports import free_port
from upstreams import (
    FakeUpstream,
    Fault,
    body,
    endless,
    hang_up,
    redirect,
    silent,
    status,
    truncate,
)

from catalog.mirror import upstream as upstream_module
from catalog.mirror.upstream import Upstream, UpstreamError
from catalog.validators import check_base_url

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


TEMPORARY_FAULTS = {
    "hang-up": hang_up,
    "truncated": truncate(10),
    **{str(code): status(code) for code in (500, 502, 503, 504, 429)},
}


@pytest.mark.parametrize("fault", TEMPORARY_FAULTS.values(), ids=TEMPORARY_FAULTS)
def test_temporary_fault_is_retried(server: FakeUpstream, client: Upstream, fault: Fault) -> None:
    server.fail(CLOCK, fault, fault)
    assert json.loads(client.get(CLOCK).body) == document()
    assert len(server.requests) == 3


def test_waits_double_with_each_retry(
    server: FakeUpstream, client: Upstream, waits: list[float]
) -> None:
    server.fail(CLOCK, status(500), hang_up, status(500), hang_up)
    assert client.get(CLOCK).status == 200
    assert waits == [0, 1, 2, 4]


@pytest.mark.parametrize("code", [429, 503])
def test_retry_waits_for_the_seconds_of_retry_after(
    server: FakeUpstream, client: Upstream, waits: list[float], code: int
) -> None:
    server.fail(CLOCK, status(code, Retry_After="7"), status(code, Retry_After="0"))
    assert client.get(CLOCK).status == 200
    assert waits[0] == 7


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


PERMANENT_FAULTS = {
    "500": (status(500), "the response status is 500, not 200"),
    "429": (status(429), "the response status is 429, not 200"),
    "hang-up": (hang_up, "the connection ended before the response was complete"),
    "truncated": (truncate(10), "the connection ended before the response was complete"),
    "redirects": (redirect(CLOCK), "there are too many redirects"),
}


@pytest.mark.parametrize(("fault", "reason"), PERMANENT_FAULTS.values(), ids=PERMANENT_FAULTS)
def test_permanent_fault_ends_the_retries(
    server: FakeUpstream, client: Upstream, fault: Fault, reason: str
) -> None:
    server.fail(CLOCK, *[fault] * 100)
    with pytest.raises(UpstreamError, match=f"^{reason}$"):
        client.get(CLOCK)
    assert len(server.requests) <= 6


REFUSED = {
    "403": (status(403), "the response status is 403, not 200"),
    "201": (status(201), "the response status is 201, not 200"),
    "file": (redirect("file:///etc/passwd"), "'file:///etc/passwd' is not an absolute http or"),
    "ftp": (redirect("ftp://127.0.0.1/x"), "'ftp://127.0.0.1/x' is not an absolute http or https"),
    "not a URL": (redirect("http://["), "redirects to 'http://[', not a URL"),
    "invalid port": (redirect("http://127.0.0.1:99999/"), "is not an absolute http or https URL"),
    "invalid gzip": (body(b"no", Content_Encoding="gzip"), "the response is invalid"),
}


@pytest.mark.parametrize(("fault", "reason"), REFUSED.values(), ids=REFUSED)
def test_wrong_response_is_refused_without_a_retry(
    server: FakeUpstream, client: Upstream, fault: Fault, reason: str
) -> None:
    server.fail(CLOCK, fault)
    with pytest.raises(UpstreamError) as error:
        client.get(CLOCK).json()
    assert reason in str(error.value)
    assert len(server.requests) == 1


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


ENDLESS = {
    200: "the response is larger than 100000 bytes",
    404: "the response is larger than 100000 bytes",
    # Without a Location.
    302: "the response is larger than 100000 bytes",
    500: "the response status is 500, not 200",
}


@pytest.mark.parametrize(("code", "reason"), ENDLESS.items(), ids=map(str, ENDLESS))
def test_endless_body_is_not_read_to_its_end(
    server: FakeUpstream,
    client: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    reason: str,
) -> None:
    monkeypatch.setattr(upstream_module, "MAX_RESPONSE_BYTES", 100_000)
    server.fail(CLOCK, *[endless(code)] * 10)
    with pytest.raises(UpstreamError) as error:
        client.get(CLOCK)
    assert str(error.value) == reason


def test_size_limit_applies_to_the_decompressed_body(
    server: FakeUpstream, client: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_module, "MAX_RESPONSE_BYTES", 100_000)
    server.fail(CLOCK, body(gzip.compress(b" " * 10_000_000), Content_Encoding="gzip"))
    with pytest.raises(UpstreamError, match="larger than 100000 bytes"):
        client.get(CLOCK)


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


def test_etag_is_sent_back_and_304_returned(server: FakeUpstream, client: Upstream) -> None:
    etag = client.get(CLOCK).etag
    response = client.get(CLOCK, etag)
    assert (response.status, response.body) == (304, b"")
    sent = [headers.get("If-None-Match") for headers in server.request_headers(CLOCK)]
    assert sent == [None, etag]


@pytest.mark.parametrize("etag", ["x" * 2000, "a\0b", "a\tb", "\xfc"])
def test_unusable_etag_is_ignored(server: FakeUpstream, client: Upstream, etag: str) -> None:
    server.fail(CLOCK, body(b"{}", ETag=f'"{etag}"'))
    assert client.get(CLOCK).etag is None


def test_one_connection_is_used_for_many_requests(server: FakeUpstream, client: Upstream) -> None:
    etag = client.get(CLOCK).etag
    for path in (CLOCK, "/api/v1/widgets/acme/none", CLOCK):
        client.get(path, etag)
    assert (len(server.requests), server.connections) == (4, 1)


@pytest.mark.parametrize(
    ("url", "base_url"),
    [
        ("http://a.example", "http://a.example"),
        ("https://a.example:8443/widgets/", "https://a.example:8443/widgets"),
        ("http://[::1]:80//", "http://[::1]:80"),
    ],
)
def test_base_url_has_no_final_slash(url: str, base_url: str) -> None:
    assert check_base_url(url) == base_url


@pytest.mark.parametrize(
    "url",
    [
        *("", "a.example", "file:///x", "ftp://a.example", "http://", "http://u:p@a.example"),
        *("http://a.example/?x=1", "http://a.example/#x", "http://a b"),
    ],
)
def test_invalid_base_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="an absolute http or https URL"):
        check_base_url(url)
