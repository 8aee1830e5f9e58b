"""widget-catalog mirror as a run of steps: what it remembers, asks, and does not do twice."""

import json
import shutil
import sqlite3
from collections import namedtuple
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import error_message, run
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import FakeUpstream, body, detail, status

from catalog.system.lock_file import lock_file

Usage = namedtuple("Usage", "total used free")
CREATED = "2025-01-01T00:00:00.000Z"


@pytest.fixture(autouse=True)
def two_widgets(upstream: FakeUpstream) -> None:
    upstream.put(
        document("acme/clock", upstream.with_bundle("1.0.0", b"one"), createdAt=CREATED),
        document("lab/tide", upstream.with_bundle("2.0.0", b"two"), createdAt=CREATED),
    )


@pytest.fixture
def failing(upstream: FakeUpstream) -> None:
    """Let the upstream respond to no request for a widget."""
    upstream.put(*(document(f"many/w{number:02}") for number in range(30)))
    for number in range(30):
        upstream.fail(detail(f"many/w{number:02}"), *[status(503)] * 5)


def statuses(app: Flask) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run(app, "mirror", "status", "--json").stdout)
    return found


@pytest.mark.usefixtures("failing")
def test_a_run_that_ends_early_remembers_its_error_but_no_options(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url, "--scope", "acme")
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert f"Error: Cannot mirror {upstream.url}: 25 requests in a row failed" in result.stderr
    (known,) = statuses(mirror_app)
    assert known["options"] == ["--scope acme"]
    assert str(known["lastError"]).startswith("25 requests in a row failed")
    # The next plain run copies what the operator has chosen.
    assert run(mirror_app, "mirror").exit_code == 0
    assert statuses(mirror_app)[0]["lastError"] is None


def test_status_as_json_has_the_last_error_and_what_is_held_back(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    new = version("9.0.0", publishedAt="2999-01-01T00:00:00.000Z")
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"one"), new))
    upstream.fail(detail("lab/tide"), body(b"[]"))
    assert run_mirror(mirror_app, upstream.url, "--min-age", "7d").exit_code == 1
    (known,) = statuses(mirror_app)
    assert (known["url"], known["options"], known["refreshedAt"]) == (
        upstream.url,
        ["--min-age 7d"],
        None,
    )
    assert known["heldBack"] == [
        {"version": "acme/clock@9.0.0", "publishedAt": "2999-01-01T00:00:00.000Z"}
    ]
    assert str(known["lastError"]).startswith("1 widget failed; first lab/tide: must be an object")


