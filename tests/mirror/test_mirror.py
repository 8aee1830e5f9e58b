"""mirror: the first run copies everything, a refresh what changed; --adopt and --dry-run."""

import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror, stored_rows
from upstreams import CHANGES, SEARCH, FakeUpstream, body, detail

CREATED = "2025-01-01T00:00:00.000Z"
ADDED = "3 added, 0 changed, 0 unchanged, 0 failed, 0 gone."
UNCHANGED = "0 added, 0 changed, 3 unchanged, 0 failed, 0 gone."


@pytest.fixture(autouse=True)
def three_widgets(upstream: FakeUpstream) -> None:
    versions = version("1.0.0"), version("2.0.0")
    upstream.put(
        document("acme/clock", *versions, downloadCount=7, createdAt=CREATED),
        document("acme/notes", version("1.0.0"), createdAt=CREATED),
        document("lab/tide", createdAt=CREATED),
    )


def download_count(app: Flask) -> int | None:
    return exported(app)["acme/clock"]["widget"]["downloadCount"]


@pytest.mark.parametrize("has_etags", [True, False])
def test_refresh_without_changes_sends_etags_and_changes_nothing(
    mirror_app: Flask, upstream: FakeUpstream, has_etags: bool
) -> None:
    upstream.has_etags = has_etags
    mirror_summary(mirror_app, upstream.url)
    before = stored_rows(mirror_app)
    upstream.requests.clear()
    assert mirror_summary(mirror_app, upstream.url) == UNCHANGED
    assert stored_rows(mirror_app) == before
    requests = [(path, "If-None-Match" in headers) for path, headers in upstream.requests]
    # This upstream does not list its changes.
    changes = (f"{CHANGES}?limit=100", False)
    details = [(detail(path), has_etags) for path in upstream.documents]
    assert requests[:2] == [changes, (f"{SEARCH}?page=1&limit=100", False)]
    assert sorted(each for each in requests[2:] if not each[0].endswith("/about")) == details


