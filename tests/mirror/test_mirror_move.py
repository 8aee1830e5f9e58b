"""widget-catalog mirror move OLD NEW: the copies follow an upstream to another URL."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import error_message, run
from flask import Flask
from mirrors import bundle_urls, exported, held_bundle, mirror_summary, stored_rows
from upstreams import FakeUpstream, detail, hang_up, numbered, status

NAMES = [f"acme/w{number:04}" for number in range(10)]


@pytest.fixture(autouse=True)
def ten_widgets(upstream: FakeUpstream) -> None:
    upstream.put(*numbered(10))


@pytest.fixture
def moved(upstream: FakeUpstream) -> Iterator[FakeUpstream]:
    """The same catalog at another URL."""
    with closing(FakeUpstream(*upstream.documents.values())) as running:
        yield running


def move(app: Flask, old: FakeUpstream, new: FakeUpstream, *options: str) -> Result:
    return run(app, "mirror", "move", old.url, new.url, *options)


def upstreams(app: Flask) -> list[Json]:
    """Return what mirror status --json prints."""
    found: list[Json] = json.loads(run(app, "mirror", "status", "--json").stdout)
    return found


def listed(app: Flask) -> list[str]:
    return [path for path, each in exported(app).items() if each["widget"]["listed"]]


def test_copies_and_options_belong_to_the_new_url(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url, "--scope", "acme", "--keep-removed")
    upstream.requests.clear()
    moved.put(document("acme/new"), document("lab/new"))
    result = move(mirror_app, upstream, moved)
    assert (result.exit_code, result.stderr.splitlines()) == (
        0,
        [
            f"{moved.url} lists 10 of 10 copies.",
            f"Moved upstream {upstream.url} to {moved.url}.",
            f"Mirrored {moved.url}: 1 added, 0 changed, 10 unchanged, 0 failed, 0 gone.",
        ],
    )
    assert upstream.requests == []
    # An ETag of the old URL says nothing about the widget at the new one.
    assert "If-None-Match" not in moved.request_headers(detail(NAMES[0]))[0]
    (known,) = upstreams(mirror_app)
    assert (known["url"], known["widgets"]) == (moved.url, 11)
    assert known["options"] == ["--scope acme", "--keep-removed"]
    # Another run needs no URL, and finds the copies by their ETags.
    assert run(mirror_app, "mirror").stderr == (
        f"Mirrored {moved.url}: 0 added, 0 changed, 11 unchanged, 0 failed, 0 gone.\n"
    )
    assert "If-None-Match" in moved.request_headers(detail("acme/new"))[-1]


def test_takedowns_and_changes_during_the_move_arrive(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    del moved.documents[NAMES[3]]
    moved.put(document(NAMES[4], version(yanked=True), createdAt="2025-01-01T00:00:00Z"))
    lines = move(mirror_app, upstream, moved).stderr.splitlines()
    assert lines[0] == f"{NAMES[3]} was not found at {moved.url}."
    assert lines[1] == f"{moved.url} lists 9 of 10 copies."
    assert lines[3] == f"{NAMES[3]} was unlisted or deleted at the upstream; it is unlisted here."
    assert listed(mirror_app) == [name for name in NAMES if name != NAMES[3]]
    assert exported(mirror_app)[NAMES[4]]["versions"][0]["yanked"] is True


def test_a_catalog_with_fewer_than_nine_of_ten_copies_needs_a_confirmation(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    for name in NAMES[:2]:
        del moved.documents[name]
    before = stored_rows(mirror_app)
    result = move(mirror_app, upstream, moved)
    assert (result.exit_code, result.stderr.splitlines()[-2:]) == (
        1,
        [
            f"{moved.url} lists 8 of 10 copies.",
            f"Error: Move to {moved.url} even though it lists less than 90% of the copies? "
            "Standard input is not a terminal; use --yes to confirm.",
        ],
    )
    assert stored_rows(mirror_app) == before
    assert [each["url"] for each in upstreams(mirror_app)] == [upstream.url]
    assert move(mirror_app, upstream, moved, "--yes").exit_code == 0
    assert listed(mirror_app) == NAMES[2:]


def test_a_dry_run_only_compares(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    before = stored_rows(mirror_app)
    result = move(mirror_app, upstream, moved, "--dry-run")
    assert (result.exit_code, result.stderr) == (0, f"{moved.url} lists 10 of 10 copies.\n")
    assert stored_rows(mirror_app) == before


def test_bundles_stay_and_new_urls_are_stored(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"tick")))
    mirror_summary(mirror_app, upstream.url, "--bundles", "--widget", "acme/clock")
    moved.put(document("acme/clock", moved.with_bundle("1.0.0", b"tick")))
    lines = move(mirror_app, upstream, moved).stderr.splitlines()
    assert lines[-1] == "Bundles: 0 fetched, 1 already stored, 0 failed."
    client = mirror_app.test_client()
    assert held_bundle(client, bundle_urls(client)["1.0.0"]) == b"tick"
    (exported_version,) = exported(mirror_app)["acme/clock"]["versions"]
    assert exported_version["bundleUrl"] == f"{moved.url}/bundles/1.0.0.js"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(status(404), "it responded 404"), (status(401), "it asks for a user name and password")],
)
def test_a_url_without_a_readable_catalog_changes_nothing(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream, fault: object, reason: str
) -> None:
    mirror_summary(mirror_app, upstream.url)
    before = stored_rows(mirror_app)
    moved.fail("/api/v1/widgets/search", fault)  # type: ignore[arg-type]
    message = error_message(move(mirror_app, upstream, moved, "--yes"))
    assert message.startswith(f"Cannot move to {moved.url}: {reason}")
    assert message.endswith(" Nothing was changed.")
    moved.documents.clear()
    assert error_message(move(mirror_app, upstream, moved, "--yes")) == (
        f"{moved.url} lists none of the copies. Nothing was changed."
    )
    assert stored_rows(mirror_app) == before


def test_a_move_whose_refresh_failed_is_completed_by_the_next_run(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    del moved.documents[NAMES[0]]
    moved.fail(detail(NAMES[0]), *[hang_up] * 5)
    assert move(mirror_app, upstream, moved).exit_code == 1
    assert NAMES[0] in listed(mirror_app)
    assert "0 failed, 1 gone." in run(mirror_app, "mirror").stderr
    assert listed(mirror_app) == NAMES[1:]


def test_only_a_known_upstream_moves_and_only_to_a_new_one(
    mirror_app: Flask, upstream: FakeUpstream, moved: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    assert error_message(move(mirror_app, moved, upstream)) == (
        f"{moved.url} is not an upstream; the upstreams are {upstream.url}."
    )
    same = upstream.url.replace("127.0.0.1", "localhost")
    assert error_message(run(mirror_app, "mirror", "move", upstream.url, same)) == (
        f"{same} is already an upstream; `mirror status` lists the upstreams."
    )
