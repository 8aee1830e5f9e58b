"""widget-catalog mirror --bundles: bundles are downloaded once and served from here."""

import os
import stat
from pathlib import Path

import pytest
from builders import document
from conftest import running
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
    mirror_summary,
    put_widget_with_two_bundles,
    run_mirror,
    stored_rows,
)
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from upstreams import FakeUpstream, truncate


@pytest.fixture(autouse=True)
def widget_with_two_bundles(upstream: FakeUpstream) -> None:
    put_widget_with_two_bundles(upstream)


@pytest.fixture
def client(mirror_app: Flask) -> FlaskClient:
    return mirror_app.test_client()


def directory(app: Flask) -> Path:
    return app.config["DATABASE"].with_name("bundles")


def stored_files(app: Flask) -> list[bytes]:
    return sorted(path.read_bytes() for path in files(app))


def files(app: Flask) -> list[Path]:
    return [path for path in directory(app).rglob("*") if path.is_file()]


def test_bundles_are_stored_and_served(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    assert bundle_summary(mirror_app, upstream.url) == "2 fetched, 0 here already, 0 failed."
    assert stored_files(mirror_app) == sorted([CONTENT, OTHER])
    assert bundle_urls(client)["1.0.0"] == f"http://localhost{HELD_BUNDLE}"
    requests = len(upstream.requests)
    assert held_bundle(client, HELD_BUNDLE) == CONTENT
    assert len(upstream.requests) == requests


def test_without_the_option_no_bundle_is_requested(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    assert bundle_urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert BUNDLE not in upstream.paths()
    assert not directory(mirror_app).exists()


def test_refresh_downloads_only_new_bundles(mirror_app: Flask, upstream: FakeUpstream) -> None:
    bundle_summary(mirror_app, upstream.url)
    upstream.requests.clear()
    assert bundle_summary(mirror_app, upstream.url) == "0 fetched, 2 here already, 0 failed."
    upstream.documents["acme/clock"]["versions"].append(upstream.with_bundle("3.0.0", b"new"))
    assert bundle_summary(mirror_app, upstream.url) == "1 fetched, 2 here already, 0 failed."
    assert [path for path in upstream.paths() if "bundles" in path] == ["/bundles/3.0.0.js"]


def test_refresh_without_new_bundles_changes_nothing(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    before = stored_rows(mirror_app)
    bundle_summary(mirror_app, upstream.url)
    assert stored_rows(mirror_app) == before


def test_equal_bundles_are_downloaded_once(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/copy", upstream.with_bundle("9.0.0", CONTENT)))
    assert bundle_summary(mirror_app, upstream.url) == "2 fetched, 0 here already, 0 failed."
    assert stored_files(mirror_app) == sorted([CONTENT, OTHER])
    assert held_bundle(client, bundle_urls(client, "acme/copy")["9.0.0"]) == CONTENT


def test_bundle_lost_here_is_downloaded_again(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    for file in files(mirror_app):
        file.unlink()
    assert bundle_summary(mirror_app, upstream.url) == "2 fetched, 0 here already, 0 failed."
    assert held_bundle(client, HELD_BUNDLE) == CONTENT


def test_bundle_lost_here_and_at_the_upstream_gets_its_original_url_again(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    for file in files(mirror_app):
        file.unlink()
    del upstream.bundles[BUNDLE]
    assert run_mirror(mirror_app, upstream.url, "--bundles").exit_code == 1
    assert bundle_urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert bundle_urls(client)["2.0.0"].startswith("http://localhost/")


def test_changed_bundle_of_a_version_is_downloaded_again(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"rebuilt")))
    mirror_summary(mirror_app, upstream.url)
    assert bundle_urls(client) == {"1.0.0": upstream.url + BUNDLE}
    assert bundle_summary(mirror_app, upstream.url) == "1 fetched, 0 here already, 0 failed."
    assert held_bundle(client, HELD_BUNDLE) == b"rebuilt"


def test_empty_bundle_is_served(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"")))
    assert bundle_summary(mirror_app, upstream.url) == "1 fetched, 0 here already, 0 failed."
    assert held_bundle(client, HELD_BUNDLE) == b""


def test_url_of_a_bundle_never_names_a_local_file(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    traversal = upstream.with_bundle("9.0.0", OTHER)
    upstream.bundles["/bundles/../../../etc/x"] = upstream.bundles["/etc/x"] = OTHER
    traversal["bundleUrl"] = f"{upstream.url}/bundles/../../../etc/x"
    upstream.put(document("acme/traversal", traversal))
    bundle_summary(mirror_app, upstream.url)
    names = [path.name for path in files(mirror_app)]
    assert len(names) == 2
    assert all(len(name) == 64 and set(name) <= set("0123456789abcdef") for name in names)


def test_bundles_are_readable_only_by_their_owner(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    before = os.umask(0)
    try:
        upstream.fail(BUNDLE, *[truncate(10)] * 4)
        run_mirror(mirror_app, upstream.url, "--bundles")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files(mirror_app)}
    assert (modes, stat.S_IMODE(directory(mirror_app).stat().st_mode)) == ({0o600}, 0o700)


def test_stored_bundle_that_no_version_uses_yet_is_served_without_a_download(
    mirror_app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    bundle_summary(mirror_app, upstream.url)
    # As after a kill between the download and the write to the database.
    mirror_app.extensions["database"].transact(running("UPDATE version SET bundle_path = NULL"))
    upstream.requests.clear()
    assert bundle_summary(mirror_app, upstream.url) == "0 fetched, 2 here already, 0 failed."
    assert held_bundle(client, bundle_urls(client)["1.0.0"]) == CONTENT
    assert BUNDLE not in upstream.paths()


def test_scope_limits_the_bundles(mirror_app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("lab/tide", upstream.with_bundle("9.0.0", b"tide")))
    mirror_summary(mirror_app, upstream.url)
    result = run_mirror(mirror_app, upstream.url, "--bundles", "--scope", "lab")
    assert result.stderr.splitlines()[-1] == "Bundles: 1 fetched, 0 here already, 0 failed."
    assert stored_files(mirror_app) == [b"tide"]


def test_bundles_of_unlisted_widgets_are_not_downloaded(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("lab/tide", upstream.with_bundle("9.0.0", b"tide")))
    mirror_summary(mirror_app, upstream.url)
    del upstream.documents["acme/clock"]
    run_mirror(mirror_app, upstream.url, "--bundles")
    assert stored_files(mirror_app) == [b"tide"]


def test_dry_run_downloads_no_bundle(mirror_app: Flask, upstream: FakeUpstream) -> None:
    bundle_summary(mirror_app, upstream.url)
    upstream.documents["acme/clock"]["versions"].append(upstream.with_bundle("3.0.0", b"new"))
    upstream.requests.clear()
    assert run_mirror(mirror_app, upstream.url, "--bundles", "--dry-run").exit_code == 0
    assert stored_files(mirror_app) == sorted([CONTENT, OTHER])
    assert not any("bundles" in path for path in upstream.paths())


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
    assert bundle_summary(mirror_app, upstream.url) == "2 fetched, 0 here already, 0 failed."
    assert statuses == [201]
