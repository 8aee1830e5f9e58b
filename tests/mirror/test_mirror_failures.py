"""widget-catalog mirror: what fails is reported with its reason, and the rest is copied."""

import json
from pathlib import Path

import pytest
from builders import document, version
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import (
    SEARCH,
    FakeUpstream,
    Fault,
    body,
    detail,
    endless,
    hang_up,
    numbered,
    redirect,
    status,
    truncate,
)

from app import create_app
from catalog.mirror.fetch import BATCH_SIZE

NOTES = document("acme/notes", version("1.0.0"))
# More than a request is tried.
ALWAYS = 10


@pytest.fixture(autouse=True)
def three_widgets(upstream: FakeUpstream) -> None:
    upstream.put(document("acme/clock", version("1.0.0")), NOTES, document("lab/tide"))


INVALID = {
    "not JSON": (body(b"<html>"), "the response is not JSON in UTF-8"),
    "not UTF-8": (body(b'"\xff"'), "the response is not JSON in UTF-8"),
    "nested too deeply": (body(b"[" * 100_000), "the response is not JSON in UTF-8"),
    "not a document": (body(b"[]"), "must be an object"),
    "another widget": (body(json.dumps(NOTES).encode()), "the response is about 'acme/notes'"),
    "invalid field": (
        body(json.dumps(document("acme/clock", version("1"), icon=1)).encode()),
        "icon must be a string of Unicode text without NUL, not 1 (and 1 more)",
    ),
    "invalid URL": (
        body(json.dumps(document("acme/clock", version(bundleUrl="file:///x"))).encode()),
        "bundleUrl must be an absolute http or https URL, not 'file:///x'",
    ),
    "403": (status(403), "the response status is 403, not 200"),
    "500": (status(500), "the response status is 500, not 200"),
    "redirect to a file": (redirect("file:///etc/passwd"), "'file:///etc/passwd' is not an"),
    "redirect to ftp": (redirect("ftp://127.0.0.1/x"), "is not an absolute http or https URL"),
    "redirect to no URL": (redirect("http://["), "redirects to 'http://[', not a URL"),
    "redirect to no port": (redirect("http://127.0.0.1:99999/"), "is not an absolute http or"),
    "redirects": (redirect(detail("acme/clock")), "there are too many redirects"),
    "201": (status(201), "the response status is 201, not 200"),
    "429": (status(429), "the response status is 429, not 200"),
    "truncated": (truncate(10), "the connection ended before the response was complete"),
    "invalid gzip": (body(b"no", Content_Encoding="gzip"), "the response is invalid"),
    "endless": (endless(), "the response is larger than 100000 bytes"),
    "endless 404": (endless(404), "the response is larger than 100000 bytes"),
    "endless 500": (endless(500), "the response status is 500, not 200"),
    "hang-up": (hang_up, "the connection ended before the response was complete"),
}


@pytest.mark.parametrize(("fault", "reason"), INVALID.values(), ids=INVALID)
def test_invalid_widget_is_reported_and_the_rest_is_copied(
    mirror_app: Flask,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    reason: str,
) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_RESPONSE_BYTES", 100_000)
    upstream.fail(detail("acme/clock"), *[fault] * ALWAYS)
    result = run_mirror(mirror_app, upstream.url)
    failure, summary, error = result.stderr.splitlines()
    assert failure.startswith("acme/clock: ")
    assert reason in failure
    assert summary.endswith(": 2 added, 0 changed, 0 unchanged, 1 failed, 0 gone.")
    assert (result.exit_code, error) == (1, "Error: 1 widget failed; the rest is done.")
    assert list(exported(mirror_app)) == ["acme/notes", "lab/tide"]


@pytest.mark.parametrize("name", ["..", "", "a/b", "line\nend"])
def test_invalid_name_is_reported_and_not_requested(
    mirror_app: Flask, upstream: FakeUpstream, name: str
) -> None:
    upstream.put(document("acme/alarm", name=name))
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert "3 added, 0 changed, 0 unchanged, 1 failed" in result.stderr
    assert "printable characters without a slash" in result.stderr
    assert len(result.stderr.splitlines()) == 3