def test_an_upstream_without_about_is_asked_for_it_once_a_run(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    for _ in range(2):
        upstream.requests.clear()
        mirror_summary(mirror_app, upstream.url)
        assert sum(path.endswith("/about") for path in upstream.paths()) == 1


COUNTS = {
    "both": (7, 2, 10, 12),
    "only local": (7, 2, 7, 9),
    "null upstream": (None, 0, None, None),
    "null upstream at first": (None, 2, 5, 7),
    "null upstream later": (7, 2, None, 2),
    "fewer upstream later": (7, 2, 3, 5),
    "maximum": (7, 2, 2**53 - 2, 2**53 - 1),
}


@pytest.mark.parametrize(("first", "local", "later", "expected"), COUNTS.values(), ids=COUNTS)
def test_download_count_is_the_sum_of_upstream_and_local_installs(
    mirror_app: Flask,
    upstream: FakeUpstream,
    first: int | None,
    local: int,
    later: int | None,
    expected: int | None,
) -> None:
    upstream.put(document("acme/clock", downloadCount=first))
    mirror_summary(mirror_app, upstream.url)
    for _ in range(local):
        mirror_app.test_client().post("/api/v1/widgets/acme/clock")
    upstream.put(document("acme/clock", downloadCount=later, icon="mdi:clock"))
    mirror_summary(mirror_app, upstream.url)
    assert download_count(mirror_app) == expected
    mirror_summary(mirror_app, upstream.url)
    assert download_count(mirror_app) == expected


def test_download_count_is_never_below_that_of_the_upstream(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    line = json.dumps(document("acme/clock", downloadCount=3))
    assert run(mirror_app, "import", "--set-counts", "-", stdin=line).exit_code == 0
    assert download_count(mirror_app) == 3
    upstream.put(document("acme/clock", downloadCount=9))
    mirror_summary(mirror_app, upstream.url)
    assert download_count(mirror_app) == 9


def test_details_are_fetched_concurrently(mirror_app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("acme/alarm"))
    four_requests = threading.Barrier(4, timeout=60)

    def wait_for_others(path: str) -> None:
        if path.removeprefix("/api/v1/widgets/") in upstream.documents:
            four_requests.wait()

    upstream.on_request = wait_for_others
    assert mirror_summary(mirror_app, upstream.url).startswith("4 added, 0 changed, 0 unchanged, 0")


def test_widget_published_here_is_replaced_with_its_count_only_by_adopt(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("acme/clock", version("0.1.0"), displayName="Mine", downloadCount=2))
    result = run_mirror(app, upstream.url)
    assert (result.exit_code, result.stderr) == (
        1,
        "acme/clock: was published or imported here; --adopt replaces it, --exclude keeps it.\n"
        f"Mirrored {upstream.url}: 2 added, 0 changed, 0 unchanged, 1 failed, 0 gone.\n"
        "Error: 1 widget failed; everything else succeeded.\n",
    )
    assert exported(app)["acme/clock"]["widget"]["displayName"] == "Mine"
    refused = run_mirror(app, upstream.url, "--adopt")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "acme/clock is a local widget.\n"
        "Error: Replace 1 widget with copies from the upstream? "
        "Standard input is not a terminal; use --yes to confirm.\n",
    )
    assert exported(app)["acme/clock"]["widget"]["displayName"] == "Mine"
    summary = mirror_summary(app, upstream.url, "--adopt", "--yes").splitlines()
    assert summary[1].endswith(": 0 added, 1 changed, 2 unchanged, 0 failed, 0 gone.")
    versions = [each["version"] for each in exported(app)["acme/clock"]["versions"]]
    assert (versions, download_count(app)) == (["2.0.0", "1.0.0"], 7)
    assert mirror_summary(app, upstream.url) == UNCHANGED


def test_copy_from_another_upstream_is_replaced_only_by_adopt_and_keeps_installs(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    for _ in range(2):
        mirror_app.test_client().post("/api/v1/widgets/acme/clock")
    with closing(FakeUpstream(document("acme/clock", downloadCount=100))) as other:
        result = run_mirror(mirror_app, other.url)
        assert result.exit_code == 1
        assert f"acme/clock: is a copy from {upstream.url}; --adopt replaces" in result.stderr
        assert download_count(mirror_app) == 9
        mirror_summary(mirror_app, other.url, "--adopt", "--yes")
    assert download_count(mirror_app) == 102


def test_dry_run_reports_changes_and_writes_nothing(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path
) -> None:
    first = run_mirror(mirror_app, upstream.url, "--dry-run", "--bundles")
    assert (first.exit_code, first.stderr) == (0, f"Would mirror {upstream.url}: {ADDED}\n")
    assert list(tmp_path.iterdir()) == []
    mirror_summary(mirror_app, upstream.url)
    upstream.put(document("acme/notes", version("1.0.0"), version("3.0.0")), document("acme/alarm"))
    del upstream.documents["lab/tide"]
    files = ["mirror.db", "mirror.db-wal"]
    before = [(tmp_path / name).read_bytes() for name in files]
    result = run_mirror(mirror_app, upstream.url, "--dry-run")
    assert (result.exit_code, result.stderr) == (
        0,
        "lab/tide was unlisted or deleted at the upstream; it would be unlisted here.\n"
        f"Would mirror {upstream.url}: 1 added, 1 changed, 1 unchanged, 0 failed, 1 gone.\n",
    )
    assert [(tmp_path / name).read_bytes() for name in files] == before


def test_failed_refresh_leaves_the_copy_unchanged_and_quiet_prints_only_failures(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    assert run_mirror(mirror_app, upstream.url, "--quiet").output == ""
    before = exported(mirror_app)
    upstream.fail(detail("acme/clock"), body(b"[]"))
    failure, error = run_mirror(mirror_app, upstream.url, "--quiet").stderr.splitlines()
    assert failure.startswith("acme/clock: must be an object")
    assert error == "Error: 1 widget failed; everything else succeeded."
    assert exported(mirror_app) == before


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "file:///x", "http://u:p@a.example", "http://a.example/?x=1"]
)
def test_invalid_url_is_wrong_usage(mirror_app: Flask, url: str) -> None:
    result = run_mirror(mirror_app, url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not an absolute http or https URL" in result.stderr
