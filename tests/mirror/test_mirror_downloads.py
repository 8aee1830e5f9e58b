"""Upstream.download(): continues a partial file, and never exceeds the expected size."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from upstreams import FakeUpstream, body, endless, status, truncate

from catalog.mirror.upstream import Upstream, UpstreamError

BUNDLE = "/bundles/1.0.0.js"
CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def client(upstream: FakeUpstream) -> Iterator[Upstream]:
    upstream.with_bundle("1.0.0", CONTENT)
    with closing(Upstream(upstream.url, 4)) as client:
        yield client


def test_download_stores_the_content(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    client.download(upstream.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert "Range" not in upstream.request_headers(BUNDLE)[0]


def test_download_continues_a_partial_file(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(CONTENT[:1000])
    client.download(upstream.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [headers["Range"] for headers in upstream.request_headers(BUNDLE)] == ["bytes=1000-"]


def test_truncated_download_continues_where_it_ended(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    upstream.fail(BUNDLE, truncate(100_000), truncate(50_000))
    client.download(upstream.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT
    ranges = [headers.get("Range") for headers in upstream.request_headers(BUNDLE)]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_download_starts_again_if_the_server_ignores_ranges(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"other bytes")
    upstream.fail(BUNDLE, body(CONTENT))
    client.download(upstream.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_download_starts_again_if_the_server_sends_another_range(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(CONTENT[:1000])
    upstream.fail(BUNDLE, lambda handler: handler.send(206, b"!", Content_Range="bytes 5-5/9"))
    client.download(upstream.url + BUNDLE, tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_download_ends_at_the_expected_size_and_leaves_no_file(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    upstream.fail(BUNDLE, endless())
    with pytest.raises(UpstreamError, match="larger than 100 bytes"):
        client.download(upstream.url + BUNDLE, tmp_path / "x", 100)
    assert list(tmp_path.iterdir()) == []


def test_download_with_an_error_status_leaves_no_file(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    upstream.fail(BUNDLE, status(403))
    with pytest.raises(UpstreamError, match="the response status is 403"):
        client.download(upstream.url + BUNDLE, tmp_path / "x", 100)
    assert list(tmp_path.iterdir()) == []


def test_download_over_the_size_limit_is_not_requested(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path
) -> None:
    with pytest.raises(UpstreamError, match="more than 536870912"):
        client.download(upstream.url + BUNDLE, tmp_path / "x", 2**50)
    assert upstream.requests == []


@pytest.mark.parametrize("partial", [b"", b"too long"])
def test_empty_download_needs_no_request(
    upstream: FakeUpstream, client: Upstream, tmp_path: Path, partial: bytes
) -> None:
    (tmp_path / "x").write_bytes(partial)
    client.download(upstream.url + BUNDLE, tmp_path / "x", 0)
    assert ((tmp_path / "x").read_bytes(), upstream.requests) == (b"", [])