def test_a_copy_with_fewer_versions_gets_the_others_although_its_options_were_not_remembered(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", version("1.0.0"), version("2.0.0"), createdAt=CREATED))
    mirror_summary(mirror_app, upstream.url)
    # As if a run with --newest was killed before it reached its end.
    mirror_summary(mirror_app, upstream.url, "--newest", "1")
    options = statuses(mirror_app)[0]["options"]
    assert options == ["--newest 1"]
    with closing(sqlite3.connect(mirror_app.config["DATABASE"])) as connection, connection:
        connection.execute("UPDATE upstream SET options = '{}'")
    assert run(mirror_app, "mirror").exit_code == 0
    numbers = [each["version"] for each in exported(mirror_app)["acme/clock"]["versions"]]
    assert sorted(numbers) == ["1.0.0", "2.0.0"]


def test_a_mirror_that_remembers_official_stops_and_says_what_to_do(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    with closing(sqlite3.connect(mirror_app.config["DATABASE"])) as connection, connection:
        connection.execute("UPDATE upstream SET options = '{\"official\": true}'")
    upstream.put(document("new/widget"))
    assert error_message(run(mirror_app, "mirror")) == (
        f"Cannot mirror {upstream.url}: its last run used the --official option, which no longer "
        "exists. Select widgets with other options: widget-catalog mirror "
        f"{upstream.url} --scope SCOPE."
    )
    assert "new/widget" not in exported(mirror_app)
    mirror_summary(mirror_app, upstream.url, "--scope", "new")
    assert "new/widget" in exported(mirror_app)


def test_a_second_run_at_the_same_time_says_so_and_does_nothing(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path
) -> None:
    with lock_file(tmp_path / "mirror.db-mirror.lock"):
        result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert error_message(result).startswith("Another run of mirror is refreshing ")
    assert upstream.requests == []
    mirror_summary(mirror_app, upstream.url)
    assert not (tmp_path / "mirror.db-mirror.lock").exists()


def test_downloads_stop_before_the_disk_is_full_and_the_next_run_continues(
    mirror_app: Flask, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda path: Usage(10**10, 9 * 10**9, 10**9 + 2))
        result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert result.exit_code == 1
    assert "Bundles: the download stopped with 2 bundles left: at least 256 MB" in result.stderr
    assert not [path for path in upstream.paths() if "/bundles/" in path]
    assert "Bundles: 2 fetched" in run(mirror_app, "mirror").stderr


def test_http_bundles_of_an_https_upstream_are_explained(
    mirror_app: Flask, upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.encrypt(tmp_path, monkeypatch)
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert result.exit_code == 1
    assert (
        "; the upstream is at an https URL, but names http URLs for its bundles: its operator "
        "should set CATALOG_PUBLIC_URL." in result.stderr
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("stauts", "No such command 'stauts'. Did you mean status?"),
        ("http://a.example:99999", "is not a URL with a valid port"),
        ("status http://a.example", "Got unexpected extra argument"),
        ("forget", "Missing argument 'URL'"),
    ],
)
def test_mistyped_arguments_are_wrong_usage(mirror_app: Flask, words: str, message: str) -> None:
    result = run(mirror_app, "mirror", *words.split())
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_help_lists_options_and_subcommands(mirror_app: Flask) -> None:
    text = run(mirror_app, "mirror", "--help").stdout
    assert "mirror [OPTIONS] [URL]" in text
    assert "--min-age" in text
    for name in ("forget", "status"):
        assert f"\n  {name} " in text
        assert run(mirror_app, "mirror", name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("others", "is_urgent"),
    [([], True), (["1.0.2"], False)],
    ids=["the only replacement", "two replacements"],
)
def test_the_only_replacement_of_a_yanked_version_is_not_held_back(
    mirror_app: Flask, upstream: FakeUpstream, others: list[str], is_urgent: bool
) -> None:
    future = {"publishedAt": "2999-01-01T00:00:00.000Z"}
    new = [version(number, **future) for number in ("1.0.1", *others)]
    upstream.put(document("acme/clock", version("1.0.0", yanked=True), *new, createdAt=CREATED))
    result = run_mirror(mirror_app, upstream.url, "--min-age", "7d")
    assert result.exit_code == 0
    numbers = {each["version"] for each in exported(mirror_app)["acme/clock"]["versions"]}
    assert ("1.0.1" in numbers) is is_urgent
    sentence = "acme/clock@1.0.1 is copied although it is new: it is the only replacement for 1.0.0"
    assert (sentence in result.stderr) is is_urgent


def test_newest_counts_stable_versions_first(mirror_app: Flask, upstream: FakeUpstream) -> None:
    days = {"1.0.0": 1, "2.0.0": 2, "3.0.0-beta.1": 3}
    versions = [
        version(number, publishedAt=f"2025-01-0{day}T00:00:00Z") for number, day in days.items()
    ]
    upstream.put(document("acme/clock", *versions, createdAt=CREATED))
    for count, expected in (("1", ["2.0.0"]), ("3", ["3.0.0-beta.1", "2.0.0", "1.0.0"])):
        mirror_summary(mirror_app, upstream.url, "--newest", count)
        numbers = [each["version"] for each in exported(mirror_app)["acme/clock"]["versions"]]
        assert numbers == expected


def test_a_takedown_is_done_although_the_rest_of_the_run_fails(
    mirror_app: Flask, upstream: FakeUpstream, request: pytest.FixtureRequest
) -> None:
    mirror_summary(mirror_app, upstream.url)
    del upstream.documents["acme/clock"]
    request.getfixturevalue("failing")
    assert run(mirror_app, "mirror").exit_code == 1
    assert exported(mirror_app)["acme/clock"]["widget"]["listed"] is False
