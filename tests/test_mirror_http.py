"""How a mirror speaks HTTP: patient with what passes, unmoved by what is wrong, always bounded."""

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from upstreams import FakeUpstream, Fault, body, cut, endless, hang_up, redirect, silent, status
from urllib3 import Timeout

from catalog.mirror import upstream as client
from catalog.mirror.upstream import Upstream, UpstreamError, upstream_url

CLOCK = "/api/v1/widgets/acme/clock"
BUNDLE = "/bundles/1.0.0.js"
CONTENT = bytes(range(256)) * 1000


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited between tries, none of them spent."""
    waited: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waited.append)
    return waited


@pytest.fixture
def fake() -> Iterator[FakeUpstream]:
    upstream = FakeUpstream(document())
    upstream.with_bundle("1.0.0", CONTENT)
    yield upstream
    upstream.close()


@pytest.fixture
def upstream(fake: FakeUpstream) -> Iterator[Upstream]:
    with closing(Upstream(fake.url, 4)) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [hang_up, cut(10), status(500), status(502), status(503), status(504), status(429)],
    ids=["hang-up", "cut", "500", "502", "503", "504", "429"],
)
def test_fault_that_passes_is_met_with_another_try(
    fake: FakeUpstream, upstream: Upstream, fault: Fault
) -> None:
    fake.fail(CLOCK, fault, fault)
    assert json.loads(upstream.get(CLOCK).body) == document()
    assert len(fake.asked(CLOCK)) == 3


def test_waits_grow_from_try_to_try(
    fake: FakeUpstream, upstream: Upstream, waits: list[float]
) -> None:
    fake.fail(CLOCK, status(500), hang_up, status(500), hang_up)
    assert upstream.get(CLOCK).status == 200
    assert waits == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_waited_for(
    fake: FakeUpstream, upstream: Upstream, waits: list[float], code: int
) -> None:
    fake.fail(CLOCK, status(code, Retry_After="7"), status(code, Retry_After="0"))
    assert upstream.get(CLOCK).status == 200
    assert waits[0] == 7


def test_retry_after_too_long_to_wait_for_is_not_asked_again_before_it(
    fake: FakeUpstream, upstream: Upstream, waits: list[float]
) -> None:
    fake.fail(CLOCK, status(429, Retry_After="3600"))
    with pytest.raises(UpstreamError, match=r"responds with 429 and asks to retry later .*3600"):
        upstream.get(CLOCK)
    assert (waits, len(fake.asked(CLOCK))) == ([], 1)


@pytest.mark.parametrize(
    "said", ["soon", "-5", "", "9" * 5000, "Fri, 31 Dec 99999999999 23:59:59 GMT"]
)
def test_retry_after_that_says_no_time_is_as_none(
    fake: FakeUpstream, upstream: Upstream, waits: list[float], said: str
) -> None:
    fake.fail(CLOCK, status(503, Retry_After=said), status(429, Retry_After=said))
    assert upstream.get(CLOCK).status == 200
    assert waits == [1.0]


LASTING = {
    "500": (status(500), r"127\.0\.0\.1:\d+ sends too many 500 error responses"),
    "429": (status(429), r"127\.0\.0\.1:\d+ sends too many 429 error responses"),
    "hang-up": (hang_up, r"127\.0\.0\.1:\d+ closes the connection before its response is complete"),
    "cut": (cut(10), r"127\.0\.0\.1:\d+ closes the connection before its response is complete"),
    "redirects": (redirect(CLOCK), r"127\.0\.0\.1:\d+ sends too many redirects"),
}


@pytest.mark.parametrize(("fault", "why"), LASTING.values(), ids=LASTING)
def test_fault_that_lasts_is_given_up_in_a_sentence(
    fake: FakeUpstream, upstream: Upstream, fault: Fault, why: str
) -> None:
    fake.fail(CLOCK, *[fault] * 100)
    with pytest.raises(UpstreamError, match=f"^{why}$"):
        upstream.get(CLOCK)
    assert len(fake.asked(CLOCK)) <= 6


REFUSED = {
    "403": (status(403), "the response status is 403, not 200"),
    "201": (status(201), "the response status is 201, not 200"),
    "file": (redirect("file:///etc/passwd"), "'file:///etc/passwd' is not an absolute http or"),
    "ftp": (redirect("ftp://127.0.0.1/x"), "'ftp://127.0.0.1/x' is not an absolute http or https"),
    "no URL": (redirect("http://["), "redirects to 'http://[', not a URL"),
    "304": (status(304), "the response status is 304, but no ETag was sent"),
    "bad port": (redirect("http://127.0.0.1:99999/"), "sends an invalid response"),
    "bad gzip": (body(b"no", Content_Encoding="gzip"), "sends an invalid response"),
}


@pytest.mark.parametrize(("fault", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_at_once(
    fake: FakeUpstream, upstream: Upstream, fault: Fault, why: str
) -> None:
    fake.fail(CLOCK, fault)
    with pytest.raises(UpstreamError) as refused:
        upstream.get(CLOCK)
    assert why in str(refused.value)
    assert len(fake.requests) == 1


def test_redirect_is_followed_to_another_path_and_host(
    fake: FakeUpstream, upstream: Upstream
) -> None:
    other = FakeUpstream(document(icon="elsewhere"))
    try:
        fake.fail(CLOCK, redirect("/moved"))
        fake.fail("/moved", redirect(other.url + CLOCK))
        assert json.loads(upstream.get(CLOCK).body) == document(icon="elsewhere")
    finally:
        other.close()


ENDLESS = {
    200: "the response is larger than 100000 bytes",
    404: "the response is larger than 100000 bytes",
    302: "the response status is 302, not 200",  # without a Location
    500: "127.0.0.1:{port} sends too many 500 error responses",
}


@pytest.mark.parametrize(("code", "why"), ENDLESS.items(), ids=map(str, ENDLESS))
def test_body_without_an_end_is_left(
    fake: FakeUpstream, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, code: int, why: str
) -> None:
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 100_000)
    fake.fail(CLOCK, *[endless(code)] * 10)
    with pytest.raises(UpstreamError) as refused:
        upstream.get(CLOCK)
    assert str(refused.value) == why.format(port=fake.server.server_port)


def test_few_bytes_that_unpack_to_many_are_left(
    fake: FakeUpstream, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 100_000)
    fake.fail(CLOCK, body(gzip.compress(b" " * 10_000_000), Content_Encoding="gzip"))
    with pytest.raises(UpstreamError, match="larger than 100000 bytes"):
        upstream.get(CLOCK)


def test_silence_is_not_waited_for_without_end(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setattr(client, "TIMEOUT", Timeout(connect=10, read=0.05))
    fake.fail(CLOCK, *[silent] * 100)
    with (
        closing(Upstream(fake.url, 1)) as upstream,
        pytest.raises(UpstreamError, match="does not respond in time"),
    ):
        upstream.get(CLOCK)
    assert waits == [1.0, 2.0]


def test_host_that_cannot_be_reached_is_not_tried_for_each_thing_it_has(
    waits: list[float],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with closing(Upstream(f"http://127.0.0.1:{port}", 1)) as upstream:
        for _ in range(3):
            with pytest.raises(UpstreamError, match=rf"^127\.0\.0\.1:{port} cannot be reached$"):
                upstream.get(CLOCK)
    assert waits == [1.0, 2.0, 4.0]


def test_packed_answer_is_asked_for_and_unpacked(fake: FakeUpstream, upstream: Upstream) -> None:
    packed = gzip.compress(json.dumps(document()).encode())
    fake.fail(CLOCK, body(packed, Content_Encoding="gzip"))
    assert json.loads(upstream.get(CLOCK).body) == document()
    assert fake.asked(CLOCK)[0]["Accept-Encoding"] == "gzip"


def test_etag_is_kept_and_sent_and_answered_with_304(
    fake: FakeUpstream, upstream: Upstream
) -> None:
    etag = upstream.get(CLOCK).etag
    again = upstream.get(CLOCK, etag)
    assert (again.status, again.body) == (304, b"")
    assert [headers.get("If-None-Match") for headers in fake.asked(CLOCK)] == [None, etag]


@pytest.mark.parametrize("etag", ["x" * 2000, "a\0b", "a\tb", "\xfc"])
def test_etag_that_cannot_be_kept_and_sent_is_none(
    fake: FakeUpstream, upstream: Upstream, etag: str
) -> None:
    fake.fail(CLOCK, body(b"{}", ETag=f'"{etag}"'))
    assert upstream.get(CLOCK).etag is None


def test_one_connection_serves_many_requests(fake: FakeUpstream, upstream: Upstream) -> None:
    etag = upstream.get(CLOCK).etag
    for path in (CLOCK, "/api/v1/widgets/acme/none", CLOCK):
        upstream.get(path, etag)
    assert (len(fake.requests), fake.connections) == (4, 1)


def test_download_is_the_bytes(fake: FakeUpstream, upstream: Upstream, tmp_path: Path) -> None:
    upstream.download(fake.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert "Range" not in fake.asked(BUNDLE)[0]


def test_download_goes_on_from_what_is_there(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(CONTENT[:1000])
    upstream.download(fake.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [headers["Range"] for headers in fake.asked(BUNDLE)] == ["bytes=1000-"]


def test_download_that_is_cut_goes_on_from_there(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path
) -> None:
    fake.fail(BUNDLE, cut(100_000), cut(50_000))
    upstream.download(fake.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT
    ranges = [headers.get("Range") for headers in fake.asked(BUNDLE)]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_download_begins_anew_where_the_server_gives_no_parts(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"other bytes")
    fake.fail(BUNDLE, body(CONTENT))
    upstream.download(fake.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_download_begins_anew_where_another_part_is_given(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(CONTENT[:1000])
    fake.fail(BUNDLE, lambda handler: handler.send(206, b"!", Content_Range="bytes 5-5/9"))
    upstream.download(fake.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_download_of_more_than_was_said_ends_there_and_leaves_no_file(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path
) -> None:
    fake.fail(BUNDLE, endless())
    with pytest.raises(UpstreamError, match="larger than 100 bytes"):
        upstream.download(fake.url + BUNDLE, tmp_path / "x", 100)
    assert list(tmp_path.iterdir()) == []


def test_download_that_is_refused_leaves_no_file(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path
) -> None:
    fake.fail(BUNDLE, status(403))
    with pytest.raises(UpstreamError, match="the response status is 403"):
        upstream.download(fake.url + BUNDLE, tmp_path / "x", 100)
    assert list(tmp_path.iterdir()) == []


def test_download_too_large_for_any_bundle_is_not_begun(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path
) -> None:
    with pytest.raises(UpstreamError, match="more than 536870912"):
        upstream.download(fake.url + BUNDLE, tmp_path / "x", 2**50)
    assert fake.requests == []


@pytest.mark.parametrize("there", [b"", b"too much"])
def test_download_of_nothing_asks_for_nothing(
    fake: FakeUpstream, upstream: Upstream, tmp_path: Path, there: bytes
) -> None:
    (tmp_path / "x").write_bytes(there)
    upstream.download(fake.url + BUNDLE, tmp_path / "x", 0)
    assert ((tmp_path / "x").read_bytes(), fake.requests) == (b"", [])


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://a.example", "http://a.example"),
        ("https://a.example:8443/widgets/", "https://a.example:8443/widgets"),
        ("http://[::1]:80//", "http://[::1]:80"),
    ],
)
def test_upstream_url_ends_without_a_slash(given: str, base: str) -> None:
    assert upstream_url(given) == base


@pytest.mark.parametrize(
    "given",
    [
        *("", "a.example", "file:///x", "ftp://a.example", "http://", "http://u:p@a.example"),
        *("http://a.example/?x=1", "http://a.example/#x", "http://a b"),
    ],
)
def test_upstream_url_is_of_the_web_and_of_a_server(given: str) -> None:
    with pytest.raises(ValueError, match="an absolute http or https URL"):
        upstream_url(given)
