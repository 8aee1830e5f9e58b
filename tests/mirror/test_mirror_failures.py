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

NOTES = document("acme/notes", version("1.0.0"))
# More than a request is tried.
ALWAYS = 10


@pytest.fixture(autouse=True)
def three_widgets(upstream: FakeUpstream) -> None:
    upstream.put(document("acme/clock", version("1.0.0")), NOTES, document("lab/tide"))


INCOMPLETE = "it did not send its whole response"
INVALID = {
    "not JSON": (body(b"<html>"), "the response is not JSON in UTF-8"),
    "nested too deeply": (body(b"[" * 100_000), "the response is not JSON in UTF-8"),
    "another widget": (body(json.dumps(NOTES).encode()), "is about another widget: 'acme/notes'"),
    "invalid fields": (
        body(json.dumps(document("acme/clock", version("1"), icon=1)).encode()),
        "icon must be a Unicode string without NUL characters, not 1 (and 1 more)",
    ),
    "403": (status(403), "it responded 403"),
    "404": (status(404), "is listed, but its document was not found"),
    "500": (status(500), "it responded 500"),
    "redirect to a file": (redirect("file:///etc/passwd"), "'file:///etc/passwd' is not an"),
    "redirect to no URL": (redirect("http://["), "redirects to 'http://[', which is not a URL"),
    "redirect to no port": (redirect("http://127.0.0.1:99999/"), "is not an absolute http or"),
    "redirects": (redirect(detail("acme/clock")), "it redirects too often"),
    "truncated": (truncate(10), INCOMPLETE),
    "hang-up": (hang_up, "it did not respond"),
    "invalid gzip": (
        body(b"no", Content_Encoding="gzip"),
        "it sent a response that cannot be decoded",
    ),
    "endless": (endless(), "it sent a response of more than 100000 bytes"),
    "endless 500": (endless(500), "it sent a response of more than 100000 bytes"),
}


@pytest.mark.parametrize(("fault", "reason"), INVALID.values(), ids=INVALID)
def test_invalid_widget_is_reported_and_the_rest_is_copied(
    mirror_app: Flask,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    reason: str,
) -> None:
    monkeypatch.setattr("catalog.system.http_client.MAX_RESPONSE_BYTES", 100_000)
    upstream.fail(detail("acme/clock"), *[fault] * ALWAYS)
    result = run_mirror(mirror_app, upstream.url)
    failure, summary, error = result.stderr.splitlines()
    assert failure.startswith("acme/clock: ")
    assert reason in failure
    assert summary.endswith(": 2 added, 0 changed, 0 unchanged, 1 failed, 0 gone.")
    assert (result.exit_code, error) == (1, "Error: 1 widget failed; everything else succeeded.")
    assert list(exported(mirror_app)) == ["acme/notes", "lab/tide"]


def test_copy_stays_listed_while_the_upstream_lists_it_without_a_detail(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    upstream.fail(detail("acme/clock"), status(404))
    result = run_mirror(mirror_app, upstream.url)
    assert result.stderr.splitlines() == [
        "acme/clock: is listed, but its document was not found.",
        f"Mirrored {upstream.url}: 0 added, 0 changed, 2 unchanged, 1 failed, 0 gone.",
        "Error: 1 widget failed; everything else succeeded.",
    ]
    assert mirror_app.test_client().get(detail("acme/clock")).status_code == 200


@pytest.mark.parametrize("name", ["..", "line\nend"])
def test_invalid_name_is_reported_and_not_requested(
    mirror_app: Flask, upstream: FakeUpstream, name: str
) -> None:
    upstream.put(document("acme/alarm", name=name))
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert "3 added, 0 changed, 0 unchanged, 1 failed" in result.stderr
    assert "printable characters without a slash" in result.stderr
    assert len(result.stderr.splitlines()) == 3


def fail_details(upstream: FakeUpstream, count: int, working: int, fault: Fault) -> None:
    """Replace the widgets with so many, and have the details of all but the first ones fail."""
    upstream.documents.clear()
    upstream.put(*numbered(count))
    for path in [*upstream.documents][working:]:
        upstream.fail(detail(path), *[fault] * ALWAYS)


def test_run_ends_after_25_requests_in_a_row_without_a_response_and_the_next_one_continues(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    fail_details(upstream, 150, 10, status(503))
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert "25 requests in a row failed, the last one because" in result.stderr
    # Each widget is tried five times; the pool works on a batch of 64 ahead.
    assert len(upstream.requests) < 500
    # Widgets that were fetched before are written.
    assert len(exported(mirror_app)) == 10
    upstream.faults.clear()
    summary = mirror_summary(mirror_app, upstream.url)
    assert summary == "140 added, 0 changed, 10 unchanged, 0 failed, 0 gone."


def test_run_continues_after_many_requests_without_a_response_that_are_not_in_a_row(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.documents.clear()
    upstream.put(*numbered(60))
    for path in [*upstream.documents][::2]:
        upstream.fail(detail(path), *[status(503)] * ALWAYS)
    result = run_mirror(mirror_app, upstream.url)
    assert "30 added, 0 changed, 0 unchanged, 30 failed, 0 gone." in result.stderr


def test_run_continues_after_many_unexpected_statuses(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    fail_details(upstream, 50, 20, status(403))
    result = run_mirror(mirror_app, upstream.url)
    assert "20 added, 0 changed, 0 unchanged, 30 failed, 0 gone." in result.stderr
    assert "There are 10 more." in result.stderr


NOT_A_CATALOG = "the search response is not from a widget catalog"
INVALID_SEARCHES = {
    "404": (status(404), "it responded 404"),
    "HTML": (body(b"<html>"), "the response is not JSON in UTF-8"),
    "no total": (body(b'{"widgets": []}'), NOT_A_CATALOG),
    "names that are not text": (
        body(b'{"widgets": [{"scope": 1, "name": []}], "total": 1}'),
        NOT_A_CATALOG,
    ),
    "too many widgets": (
        body(b'{"widgets": [], "total": 200001}'),
        "it lists 200001 widgets, more than 200000",
    ),
}


@pytest.mark.parametrize(("fault", "reason"), INVALID_SEARCHES.values(), ids=INVALID_SEARCHES)
def test_server_that_is_not_a_catalog_is_refused_before_a_file_is_created(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path, fault: Fault, reason: str
) -> None:
    upstream.fail(SEARCH, fault)
    result = run_mirror(mirror_app, upstream.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: Cannot mirror {upstream.url}: {reason}")
    assert list(tmp_path.iterdir()) == []


def test_file_that_is_not_a_catalog_is_refused_before_any_request(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    (tmp_path / "other.db").write_bytes(b"not a database, " * 100)
    result = run_mirror(create_app({"DATABASE": tmp_path / "other.db"}), upstream.url)
    assert (result.exit_code, upstream.requests) == (1, [])
    assert result.stderr.endswith("other.db cannot be opened: file is not a database.\n")
