"""widget-catalog mirror without a URL: the upstreams and their options are remembered."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders import document
from click.testing import Result
from conftest import error_message, run
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import FakeUpstream, body, detail, status


@pytest.fixture(autouse=True)
def two_widgets(upstream: FakeUpstream) -> None:
    upstream.put(
        document("acme/clock", upstream.with_bundle("1.0.0", b"one")),
        document("lab/tide", upstream.with_bundle("2.0.0", b"two")),
    )


@pytest.fixture
def other() -> Iterator[FakeUpstream]:
    with closing(FakeUpstream(document("other/clock"))) as running:
        yield running


def refresh(app: Flask, *options: str) -> Result:
    return run(app, "mirror", *options)


def upstreams(app: Flask) -> list[list[str]]:
    """Return the cells of mirror status."""
    result = refresh(app, "status")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line for line in result.stdout.splitlines() if not line.startswith("The last run ")]
    headings, *rows = [re.split("  +", line) for line in lines]
    names = ["UPSTREAM", "OPTIONS", "REFRESHED", "WIDGETS", "VERSIONS", "BUNDLES", "GONE"]
    assert headings == names
    return rows


def test_upstream_selection_and_bundles_are_remembered(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url, "--scope", "acme", "--bundles", "--keep-removed")
    upstream.put(
        document("acme/alarm", upstream.with_bundle("3.0.0", b"three")), document("lab/new")
    )
    del upstream.documents["acme/clock"]
    assert refresh(mirror_app).stderr.splitlines() == [
        "acme/clock was unlisted or deleted at the upstream; it stays here.",
        f"Mirrored {upstream.url}: 1 added, 0 changed, 0 unchanged, 0 failed, 1 gone.",
        "Bundles: 1 fetched, 1 already stored, 0 failed.",
    ]
    assert list(exported(mirror_app)) == ["acme/alarm", "acme/clock"]


def test_options_of_the_last_run_with_a_url_that_is_no_dry_run_apply(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url, "--scope", "acme", "--bundles")
    mirror_summary(mirror_app, upstream.url)
    run_mirror(mirror_app, upstream.url, "--dry-run", "--scope", "acme")
    upstream.put(document("lab/new"))
    assert refresh(mirror_app).stderr == (
        f"Mirrored {upstream.url}: 1 added, 0 changed, 2 unchanged, 0 failed, 0 gone.\n"
    )


def test_an_upstream_whose_copies_were_all_adopted_is_forgotten(
    mirror_app: Flask, upstream: FakeUpstream, other: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    other.put(document("acme/clock"))
    assert run_mirror(mirror_app, other.url, "--adopt", "--yes").exit_code == 0
    refused = refresh(mirror_app, "--adopt")
    assert (refused.exit_code, "--adopt needs a URL, since there" in refused.stderr) == (2, True)
    assert [row[0] for row in upstreams(mirror_app)] == sorted([upstream.url, other.url])
    other.put(document("lab/tide"))
    result = run_mirror(mirror_app, other.url, "--adopt", "--yes")
    assert f"Removed upstream {upstream.url}: it has no copies left.\n" in result.stderr
    assert [row[0] for row in upstreams(mirror_app)] == [other.url]
    assert refresh(mirror_app).exit_code == 0
    # One that has no copies yet is not.
    assert run_mirror(mirror_app, upstream.url, "--adopt", "--scope", "none").exit_code == 0
    assert len(upstreams(mirror_app)) == 2


def test_all_upstreams_are_refreshed_although_one_fails(
    mirror_app: Flask, upstream: FakeUpstream, other: FakeUpstream
) -> None:
    for each in (upstream, other):
        mirror_summary(mirror_app, each.url)
        each.put(document(f"new/at-{each.port}"))
    upstream.fail("/api/v1/widgets/search", status(404))
    result = refresh(mirror_app)
    failure = f"Error: Cannot mirror {upstream.url}: it responded 404.\n"
    assert (result.exit_code, result.stderr) == (
        1,
        f"Mirrored {other.url}: 1 added, 0 changed, 1 unchanged, 0 failed, 0 gone.\n{failure}",
    )


def test_bundles_of_other_upstreams_are_not_downloaded(
    mirror_app: Flask, upstream: FakeUpstream, other: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    mirror_summary(mirror_app, other.url, "--bundles")
    refresh(mirror_app)
    assert [path for path in upstream.paths() if "/bundles/" in path] == []


def test_a_first_run_in_which_a_widget_failed_is_remembered(
    mirror_app: Flask, upstream: FakeUpstream, other: FakeUpstream
) -> None:
    upstream.fail(detail("acme/clock"), body(b"[]"))
    assert run_mirror(mirror_app, upstream.url, "--scope=acme").exit_code == 1
    mirror_summary(mirror_app, other.url)
    row = [upstream.url, "--scope acme", "never", "0", "0", "0", "0"]
    assert row in upstreams(mirror_app)
    assert ": 1 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n" in refresh(mirror_app).stderr


def test_without_an_upstream_a_url_is_needed(mirror_app: Flask, tmp_path: Path) -> None:
    assert error_message(refresh(mirror_app)) == "No upstream is known yet; specify its URL."
    result = refresh(mirror_app, "status")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "There are no upstreams.\n")
    assert refresh(mirror_app, "status", "--json").stdout == "[]\n"
    assert list(tmp_path.iterdir()) == []


def test_options_to_remember_need_a_url(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url)
    result = refresh(mirror_app, "--scope", "acme", "--bundles")
    assert result.exit_code == 2
    message = "--scope acme --bundles needs a URL; without one, the options of the last run apply."
    assert message in result.stderr


def test_every_spelling_of_loopback_is_the_same_upstream(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    summary = mirror_summary(mirror_app, f"http://LOCALHOST:{upstream.port}/")
    assert summary.endswith("0 added, 0 changed, 2 unchanged, 0 failed, 0 gone.")
    assert [row[0] for row in upstreams(mirror_app)] == [upstream.url]


def test_another_path_of_the_same_host_is_another_upstream(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    upstream.fail("/lab/api/v1/widgets/search", body(b'{"widgets": [], "total": 0}'))
    summary = mirror_summary(mirror_app, f"{upstream.url}/lab")
    assert summary == "0 added, 0 changed, 0 unchanged, 0 failed, 0 gone."
    assert [row[0] for row in upstreams(mirror_app)] == [upstream.url, f"{upstream.url}/lab"]


def test_status_shows_age_and_counts(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url, "--widget", "acme/clock", "--scope", "lab")
    options = "--scope lab --widget acme/clock"
    assert upstreams(mirror_app) == [[upstream.url, options, "just now", "2", "2", "0", "0"]]
    # One that was unlisted here is not gone.
    assert run(mirror_app, "unlist", "acme/clock").exit_code == 0
    assert upstreams(mirror_app) == [[upstream.url, options, "just now", "1", "1", "0", "0"]]
    del upstream.documents["lab/tide"]
    mirror_summary(mirror_app, upstream.url, "--bundles")
    path = mirror_app.config["DATABASE"]
    for age, words in (({"minutes": 1}, "1 minute"), ({"hours": 30}, "1 day"), ({"hours": 3}, "3")):
        time = (datetime.now(UTC) - timedelta(seconds=5, **age)).isoformat()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE upstream SET refreshed_at = ?", (time,))
        ((_, shown, refreshed, *counts),) = upstreams(mirror_app)
        assert refreshed.startswith(words)
        assert refreshed.endswith(" ago")
    assert (shown, counts) == ("--bundles", ["1", "1", "1", "1"])


@pytest.mark.parametrize(
    ("option", "fate", "left"),
    [
        ("--dry-run", "; 2 copies would become local widgets", ["acme/clock", "lab/tide"]),
        (None, "; 2 copies are now local widgets", ["acme/clock", "lab/tide"]),
        ("--delete", " and deleted its 2 copies", []),
    ],
)
def test_upstream_is_forgotten_and_its_copies_are_kept_or_deleted(
    mirror_app: Flask,
    upstream: FakeUpstream,
    other: FakeUpstream,
    option: str | None,
    fate: str,
    left: list[str],
) -> None:
    for url in (upstream.url, other.url):
        mirror_summary(mirror_app, url)
    url = upstream.url.replace("127.0.0.1", "localhost")
    if option == "--delete":
        assert error_message(refresh(mirror_app, "forget", url, option)) == (
            f"Delete 2 widgets and 2 versions that were copied from {upstream.url}? Standard input "
            "is not a terminal; use --yes to confirm."
        )
    result = refresh(mirror_app, "forget", url, "--yes", *([option] if option else []))
    verb = "Would remove" if option == "--dry-run" else "Removed"
    expected = f"{verb} upstream {upstream.url}{fate}.\n"
    assert (result.exit_code, result.stderr) == (0, expected)
    assert list(exported(mirror_app)) == [*left, "other/clock"]
    is_known = upstream.url in [row[0] for row in upstreams(mirror_app)]
    assert is_known == (option == "--dry-run")
    # What stays is no copy any more.
    mirrored = run_mirror(mirror_app, upstream.url)
    is_own = "acme/clock: was published or imported here" in mirrored.stderr
    assert is_own == (option is None)


def test_only_an_upstream_can_be_forgotten(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url)
    message = f"http://a.example is not an upstream; the upstreams are {upstream.url}."
    assert error_message(refresh(mirror_app, "forget", "http://a.example")) == message


@pytest.mark.parametrize(
    "arguments",
    [
        *("forget", "status http://a.example", "http://a.example http://b.example"),
        *("status --adopt", "status --dry-run", "--delete", "forget http://a.example --adopt"),
    ],
)
def test_words_and_options_without_effect_are_wrong_usage(
    mirror_app: Flask, upstream: FakeUpstream, arguments: str
) -> None:
    mirror_summary(mirror_app, upstream.url)
    assert refresh(mirror_app, *arguments.split()).exit_code == 2


def test_changed_options_are_named(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url, "--scope", "acme")
    result = refresh(mirror_app, upstream.url, "--bundles")
    changed = "Remembered options changed from --scope acme to --bundles."
    assert result.stderr.splitlines()[:2] == [
        "Compared with the last run, this one drops --scope acme and adds 1 widget.",
        changed,
    ]
    assert "Remembered" not in refresh(mirror_app).stderr
