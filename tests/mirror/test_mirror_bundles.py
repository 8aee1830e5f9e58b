"""mirror --bundles: bundles are downloaded once, verified and served; a wrong one never is."""

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import bundled, document
from conftest import hold, running
from flask import Flask
from flask.testing import FlaskClient
from mirrors import (
    bundle_summary,
    bundle_urls,
    held_bundle,
    mirror_summary,
    run_mirror,
    stored_rows,
)
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from upstreams import FakeUpstream, Fault, body, endless, status, truncate

CONTENT = b"export default () => 'tick';\n" * 100
OTHER = b"export default () => 'tock';\n"
BUNDLE = "/bundles/1.0.0.js"
HELD_BUNDLE = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
BOTH_FETCHED = "2 fetched, 0 already stored, 0 failed."


@pytest.fixture(autouse=True)
def widget_with_two_bundles(upstream: FakeUpstream) -> None:
    versions = upstream.with_bundle("1.0.0", CONTENT), upstream.with_bundle("2.0.0", OTHER)
    upstream.put(document("acme/clock", *versions))


@pytest.fixture
def client(mirror_app: Flask) -> FlaskClient:
    return mirror_app.test_client()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "bundles"


def stored_files(directory: Path) -> dict[str, bytes]:
    """Return the content of each file by its name, without the compressed forms of bundles."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.suffix != ".gz")
    return {path.name: path.read_bytes() for path in files}


def by_hash(*contents: bytes) -> dict[str, bytes]:
    return {hashlib.sha256(content).hexdigest(): content for content in contents}


def test_an_adopted_widget_with_stored_bundles_names_their_bytes(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", CONTENT)))
    hold(app, CONTENT)
    assert "sha256=" not in bundle_urls(app.test_client())["1.0.0"]
    result = run_mirror(app, upstream.url, "--bundles", "--adopt", "--yes")
    assert result.exit_code == 0, result.stderr
    hash_ = hashlib.sha256(CONTENT).hexdigest()
    assert bundle_urls(app.test_client())["1.0.0"].endswith(f"/bundle.js?sha256={hash_}")


def test_a_downloaded_bundle_is_compressed_if_that_saves_enough(
    mirror_app: Flask, upstream: FakeUpstream, directory: Path
) -> None:
    assert bundle_summary(mirror_app, upstream.url) == BOTH_FETCHED
    (compressed,) = directory.rglob("*.gz")
    assert compressed.stem == hashlib.sha256(CONTENT).hexdigest()
    assert gzip.decompress(compressed.read_bytes()) == CONTENT


def test_bundles_are_stored_by_their_hashes_and_served_only_with_the_option(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream, directory: Path
) -> None:
    mirror_summary(mirror_app, upstream.url)
    assert bundle_urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert (BUNDLE in upstream.paths(), directory.exists()) == (False, False)
    assert bundle_summary(mirror_app, upstream.url) == BOTH_FETCHED
    assert stored_files(directory) == by_hash(CONTENT, OTHER)
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert bundle_urls(client)["1.0.0"] == f"http://localhost{HELD_BUNDLE}?sha256={sha256}"
    requests = len(upstream.requests)
    assert held_bundle(client, HELD_BUNDLE) == CONTENT
    assert len(upstream.requests) == requests


def test_dry_run_downloads_nothing(
    mirror_app: Flask, upstream: FakeUpstream, directory: Path
) -> None:
    mirror_summary(mirror_app, upstream.url)
    assert run_mirror(mirror_app, upstream.url, "--bundles", "--dry-run").exit_code == 0
    assert (BUNDLE in upstream.paths(), directory.exists()) == (False, False)


def test_refresh_downloads_only_new_bundles_and_else_changes_nothing(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    before = stored_rows(mirror_app)
    upstream.requests.clear()
    assert bundle_summary(mirror_app, upstream.url) == "0 fetched, 2 already stored, 0 failed."
    assert stored_rows(mirror_app) == before
    upstream.documents["acme/clock"]["versions"].append(upstream.with_bundle("3.0.0", b"new"))
    assert bundle_summary(mirror_app, upstream.url) == "1 fetched, 2 already stored, 0 failed."
    assert [path for path in upstream.paths() if "bundles" in path] == ["/bundles/3.0.0.js"]


def test_equal_bundles_are_downloaded_once_from_any_url_that_has_the_content(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream, directory: Path
) -> None:
    upstream.put(document("acme/copy", upstream.with_bundle("9.0.0", CONTENT)))
    upstream.fail(BUNDLE, body(b"!" * len(CONTENT)))
    assert bundle_summary(mirror_app, upstream.url) == BOTH_FETCHED
    assert stored_files(directory) == by_hash(CONTENT, OTHER)
    assert held_bundle(client, HELD_BUNDLE) == CONTENT
    assert held_bundle(client, bundle_urls(client, "acme/copy")["9.0.0"]) == CONTENT


def test_lost_bundle_is_downloaded_again_or_gets_its_original_url(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream, directory: Path
) -> None:
    bundle_summary(mirror_app, upstream.url)
    for name in stored_files(directory):
        (directory / name).unlink()
    del upstream.bundles[BUNDLE]
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert "Bundles: 1 fetched, 0 already stored, 1 failed.\n" in result.stderr
    assert bundle_urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert held_bundle(client, bundle_urls(client)["2.0.0"]) == OTHER


def test_changed_bundle_of_a_version_is_downloaded_again(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"rebuilt")))
    mirror_summary(mirror_app, upstream.url)
    assert bundle_urls(client) == {"1.0.0": upstream.url + BUNDLE}
    assert bundle_summary(mirror_app, upstream.url) == "1 fetched, 0 already stored, 0 failed."
    assert held_bundle(client, HELD_BUNDLE) == b"rebuilt"


def test_stored_bundle_that_no_version_uses_yet_is_served_without_a_download(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    # As after a kill between the download and the write to the database.
    mirror_app.extensions["database"].transact(running("UPDATE version SET bundle_path = NULL"))
    upstream.requests.clear()
    assert bundle_summary(mirror_app, upstream.url) == "0 fetched, 2 already stored, 0 failed."
    assert held_bundle(client, bundle_urls(client)["1.0.0"]) == CONTENT
    assert BUNDLE not in upstream.paths()


def test_bundles_of_all_listed_copies_are_downloaded_also_outside_the_selection(
    mirror_app: Flask, upstream: FakeUpstream, directory: Path
) -> None:
    upstream.put(document("lab/tide", upstream.with_bundle("8.0.0", b"tide")))
    upstream.put(document("lab/gone", upstream.with_bundle("9.0.0", b"gone")))
    upstream.put(document("lab/own", upstream.with_bundle("7.0.0", b"own")))
    mirror_summary(mirror_app, upstream.url)
    del upstream.documents["lab/gone"]
    run_mirror(mirror_app, upstream.url, "--bundles", "--scope", "ops", "--exclude", "lab/own")
    stored = stored_files(directory)
    assert stored.items() >= by_hash(b"tide").items()
    assert len(stored) == 3


def test_publishing_does_not_wait_for_downloads(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url)
    headers = bearer(create_token(mirror_app))
    statuses = []

    def publish(path: str) -> None:
        if path == BUNDLE:
            response = mirror_app.test_client().put(
                "/api/widgets/acme/alarm/1.0.0",
                data=form(manifest("acme/alarm")),
                content_type=FORM_TYPE,
                headers=headers,
            )
            statuses.append(response.status_code)

    upstream.on_request = publish
    assert bundle_summary(mirror_app, upstream.url) == BOTH_FETCHED
    assert statuses == [201]


OTHER_BYTES = running("UPDATE version SET sha256_hash = hex(zeroblob(32)) WHERE version = '1.0.0'")


def test_version_that_changes_while_its_bundle_is_downloaded_keeps_the_original_url(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)

    def change(path: str) -> None:
        if path == BUNDLE:
            mirror_app.extensions["database"].transact(OTHER_BYTES)

    upstream.on_request = change
    assert bundle_summary(mirror_app, upstream.url) == BOTH_FETCHED
    assert bundle_urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert held_bundle(client, bundle_urls(client)["2.0.0"]) == OTHER


WRONG = {
    "other bytes": (body(CONTENT.replace(b"i", b"o")), "its SHA-256 is "),
    "too short": (body(CONTENT[:-1]), f"it has {len(CONTENT) - 1} bytes, not {len(CONTENT)}"),
    "endless": (endless(), f"it sent a response of more than {len(CONTENT)} bytes"),
    "404": (status(404), "it responded 404"),
    "truncated": (truncate(0), "it did not send its whole response"),
}


@pytest.mark.parametrize(("fault", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_bundle_is_reported_and_its_version_keeps_the_original_url(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream, fault: Fault, reason: str
) -> None:
    upstream.fail(BUNDLE, *[fault] * 5)
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    _, failure, summary, error = result.stderr.splitlines()
    assert failure.startswith(f"acme/clock@1.0.0: its bundle stays at {upstream.url}{BUNDLE}: ")
    assert reason in failure
    assert summary == "Bundles: 1 fetched, 0 already stored, 1 failed."
    assert (result.exit_code, error) == (1, "Error: 1 bundle failed; everything else succeeded.")
    assert bundle_urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert bundle_urls(client)["2.0.0"].startswith("http://localhost/")
    assert held_bundle(client, HELD_BUNDLE) is None
    upstream.faults.clear()
    bundle_summary(mirror_app, upstream.url)
    assert held_bundle(client, HELD_BUNDLE) == CONTENT


def test_truncated_download_is_repeated_in_the_same_run(
    mirror_app: Flask, upstream: FakeUpstream, directory: Path
) -> None:
    upstream.fail(BUNDLE, truncate(1000), truncate(0))
    assert bundle_summary(mirror_app, upstream.url) == BOTH_FETCHED
    assert stored_files(directory) == by_hash(CONTENT, OTHER)


@pytest.mark.parametrize("number", ["1.0.0", "9.0.0"], ids=["same URL", "another URL"])
def test_version_with_a_wrong_size_is_refused_and_does_not_affect_others(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream, number: str
) -> None:
    wrong_size = upstream.with_bundle(number, CONTENT, bundleSize=5)
    upstream.put(document("acme/alarm", wrong_size), document("acme/zeta", wrong_size))
    failures = run_mirror(mirror_app, upstream.url, "--bundles").stderr
    for path in ("acme/alarm", "acme/zeta"):
        reason = f"its bundle stays at {wrong_size['bundleUrl']}: it is not 5 bytes"
        assert f"{path}@{number}: {reason}.\n" in failures
        assert bundle_urls(client, path) == {number: wrong_size["bundleUrl"]}
    assert held_bundle(client, HELD_BUNDLE) == CONTENT


def test_bundle_over_the_size_limit_is_not_requested(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"x", bundleSize=2**40)))
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert f"its size is {2**40} bytes, more than 536870912" in result.stderr
    assert BUNDLE not in upstream.paths()
