"""widget-catalog mirror --min-age: new versions are held back until they are old enough."""

from datetime import UTC, datetime, timedelta

import pytest
from builders import Json, document, version
from conftest import run
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import CHANGES, FakeUpstream, Fault, body

CREATED = "2025-01-01T00:00:00.000Z"
NO_CHANGE = body(b'{"changes": [], "next": "t1", "more": false}')


def aged(number: str, **age: float) -> Json:
    """Return a version that was published so long ago."""
    time = datetime.now(UTC) - timedelta(**age)
    return version(number, publishedAt=time.isoformat(timespec="milliseconds"))


@pytest.fixture(autouse=True)
def new_versions(upstream: FakeUpstream) -> None:
    upstream.put(
        document("acme/clock", aged("2.0.0", days=6), aged("1.0.0", days=8), createdAt=CREATED),
        document("acme/new", aged("1.0.0", hours=1), createdAt=CREATED),
        document("acme/none", createdAt=CREATED),
    )


def numbers(app: Flask) -> dict[str, list[str]]:
    return {
        path: [each["version"] for each in document["versions"]]
        for path, document in exported(app).items()
    }


def test_new_versions_are_held_back_and_named(mirror_app: Flask, upstream: FakeUpstream) -> None:
    expected = []
    for name in ("acme/clock@2.0.0", "acme/new@1.0.0"):
        published = upstream.documents[name.partition("@")[0]]["versions"][0]["publishedAt"]
        time = published.replace("+00:00", "Z")
        expected += [f"{name} was published at {time}; it is held back until it is 7d old."]
    dry_run = run_mirror(mirror_app, upstream.url, "--min-age=7d", "--dry-run")
    assert dry_run.stderr.splitlines()[:-1] == expected
    for arguments, summary in (
        ([upstream.url, "--min-age", "7d"], "2 added, 0 changed, 0 unchanged, 0 failed, 0 gone."),
        # It is remembered.
        ([], "0 added, 0 changed, 2 unchanged, 0 failed, 0 gone."),
    ):
        lines = run(mirror_app, "mirror", *arguments).stderr.splitlines()
        assert lines == [*expected, f"Mirrored {upstream.url}: {summary}"]
        # Once they were named, they are counted.
        expected = ["2 versions are still held back; mirror status --json lists them."]
        assert numbers(mirror_app) == {"acme/clock": ["1.0.0"], "acme/none": []}


@pytest.mark.parametrize("changes", [[], [NO_CHANGE] * 2], ids=["unknown", "none"])
@pytest.mark.parametrize("options", [["--min-age", "143h"], []])
def test_version_is_copied_once_it_is_old_enough_although_nothing_changed(
    mirror_app: Flask, upstream: FakeUpstream, options: list[str], changes: list[Fault]
) -> None:
    upstream.fail(CHANGES, *changes)
    del upstream.documents["acme/new"]
    mirror_summary(mirror_app, upstream.url, "--min-age", "7d")
    summary = mirror_summary(mirror_app, upstream.url, *options)
    assert summary == "0 added, 1 changed, 1 unchanged, 0 failed, 0 gone."
    assert numbers(mirror_app)["acme/clock"] == ["2.0.0", "1.0.0"]


def test_version_that_is_here_already_stays(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url)
    before = numbers(mirror_app)
    newest = aged("3.0.0", hours=1)
    upstream.documents["acme/clock"]["versions"].insert(0, newest)
    result = run_mirror(mirror_app, upstream.url, "--min-age", "7d")
    changed, held_back, _ = result.stderr.splitlines()
    assert changed == "Remembered options changed from none to --min-age 7d."
    assert held_back.startswith("acme/clock@3.0.0 was published at ")
    assert numbers(mirror_app) == before


def test_version_with_other_bytes_stays_as_it_is_and_is_named(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    before = exported(mirror_app)["acme/clock"]["versions"]
    newest, oldest = upstream.documents["acme/clock"]["versions"]
    # The upstream may state any time for the new bytes.
    newest |= {"sha256Hash": "1" * 64, "releaseNotes": "Replaced."}
    oldest |= {"sha256Hash": "2" * 64, "publishedAt": aged("1.0.0", hours=1)["publishedAt"]}
    for _ in range(2):
        lines = run_mirror(mirror_app, upstream.url, "--min-age", "5d").stderr.splitlines()
        reason = "has changed at the upstream; because of --min-age, the copy stays unchanged."
        assert [line for line in lines if line.startswith("The bundle of ")] == [
            f"The bundle of acme/clock@{number} {reason}" for number in ("2.0.0", "1.0.0")
        ]
        assert exported(mirror_app)["acme/clock"]["versions"] == before


def test_version_with_other_bytes_is_copied_once_its_new_time_is_old_enough(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    _, oldest = upstream.documents["acme/clock"]["versions"]
    oldest |= {"sha256Hash": "2" * 64, "publishedAt": aged("1.0.0", days=7.5)["publishedAt"]}
    assert " 1 changed, " in mirror_summary(mirror_app, upstream.url, "--min-age", "7d")
    assert exported(mirror_app)["acme/clock"]["versions"][1]["sha256Hash"] == "2" * 64


@pytest.mark.parametrize("age", ["7", "0d", "1w", "never"])
def test_invalid_age_is_wrong_usage(mirror_app: Flask, age: str) -> None:
    result = run_mirror(mirror_app, "http://a.example", "--min-age", age)
    assert result.exit_code == 2
    assert "is not a number of days or hours, such as 90d or 12h." in result.stderr
