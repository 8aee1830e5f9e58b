"""Options of mirror: --adopt, --dry-run and --quiet, and wrong usage."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import FakeUpstream, body, detail

CREATED = "2025-01-01T00:00:00.000Z"
CLOCK = document(
    "acme/clock", version("1.0.0"), version("2.0.0"), downloadCount=7, createdAt=CREATED
)
NOTES = document("acme/notes", version("1.0.0"), createdAt=CREATED)
TIDE = document("lab/tide", createdAt=CREATED)
UNCHANGED = "0 added, 0 changed, 3 unchanged, 0 failed, 0 gone."


@pytest.fixture(autouse=True)
def three_widgets(upstream: FakeUpstream) -> None:
    upstream.put(CLOCK, NOTES, TIDE)


@pytest.fixture
def other_upstream() -> Iterator[FakeUpstream]:
    with closing(FakeUpstream()) as running:
        yield running


def download_count(app: Flask) -> int | None:
    return exported(app)["acme/clock"]["widget"]["downloadCount"]


def test_widget_published_here_is_not_replaced(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("acme/clock", displayName="Mine", downloadCount=2))
    result = run_mirror(app, upstream.url)
    assert (result.exit_code, result.stderr) == (
        1,
        "acme/clock: was published or imported here; --adopt replaces it.\n"
        f"Mirrored {upstream.url}: 2 added, 0 changed, 0 unchanged, 1 failed, 0 gone.\n"
        "Error: 1 widget failed; the rest is done.\n",
    )
    assert exported(app)["acme/clock"]["widget"]["displayName"] == "Mine"


def test_adopt_replaces_a_widget_published_here_and_its_count(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("acme/clock", version("0.1.0"), displayName="Mine", downloadCount=2))
    summary = mirror_summary(app, upstream.url, "--adopt")
    assert summary == "2 added, 1 changed, 0 unchanged, 0 failed, 0 gone."
    versions = [each["version"] for each in exported(app)["acme/clock"]["versions"]]
    assert (versions, download_count(app)) == (["2.0.0", "1.0.0"], 7)
    assert mirror_summary(app, upstream.url) == UNCHANGED


def test_copy_from_another_upstream_is_replaced_only_by_adopt_and_keeps_installs(
    mirror_app: Flask, upstream: FakeUpstream, other_upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    for _ in range(2):
        mirror_app.test_client().post("/api/v1/widgets/acme/clock")
    other_upstream.put(document("acme/clock", downloadCount=100))
    result = run_mirror(mirror_app, other_upstream.url)
    assert result.exit_code == 1
    assert f"acme/clock: is a copy from {upstream.url}; --adopt replaces" in result.stderr
    assert download_count(mirror_app) == 9
    mirror_summary(mirror_app, other_upstream.url, "--adopt")
    assert download_count(mirror_app) == 102


def test_dry_run_reports_changes_and_writes_nothing(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path
) -> None:
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


def test_dry_run_creates_no_catalog(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path
) -> None:
    result = run_mirror(mirror_app, upstream.url, "--dry-run", "--bundles")
    assert (result.exit_code, result.stderr) == (
        0,
        f"Would mirror {upstream.url}: 3 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_quiet_prints_only_failures(mirror_app: Flask, upstream: FakeUpstream) -> None:
    assert run_mirror(mirror_app, upstream.url, "--quiet").output == ""
    upstream.fail(detail("acme/clock"), body(b"[]"))
    assert len(run_mirror(mirror_app, upstream.url, "--quiet").stderr.splitlines()) == 2


def test_invalid_port_is_an_error(mirror_app: Flask, tmp_path: Path) -> None:
    url = "http://127.0.0.1:99999"
    result = run_mirror(mirror_app, url)
    reason = f"cannot be mirrored: '{url}' is not an absolute http or https URL."
    assert (result.exit_code, result.stderr) == (1, f"Error: {url} {reason}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8080", "file:///x", "http://", "http://u:p@a.example", "x\ud800"),
        *("http://a.example/?x=1", "http://a.example/#x", "http://a b"),
    ],
)
def test_invalid_url_is_wrong_usage(mirror_app: Flask, url: str) -> None:
    result = run_mirror(mirror_app, url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not an absolute http or https URL" in result.stderr
