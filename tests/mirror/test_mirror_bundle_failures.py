"""widget-catalog mirror --bundles: a wrong bundle is never served, and a download continues."""

from pathlib import Path

import pytest
from builders import document, version
from flask import Flask
from flask.testing import FlaskClient
from mirrors import (
    BUNDLE,
    CONTENT,
    HELD_BUNDLE,
    OTHER,
    bundle_summary,
    bundle_urls,
    held_bundle,
    put_widget_with_two_bundles,
    run_mirror,
)
from upstreams import FakeUpstream, Fault, Handler, body, endless, redirect, status, truncate


@pytest.fixture(autouse=True)
def widget_with_two_bundles(upstream: FakeUpstream) -> None:
    put_widget_with_two_bundles(upstream)


@pytest.fixture
def client(mirror_app: Flask) -> FlaskClient:
    return mirror_app.test_client()


def stored_files(tmp_path: Path) -> list[bytes]:
    files = [path for path in (tmp_path / "bundles").rglob("*") if path.is_file()]
    return sorted(path.read_bytes() for path in files)


def begin_with_other_bytes(handler: Handler) -> None:
    """Send the beginning of another content, and close the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    handler.wfile.write(b"!" * 100)
    handler.close_connection = True


UNUSABLE = {
    "403": status(403),
    "incomplete": begin_with_other_bytes,
    "other bytes": body(b"!" * len(CONTENT)),
}


@pytest.mark.parametrize("fault", UNUSABLE.values(), ids=UNUSABLE)
def test_equal_bundle_is_downloaded_from_any_url_that_has_it(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream, fault: Fault
) -> None:
    upstream.put(document("acme/copy", upstream.with_bundle("9.0.0", CONTENT)))
    upstream.fail(BUNDLE, *[fault] * 5)
    assert bundle_summary(mirror_app, upstream.url) == "2 fetched, 0 here already, 0 failed."
    assert held_bundle(client, HELD_BUNDLE) == CONTENT


def test_wrong_size_at_the_same_url_does_not_affect_other_versions(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    wrong_size = upstream.with_bundle("1.0.0", CONTENT, bundleSize=5)
    upstream.put(document("acme/alarm", wrong_size), document("acme/zeta", wrong_size))
    assert run_mirror(mirror_app, upstream.url, "--bundles").stderr.count("stays at") == 2
    assert held_bundle(client, HELD_BUNDLE) == CONTENT


def test_wrong_size_is_refused_though_the_hash_is_right(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    wrong_size = upstream.with_bundle("9.0.0", CONTENT, bundleSize=5)
    upstream.put(document("acme/zeta", wrong_size))
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert result.exit_code == 1
    url = f"{upstream.url}/bundles/9.0.0.js"
    assert f"acme/zeta@9.0.0: stays at {url}: its size is not 5 bytes.\n" in result.stderr
    assert bundle_urls(client, "acme/zeta")["9.0.0"] == url
    assert held_bundle(client, HELD_BUNDLE) == CONTENT


WRONG = {
    "other bytes": (body(CONTENT.replace(b"i", b"o")), "its SHA-256 is "),
    "too short": (body(CONTENT[:-1]), f"it has {len(CONTENT) - 1} bytes, not {len(CONTENT)}"),
    "too long": (body(CONTENT + b"!"), f"the response is larger than {len(CONTENT)} bytes"),
    "endless": (endless(), f"the response is larger than {len(CONTENT)} bytes"),
    "404": (status(404), "the response status is 404, not 200"),
    "500": (status(500), "the response status is 500, not 200"),
    "file": (redirect("file:///etc/passwd"), "'file:///etc/passwd' is not an absolute http"),
    "truncated": (truncate(0), "the connection ended before the response was complete"),
}


@pytest.mark.parametrize(("fault", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_bundle_is_reported_and_its_version_keeps_the_original_url(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream, fault: Fault, reason: str
) -> None:
    upstream.fail(BUNDLE, *[fault] * 5)
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    _, failure, summary, error = result.stderr.splitlines()
    assert failure.startswith(f"acme/clock@1.0.0: stays at {upstream.url}{BUNDLE}: ")
    assert reason in failure
    assert summary == "Bundles: 1 fetched, 0 here already, 1 failed."
    assert (result.exit_code, error) == (1, "Error: 1 bundle failed; the rest is done.")
    assert bundle_urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert bundle_urls(client)["2.0.0"].startswith("http://localhost/")
    assert held_bundle(client, HELD_BUNDLE) is None
    upstream.faults.clear()
    bundle_summary(mirror_app, upstream.url)
    assert held_bundle(client, HELD_BUNDLE) == CONTENT


def test_truncated_download_is_repeated_in_the_same_run(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path
) -> None:
    upstream.fail(BUNDLE, truncate(1000), truncate(0))
    assert bundle_summary(mirror_app, upstream.url) == "2 fetched, 0 here already, 0 failed."
    assert stored_files(tmp_path) == sorted([CONTENT, OTHER])


def test_bundle_over_the_size_limit_is_not_requested(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"x", bundleSize=2**40)))
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert f"its size is {2**40} bytes, more than 536870912" in result.stderr
    assert BUNDLE not in upstream.paths()


def test_bundle_on_an_unreachable_host_is_reported(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", version(bundleUrl="http://127.0.0.1:1/x.js")))
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert result.exit_code == 1
    assert "stays at http://127.0.0.1:1/x.js: 127.0.0.1 cannot be reached." in result.stderr
