"""widget-catalog mirror: what the upstream unlists or deletes disappears here, unless kept."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import FakeUpstream

CREATED = "2025-01-01T00:00:00.000Z"
NOTES_UNLISTED = "acme/notes was unlisted or deleted at the upstream; it is unlisted here."
GONE = "0 added, 0 changed, 2 unchanged, 0 failed, 1 gone."


@pytest.fixture(autouse=True)
def three_widgets(upstream: FakeUpstream) -> None:
    upstream.put(
        document("acme/clock", upstream.with_bundle("1.0.0", b"one"), createdAt=CREATED),
        document("acme/notes", upstream.with_bundle("2.0.0", b"two"), createdAt=CREATED),
        document("lab/tide", createdAt=CREATED),
    )


def listed(app: Flask) -> list[str]:
    return [path for path, each in exported(app).items() if each["widget"]["listed"]]


def numbers(app: Flask) -> list[str]:
    return [each["version"] for each in exported(app)["acme/clock"]["versions"]]


def test_gone_widget_is_unlisted_and_listed_again_when_it_returns(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    notes = upstream.documents.pop("acme/notes")
    lines = run_mirror(mirror_app, upstream.url).stderr.splitlines()
    assert lines == [NOTES_UNLISTED, f"Mirrored {upstream.url}: {GONE}"]
    assert listed(mirror_app) == ["acme/clock", "lab/tide"]
    summary = mirror_summary(mirror_app, upstream.url)
    assert summary == "0 added, 0 changed, 2 unchanged, 0 failed, 0 gone."
    upstream.put(notes)
    assert mirror_summary(mirror_app, upstream.url).startswith("0 added, 1 changed, 2 unchanged")
    assert listed(mirror_app) == ["acme/clock", "acme/notes", "lab/tide"]
    # It is not one of those that gc removes.
    run(mirror_app, "unlist", "acme/notes")
    run(mirror_app, "gc")
    assert "acme/notes" in exported(mirror_app)


def test_archive_keeps_what_is_gone_and_any_later_run_without_the_option_removes_it(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", version("1.0.0"), version("2.0.0"), createdAt=CREATED))
    mirror_summary(mirror_app, upstream.url)
    upstream.put(document("acme/clock", version("1.0.0"), createdAt=CREATED))
    del upstream.documents["acme/notes"]
    for _ in range(2):
        lines = mirror_summary(mirror_app, upstream.url, "--keep-removed").splitlines()
        assert lines[:2] == [
            "acme/clock@2.0.0 was deleted at the upstream; it stays here.",
            "acme/notes was unlisted or deleted at the upstream; it stays here.",
        ]
    message = "acme/clock@2.0.0 was deleted at the upstream; it {} here.\n"
    dry_run = run_mirror(mirror_app, upstream.url, "--dry-run").stderr
    assert dry_run.startswith(message.format("would be removed"))
    assert (numbers(mirror_app), "acme/notes" in listed(mirror_app)) == (["2.0.0", "1.0.0"], True)
    assert message.format("is removed") in run_mirror(mirror_app, upstream.url).stderr
    assert (numbers(mirror_app), "acme/notes" in listed(mirror_app)) == (["1.0.0"], False)


def test_gc_deletes_gone_copies_with_their_bundles_and_no_other_unlisted_widget(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path
) -> None:
    mirror_summary(mirror_app, upstream.url, "--bundles")
    run(mirror_app, "unlist", "lab/tide")
    del upstream.documents["acme/notes"], upstream.documents["lab/tide"]
    mirror_summary(mirror_app, upstream.url)
    removed = "1 widget that the upstream no longer shows.\n"
    bundle = "1 unused bundle (3 bytes in total).\n"
    dry_run = run(mirror_app, "gc", "--dry-run")
    assert dry_run.stderr == f"Would remove {removed}Would remove {bundle}"
    assert list(exported(mirror_app)) == ["acme/clock", "acme/notes", "lab/tide"]
    assert run(mirror_app, "gc").stderr == f"Removed {removed}Removed {bundle}"
    assert list(exported(mirror_app)) == ["acme/clock", "lab/tide"]
    assert [file.read_bytes() for file in (tmp_path / "bundles").iterdir()] == [b"one"]
    entry = json.loads(run(mirror_app, "log", "--json").stdout)[-1]
    assert (entry["action"], entry["name"], entry["before"]["versions"]) == ("gc", "notes", 1)


def test_copy_that_the_operator_lists_again_is_not_deleted(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url, "--bundles")
    del upstream.documents["acme/notes"]
    mirror_summary(mirror_app, upstream.url)
    run(mirror_app, "relist", "acme/notes")
    assert run(mirror_app, "gc").stderr == "Removed 0 unused bundles (0 bytes in total).\n"


def test_pack_carries_which_copies_are_gone(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path, app_with: Callable[..., Flask]
) -> None:
    mirror_summary(mirror_app, upstream.url)
    del upstream.documents["acme/notes"]
    mirror_summary(mirror_app, upstream.url)
    run(mirror_app, "pack", tmp_path / "all.pack")
    offline = app_with()
    run(offline, "unpack", tmp_path / "all.pack", "--yes")
    assert run(offline, "gc").stderr.startswith("Removed 1 widget that")


def test_only_copies_of_this_upstream_are_unlisted(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("mine/own"))
    mirror_summary(app, upstream.url)
    with closing(FakeUpstream(document("other/clock"))) as other:
        assert mirror_summary(app, other.url).startswith("1 added, 0 changed, 0 unchanged")
    assert len(listed(app)) == 5


def test_empty_upstream_is_refused_unless_copies_are_kept(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    upstream.documents.clear()
    result = run_mirror(mirror_app, upstream.url)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: Cannot mirror {upstream.url}: it lists no widgets, so all copies would be "
        "unlisted; use --keep-removed to keep them.\n",
    )
    assert "3 gone." in mirror_summary(mirror_app, upstream.url, "--keep-removed")
    assert len(listed(mirror_app)) == 3


def test_takedown_of_the_only_selected_widget_arrives(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url, "--scope", "lab")
    del upstream.documents["lab/tide"]
    assert "1 gone." in mirror_summary(mirror_app, upstream.url, "--scope", "lab")
    assert listed(mirror_app) == []