def test_listed_widget_without_a_detail_is_a_failure(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.fail(detail("acme/clock"), status(404))
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert result.stderr.startswith("acme/clock: is listed, but its detail is not found.\n")


def test_failed_refresh_of_a_widget_leaves_the_copy_unchanged(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    before = exported(mirror_app)
    upstream.fail(detail("acme/clock"), body(b"{}"))
    assert run_mirror(mirror_app, upstream.url).exit_code == 1
    assert exported(mirror_app) == before


def test_at_most_20_failures_are_printed(mirror_app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(*numbered(30, displayName=""))
    lines = run_mirror(mirror_app, upstream.url).stderr.splitlines()
    assert (len(lines), lines[20]) == (23, "There are 10 more.")


def fail_details(upstream: FakeUpstream, numbers: range, fault: Fault) -> None:
    for number in numbers:
        upstream.fail(detail(f"acme/w{number:04}"), *[fault] * ALWAYS)


def test_run_ends_after_25_requests_in_a_row_without_a_response(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.documents.clear()
    upstream.put(*numbered(150))
    fail_details(upstream, range(10, 150), status(503))
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert "25 requests in a row failed, the last one because" in result.stderr
    # Each widget is tried five times; the pool works on a batch ahead.
    assert len(upstream.requests) < 5 * (25 + 10 + BATCH_SIZE)
    # Widgets that were fetched before are written.
    assert len(exported(mirror_app)) == 10


def test_run_continues_after_many_unexpected_statuses(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.documents.clear()
    upstream.put(*numbered(50))
    fail_details(upstream, range(10, 40), status(403))
    result = run_mirror(mirror_app, upstream.url)
    assert "20 added, 0 changed, 0 unchanged, 30 failed, 0 gone." in result.stderr
    assert len(exported(mirror_app)) == 20


def test_next_run_continues_where_a_failed_one_ended(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(*numbered(120))
    fail_details(upstream, range(90, 120), status(503))
    assert run_mirror(mirror_app, upstream.url).exit_code == 1
    copied = len(exported(mirror_app))
    assert copied >= BATCH_SIZE
    upstream.faults.clear()
    summary = mirror_summary(mirror_app, upstream.url)
    assert summary == f"{123 - copied} added, 0 changed, {copied} unchanged, 0 failed, 0 gone."
    assert set(exported(mirror_app)) == set(upstream.documents)


NOT_A_CATALOG = "the search response is not that of a widget catalog"
INVALID_SEARCHES = {
    "404": (status(404), "the response status is 404, not 200"),
    "HTML": (body(b"<html>"), "the response is not JSON in UTF-8"),
    "array": (body(b"[]"), NOT_A_CATALOG),
    "no total": (body(b'{"widgets": []}'), NOT_A_CATALOG),
    "names that are not text": (
        body(b'{"widgets": [{"scope": 1, "name": []}], "total": 1}'),
        NOT_A_CATALOG,
    ),
    "too many widgets": (
        body(b'{"widgets": [], "total": 1000001}'),
        "it lists 1000001 widgets, more than 1000000",
    ),
    "endless": (endless(), "the response is larger than 1000 bytes"),
}


@pytest.mark.parametrize(("fault", "reason"), INVALID_SEARCHES.values(), ids=INVALID_SEARCHES)
def test_server_that_is_not_a_catalog_is_refused_before_a_file_is_created(
    mirror_app: Flask,
    upstream: FakeUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    reason: str,
) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_RESPONSE_BYTES", 1000)
    upstream.fail(SEARCH, fault)
    result = run_mirror(mirror_app, upstream.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {upstream.url} cannot be mirrored: {reason}")
    assert list(tmp_path.iterdir()) == []


def test_file_that_is_not_a_catalog_is_refused_before_any_request(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    (tmp_path / "other.db").write_bytes(b"not a database, " * 100)
    result = run_mirror(create_app({"DATABASE": tmp_path / "other.db"}), upstream.url)
    assert (result.exit_code, upstream.requests) == (1, [])
    assert result.stderr.endswith("other.db cannot be opened: file is not a database.\n")
