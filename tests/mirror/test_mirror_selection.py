"""widget-catalog mirror: --scope, --widget and --sdk select what is copied."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, document, version
from conftest import error_message, run
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import CHANGES, SEARCH, FakeUpstream, body, detail

CREATED = "2025-01-01T00:00:00.000Z"


def widget(path: str, sdk: str, **fields: Any) -> Json:
    return document(path, version(sdkVersion=sdk), createdAt=CREATED, **fields)


@pytest.fixture(autouse=True)
def four_widgets(upstream: FakeUpstream) -> None:
    upstream.put(
        widget("acme/clock", "^1.2.0", isOfficial=True),
        widget("acme/notes", "^2.0.0", isOfficial=True),
        widget("lab/tide", "^2.1.0"),
        widget("ops/load", "^3.0.0"),
    )


SELECTIONS = {
    "--scope acme --scope lab": ["acme/clock", "acme/notes", "lab/tide"],
    "--widget acme/notes --scope lab": ["acme/notes", "lab/tide"],
    "--sdk v2.4 --scope acme": ["acme/notes"],
    "--sdk 1.4 --sdk 3.0.0": ["acme/clock", "ops/load"],
    "--sdk 1.4.0 --scope lab --widget acme/clock": ["acme/clock"],
}


@pytest.mark.parametrize(("options", "selected"), SELECTIONS.items(), ids=SELECTIONS)
def test_only_selected_widgets_are_fetched(
    mirror_app: Flask, upstream: FakeUpstream, options: str, selected: list[str]
) -> None:
    mirror_summary(mirror_app, upstream.url, *options.split())
    assert list(exported(mirror_app)) == selected
    others = (SEARCH, CHANGES, "/about")
    requested = [path for path in upstream.paths() if not path.endswith(others)]
    assert sorted(requested) == sorted(map(detail, selected))


def test_list_is_read_for_the_selection_only(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url, "--scope=acme", "--sdk=2.0")
    searches = [path for path, _ in upstream.requests if SEARCH in path]
    assert searches == [
        f"{SEARCH}?page=1&limit=100&scope=acme&compatSdk=2.0.0",
    ]


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        ("--scope none --scope lab --widget lab/none", ["--scope none", "--widget lab/none"]),
        ("--exclude acme/clcok --exclude acme/notes", ["--exclude acme/clcok"]),
        ("--sdk 9.0.0", ["--sdk 9.0.0"]),
    ],
)
def test_option_that_matches_nothing_gets_a_warning(
    mirror_app: Flask, upstream: FakeUpstream, options: str, warnings: list[str]
) -> None:
    lines = run_mirror(mirror_app, upstream.url, *options.split()).stderr.splitlines()
    assert lines[:-1] == [f"Warning: {each} matches no widget." for each in warnings]


def test_changed_widgets_outside_the_selection_are_not_fetched(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    names = [path.split("/") for path in upstream.documents]
    entries = [{"scope": s, "name": n, "kind": "changed", "etag": '"e"'} for s, n in names]
    page = body(json.dumps({"changes": entries, "next": "t1", "more": False}).encode())
    for option in ("--scope=lab", "--sdk=2.0.0", "--scope=acme"):
        upstream.fail(CHANGES, page)
        mirror_summary(mirror_app, upstream.url, option)
    assert list(exported(mirror_app)) == ["acme/clock", "acme/notes", "lab/tide"]


def test_listed_widget_of_another_scope_is_ignored(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    widgets = [each["widget"] for each in upstream.documents.values()]
    upstream.fail(SEARCH, body(json.dumps({"widgets": widgets, "total": 4}).encode()))
    mirror_summary(mirror_app, upstream.url, "--scope", "lab")
    assert list(exported(mirror_app)) == ["lab/tide"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--scope", "..", "printable characters without a slash"),
        ("--widget", "acme", "'acme' is not of the form scope/name"),
        ("--sdk", "new", "'new' is not an SDK version such as 1.4.0"),
    ],
)
def test_invalid_selection_is_wrong_usage(
    mirror_app: Flask, option: str, value: str, message: str
) -> None:
    result = run_mirror(mirror_app, "http://a.example", option, value)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_excluded_widget_is_left_alone_by_every_run(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("acme/clock", displayName="Our own"))
    failed = run_mirror(app, upstream.url)
    assert "acme/clock: was published or imported here; --adopt replaces it" in failed.stderr
    mirror_summary(app, upstream.url, "--exclude", "acme/clock", "--exclude", "ops/load")
    del upstream.documents["ops/load"]
    # They are remembered: neither the own widget nor the copy is touched.
    assert run(app, "mirror").stderr == (
        f"Mirrored {upstream.url}: 0 added, 0 changed, 2 unchanged, 0 failed, 0 gone.\n"
    )
    assert exported(app)["acme/clock"]["widget"]["displayName"] == "Our own"
    assert exported(app)["ops/load"]["widget"]["listed"] is True
    assert "--exclude acme/clock --exclude ops/load" in run(app, "mirror", "status").stdout


@pytest.mark.parametrize(
    "change",
    [
        ("yank", "acme/clock@1.0.0"),
        ("unyank", "acme/clock@0.9.0"),
        ("deprecate", "acme/clock@1.0.0", "--message", "Old."),
        ("undeprecate", "acme/clock@0.9.0"),
        ("describe", "acme/clock", "--icon", "mdi:clock"),
        ("official", "acme/clock"),
    ],
)
def test_copy_is_changed_here_only_after_it_is_excluded(
    mirror_app: Flask, upstream: FakeUpstream, change: tuple[str, ...]
) -> None:
    old = version("0.9.0", yanked=True, deprecationMessage="Older.")
    upstream.put(document("acme/clock", old, version("1.0.0"), isOfficial=False))
    mirror_summary(mirror_app, upstream.url)
    before = exported(mirror_app)
    assert error_message(run(mirror_app, *change)) == (
        f"acme/clock is a copy from {upstream.url}; exclude it first, and repeat the "
        f"mirror's other options: widget-catalog mirror {upstream.url} --exclude acme/clock"
    )
    assert run(mirror_app, "unlist", "acme/clock").exit_code == 0
    assert run(mirror_app, "relist", "acme/clock").exit_code == 0
    assert exported(mirror_app) == before
    exclude = ("mirror", upstream.url, "--exclude", "acme/clock")
    planned = run(mirror_app, *exclude, "--dry-run").stderr
    assert "acme/clock would become a local widget.\n" in planned
    assert run(mirror_app, *change).exit_code == 1
    assert "acme/clock is now a local widget.\n" in run(mirror_app, *exclude).stderr
    assert run(mirror_app, *change).exit_code == 0
    changed = exported(mirror_app)
    assert changed != before
    # Neither a change nor a deletion at the upstream takes it back.
    del upstream.documents["acme/clock"]
    assert run(mirror_app, "mirror").exit_code == 0
    assert exported(mirror_app) == changed


def test_only_the_newest_versions_for_each_sdk_are_copied(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    def numbers() -> list[str]:
        return [each["version"] for each in exported(mirror_app)["acme/clock"]["versions"]]

    # The newest one is the one that was published last.
    rows = [("1.0.0", "^1.0.0"), ("1.2.0", "^1.2.0"), ("1.1.0", "^1.2.0"), ("2.0.0", "^2.0.0")]
    versions = [
        version(number, sdkVersion=sdk, publishedAt=f"2025-01-0{day}T00:00:00Z")
        for day, (number, sdk) in enumerate(rows, start=1)
    ]
    upstream.put(document("acme/clock", *versions, createdAt=CREATED))
    only = ["--widget", "acme/clock", "--newest"]
    mirror_summary(mirror_app, upstream.url, *only, "1", "--sdk", "1.4", "--sdk", "2.0")
    assert numbers() == ["2.0.0", "1.1.0"]
    # Others are copied although nothing has changed there.
    mirror_summary(mirror_app, upstream.url, *only, "1", "--sdk", "1.4")
    assert numbers() == ["1.1.0"]
    mirror_summary(mirror_app, upstream.url, *only, "2", "--sdk", "1.4")
    assert numbers() == ["1.1.0", "1.2.0"]
    versions[2]["yanked"] = True
    lines = run(mirror_app, "mirror").stderr.splitlines()
    reason = "is no longer among the newest 2 versions to copy"
    removed = f"acme/clock@1.1.0 {reason}; it is removed here."
    assert (lines[0], numbers()) == (removed, ["1.2.0", "1.0.0"])
    for each in versions:
        each["yanked"] = True
    assert (run(mirror_app, "mirror").exit_code, numbers()) == (0, [])
    mirror_summary(mirror_app, upstream.url)
    assert numbers() == ["2.0.0", "1.1.0", "1.2.0", "1.0.0"]


def test_a_mirror_of_all_versions_can_be_reduced_to_the_newest(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    versions = [version(f"{number}.0.0") for number in (1, 2, 3)]
    upstream.put(document("acme/clock", *versions, createdAt=CREATED))
    mirror_summary(mirror_app, upstream.url)
    mirror_summary(mirror_app, upstream.url, "--newest", "1")
    (left,) = exported(mirror_app)["acme/clock"]["versions"]
    assert left["version"] == "3.0.0"
