"""widget-catalog mirror of an upstream that lists its changes: a refresh asks for nothing else."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from conftest import putting, run, running
from flask import Flask
from mirrors import AppServer, exported, mirror_summary, run_mirror, serve
from upstreams import CHANGES, SEARCH, FakeUpstream, Fault, body, detail, numbered, status

from catalog.domain.documents import check_document

CREATED = "2025-01-01T00:00:00.000Z"


def widget(path: str, *numbers: str, **fields: Any) -> Json:
    return document(path, *map(version, numbers), createdAt=CREATED, **fields)


@pytest.fixture
def original(app_with: Callable[..., Flask]) -> Iterator[AppServer]:
    """A catalog of 23 widgets that serves as upstream."""
    clock = widget("acme/clock", "1.0.0", downloadCount=7)
    app = app_with(*numbered(20), clock, widget("acme/notes"), widget("lab/tide"))
    with serve(app) as upstream:
        yield upstream


def put(app: Flask, *documents: Json) -> None:
    app.extensions["database"].transact(putting(map(check_document, documents)))


def command(app: Flask, *arguments: object) -> None:
    result = run(app, *arguments)
    assert result.exit_code == 0, result.output


def refresh(app: Flask, upstream: AppServer, *options: str) -> tuple[str, list[str]]:
    """Run widget-catalog mirror; return its summary, and the details that it requested."""
    upstream.responses.clear()
    summary = mirror_summary(app, upstream.url, *options)
    paths = [path.removeprefix("/api/v1/widgets/") for path, _ in upstream.responses]
    return summary, [path for path in paths if path.count("/") == 1]


def listed(app: Flask) -> dict[str, Json]:
    """Return the detail of each listed widget, by scope/name."""
    client = app.test_client()
    widgets = client.get(f"{SEARCH}?limit=100").json["widgets"]
    paths = sorted(f"{each['scope']}/{each['name']}" for each in widgets)
    return {path: client.get(detail(path)).get_json() for path in paths}


def test_only_changed_widgets_are_fetched(mirror_app: Flask, original: AppServer) -> None:
    mirror_summary(mirror_app, original.url)
    put(original.app, widget("acme/clock", "1.0.0", "2.0.0"), widget("new/widget", "1.0.0"))
    command(original.app, "unlist", "acme/notes")
    summary, details = refresh(mirror_app, original)
    assert summary.splitlines() == [
        "acme/notes was unlisted or deleted at the upstream; it is unlisted here.",
        f"Mirrored {original.url}: 1 added, 1 changed, 21 unchanged, 0 failed, 1 gone.",
    ]
    assert sorted(details) == ["acme/clock", "acme/notes", "new/widget"]
    assert listed(mirror_app) == listed(original.app)


def test_counts_are_taken_from_the_list_and_added_to_local_installs(
    mirror_app: Flask, original: AppServer
) -> None:
    mirror_summary(mirror_app, original.url)
    for app, path in (
        *[(original.app, "acme/clock")] * 3,
        *[(mirror_app, "acme/clock")] * 2,
        (original.app, "acme/notes"),
    ):
        assert app.test_client().post(f"/api/v1/widgets/{path}").status_code == 200
    assert refresh(mirror_app, original) == (
        "0 added, 2 changed, 21 unchanged, 0 failed, 0 gone.",
        [],
    )
    copies = exported(mirror_app)
    counts = [copies[path]["widget"]["downloadCount"] for path in ("acme/clock", "acme/notes")]
    assert counts == [12, 1]
    summary, _ = refresh(mirror_app, original)
    assert summary.startswith("0 added, 0 changed, 23 unchanged")


def test_kept_widget_that_is_gone_is_reported_until_it_is_unlisted(
    mirror_app: Flask, original: AppServer
) -> None:
    mirror_summary(mirror_app, original.url)
    command(original.app, "delete", "acme/notes", "--yes")
    for _ in range(2):
        summary, _ = refresh(mirror_app, original, "--keep-removed")
        assert summary.endswith("22 unchanged, 0 failed, 1 gone.")
    assert "1 gone." in refresh(mirror_app, original)[0]
    assert "acme/notes" not in listed(mirror_app)
    assert refresh(mirror_app, original)[0].endswith("22 unchanged, 0 failed, 0 gone.")


def test_widgets_missing_here_are_fetched_although_they_did_not_change(
    mirror_app: Flask, original: AppServer
) -> None:
    mirror_summary(mirror_app, original.url)
    command(mirror_app, "delete", "acme/notes", "--yes")
    command(mirror_app, "unlist", "lab/tide")
    summary, details = refresh(mirror_app, original)
    assert summary == "1 added, 1 changed, 21 unchanged, 0 failed, 0 gone."
    assert sorted(details) == ["acme/notes", "lab/tide"]
    assert listed(mirror_app) == listed(original.app)


def test_a_run_for_one_scope_refreshes_all_copies(mirror_app: Flask, original: AppServer) -> None:
    mirror_summary(mirror_app, original.url)
    changed = [widget("acme/clock", "1.0.0", "2.0.0"), widget("lab/tide", "2.0.0")]
    put(original.app, *changed, widget("acme/new"))
    command(original.app, "unlist", "acme/notes")
    summary, _ = refresh(mirror_app, original, "--scope", "lab")
    assert summary.endswith("0 added, 2 changed, 20 unchanged, 0 failed, 1 gone.")
    summary, details = refresh(mirror_app, original)
    assert summary == "1 added, 0 changed, 22 unchanged, 0 failed, 0 gone."
    assert details == ["acme/new"]
    assert listed(mirror_app) == listed(original.app)


def test_other_versions_are_copied_although_nothing_changed(
    mirror_app: Flask, original: AppServer
) -> None:
    put(original.app, widget("acme/clock", "1.0.0", "2.0.0"))
    mirror_summary(mirror_app, original.url, "--newest", "1")
    assert len(exported(mirror_app)["acme/clock"]["versions"]) == 1
    mirror_summary(mirror_app, original.url)
    assert listed(mirror_app) == listed(original.app)


def test_dry_run_reports_the_same_and_the_next_run_makes_the_changes(
    mirror_app: Flask, original: AppServer
) -> None:
    mirror_summary(mirror_app, original.url)
    put(original.app, widget("acme/clock", "2.0.0"))
    original.app.test_client().post("/api/v1/widgets/lab/tide")
    dry_run = run_mirror(mirror_app, original.url, "--dry-run").stderr
    summary = "0 added, 2 changed, 21 unchanged, 0 failed, 0 gone."
    assert dry_run == f"Would mirror {original.url}: {summary}\n"
    assert refresh(mirror_app, original) == (summary, ["acme/clock"])


def test_restored_upstream_is_compared_from_the_beginning(
    mirror_app: Flask, original: AppServer, tmp_path: Path
) -> None:
    command(original.app, "backup", tmp_path / "backup.db")
    put(original.app, widget("acme/clock", "2.0.0"), widget("new/widget"))
    original.app.test_client().post("/api/v1/widgets/lab/tide")
    mirror_summary(mirror_app, original.url)
    command(original.app, "restore", tmp_path / "backup.db", "--yes")
    summary, details = refresh(mirror_app, original)
    assert summary.endswith("0 added, 2 changed, 21 unchanged, 0 failed, 1 gone.")
    assert sorted(details) == ["acme/clock", "lab/tide", "new/widget"]
    assert listed(mirror_app) == listed(original.app)
    assert ("/api/v1/widgets/changes", 410) in original.responses


def test_copies_of_compressed_details_are_current(
    mirror_app: Flask, app_with: Callable[..., Flask]
) -> None:
    long = {"description": "Shows the time. " * 100}
    with serve(app_with(widget("acme/clock", "1.0.0", **long), widget("lab/tide"))) as upstream:
        mirror_summary(mirror_app, upstream.url)
        # The next run compares everything from the beginning.
        command(upstream.app, "check", "--repair")
        summary, details = refresh(mirror_app, upstream)
        assert summary == "0 added, 0 changed, 2 unchanged, 0 failed, 0 gone."
        assert details == []


def changes(*paths: str, following: str = "t1", more: bool = False) -> Fault:
    """Respond with changes of these widgets."""
    entries = [
        dict(zip(("scope", "name"), path.split("/"), strict=True), kind="changed", etag='"new"')
        for path in paths
    ]
    return body(json.dumps({"changes": entries, "next": following, "more": more}).encode())


def test_changed_widget_that_failed_is_fetched_again_by_the_next_run(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(widget("acme/clock", "1.0.0"), widget("acme/notes"))
    upstream.fail(CHANGES, changes("acme/clock", "acme/notes"))
    mirror_summary(mirror_app, upstream.url)
    upstream.put(widget("acme/clock", "1.0.0", "2.0.0"))
    upstream.fail(CHANGES, *[changes("acme/clock", following="t2")] * 2, changes(following="t2"))
    upstream.fail(detail("acme/clock"), body(b"{}"))
    assert "1 unchanged, 1 failed" in run_mirror(mirror_app, upstream.url).stderr
    assert mirror_summary(mirror_app, upstream.url).startswith("0 added, 1 changed, 1 unchanged")
    assert exported(mirror_app)["acme/clock"]["versions"][0]["version"] == "2.0.0"
    mirror_summary(mirror_app, upstream.url)
    paths = [path for path, _ in upstream.requests if CHANGES in path]
    tokens = [path.partition("since=")[2] for path in paths]
    assert tokens == ["", "t1", "t1", "t2"]


OTHERS = {
    "a page": body(b"<!doctype html><title>Widgets</title>"),
    "an error": body(b'{"error": "No."}'),
    "401": status(401),
    "500": status(500),
    "another kind": body(b'{"changes":[{"scope":"a","name":"b","kind":"x"}],"next":"t","more":0}'),
    "no token": body(b'{"changes":[],"next":"","more":false}'),
    "pages of one change": changes("acme/clock", more=True),
    "pages without end": changes(*(f"acme/n{number}" for number in range(20)), more=True),
}


@pytest.mark.parametrize("response", OTHERS.values(), ids=OTHERS)
def test_upstream_with_another_response_is_mirrored_without_changes(
    mirror_app: Flask,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    response: Fault,
) -> None:
    monkeypatch.setattr("catalog.mirror.lists.MAX_WIDGETS", 100)
    upstream.put(widget("acme/clock", "1.0.0"), widget("acme/notes"))
    upstream.fail(CHANGES, *[response] * 20)
    assert mirror_summary(mirror_app, upstream.url).startswith("2 added, 0 changed, 0 unchanged")
    upstream.put(widget("acme/clock", "1.0.0", "2.0.0"))
    assert mirror_summary(mirror_app, upstream.url).startswith("0 added, 1 changed, 1 unchanged")
    assert upstream.faults[CHANGES], "all pages were read"


FIND_ID = "SELECT id FROM widget WHERE scope || '/' || name = :path"


def edit_at_random(app: Flask, rng: random.Random) -> None:
    """Make one change of a kind that a mirror has to follow."""
    path = rng.choice(["acme/clock", "acme/notes", "lab/tide", "new/widget", "acme/w0001"])
    database = app.extensions["database"]
    row = database.reader().execute(FIND_ID, {"path": path}).fetchone()
    kind = rng.randrange(6)
    if row is None or kind > 3:
        numbers = rng.sample(["1.0.0", "2.0.0", "3.0.0"], rng.randrange(4))
        put(app, widget(path, *numbers, listed=rng.random() < 0.8))
    elif kind == 0:
        database.transact(running("DELETE FROM widget WHERE id = :id", {"id": row["id"]}))
    elif kind == 1:
        app.test_client().post(f"/api/v1/widgets/{path}")
    else:
        values = {"id": row["id"], "listed": kind == 2}
        database.transact(running("UPDATE widget SET listed = :listed WHERE id = :id", values))


@pytest.mark.parametrize("seed", range(3))
def test_mirror_equals_its_upstream_after_changes_while_it_runs(
    mirror_app: Flask, original: AppServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)  # noqa: S311
    # One request at a time, so that the changes are the same in every run.
    monkeypatch.setattr("catalog.mirror.documents.WORKERS", 1)
    mirror_summary(mirror_app, original.url)
    for _ in range(4):
        original.on_request = lambda path: edit_at_random(original.app, rng)
        # A list that changes all the time may be reported as a failure.
        run_mirror(mirror_app, original.url)
        original.on_request = lambda path: None
        assert run_mirror(mirror_app, original.url).exit_code == 0
        assert listed(mirror_app) == listed(original.app)
