"""flask mirror: what is copied, what a refresh changes, what is refused, and what is said of it."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from builders import document, version
from click.testing import Result
from conftest import ROOT
from flask import Flask
from upstreams import (
    SEARCH,
    FakeUpstream,
    Fault,
    Handler,
    body,
    cut,
    detail,
    endless,
    hang_up,
    many,
    redirect,
    silent,
    status,
)

from app import create_app
from catalog.mirror.workers import BATCH_SIZE
from catalog.store.export import catalog_lines

AT = "2025-01-01T00:00:00.000Z"
CLOCK = document("acme/clock", version("1.0.0"), version("2.0.0"), downloadCount=7, createdAt=AT)
NOTES = document("acme/notes", version("1.0.0"), createdAt=AT)
TIDE = document("lab/tide", createdAt=AT)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.BACKOFF", 0)


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    made = FakeUpstream(CLOCK, NOTES, TIDE)
    yield made
    made.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Flask]:
    """A service with no database yet."""
    made = create_app({"DATABASE": tmp_path / "mirror.db"})
    yield made
    made.extensions["database"].close()


def mirror(app: Flask, upstream: FakeUpstream, *options: str) -> Result:
    return app.test_cli_runner().invoke(args=["mirror", upstream.url, *options])


def said(app: Flask, upstream: FakeUpstream, *options: str) -> str:
    """What a run says that goes well, without its beginning."""
    result = mirror(app, upstream, *options)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    return result.stderr.removeprefix(f"Mirrored {upstream.url}: ")


def held(app: Flask) -> dict[str, dict[str, object]]:
    """Every document in the catalog."""
    with app.extensions["database"].read() as connection:
        documents = [json.loads(line) for line in catalog_lines(connection)]
    return {f"{each['widget']['scope']}/{each['widget']['name']}": each for each in documents}


def versions(app: Flask, path: str) -> list[str]:
    return [each["version"] for each in held(app)[path]["versions"]]


def count(app: Flask, path: str = "acme/clock") -> int | None:
    return held(app)[path]["widget"]["downloadCount"]


def state(app: Flask) -> list[bytes]:
    """All that was ever written to the database."""
    path = str(app.config["DATABASE"])
    return [Path(file).read_bytes() for file in (path, f"{path}-wal")]


UNCHANGED = "0 added, 0 changed, 3 unchanged, 0 failed, 0 gone.\n"


def test_first_run_makes_the_catalog_and_copies_everything(
    app: Flask, upstream: FakeUpstream
) -> None:
    told = said(app, upstream)
    assert told == "3 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n"
    assert list(held(app)) == ["acme/clock", "acme/notes", "lab/tide"]
    assert versions(app, "acme/clock") == ["2.0.0", "1.0.0"]
    assert count(app) == 7
    assert count(app, "acme/notes") is None


def test_refresh_with_nothing_changed_asks_with_etags_and_writes_nothing(
    app: Flask, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    before = state(app)
    upstream.requests.clear()
    assert said(app, upstream) == UNCHANGED
    assert state(app) == before
    asked = [(path, "If-None-Match" in headers) for path, headers in upstream.requests]
    one = f"{SEARCH}?page=1&limit=1"
    details = [(detail(path), True) for path in upstream.documents]
    assert (asked[0], sorted(asked[1:-1]), asked[-1]) == ((one, False), details, (one, False))


def test_refresh_from_an_upstream_without_etags_writes_nothing_either(
    app: Flask, upstream: FakeUpstream
) -> None:
    upstream.has_etags = False
    said(app, upstream)
    before = state(app)
    assert said(app, upstream) == UNCHANGED
    assert state(app) == before


def test_refresh_brings_what_changed(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    yanked = version("1.0.0", yanked=True, yankedReason="Old.")
    upstream.put(document("acme/clock", yanked, version("3.0.0"), displayName="Watch"))
    upstream.put(document("acme/alarm"))
    told = said(app, upstream)
    assert told == "1 added, 1 changed, 2 unchanged, 0 failed, 0 gone.\n"
    assert held(app)["acme/clock"]["widget"]["displayName"] == "Watch"
    assert held(app)["acme/clock"]["versions"][1]["yankedReason"] == "Old."
    assert "acme/alarm" in held(app)


def test_version_that_is_removed_there_is_removed_here(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    upstream.put(document("acme/clock", version("1.0.0"), downloadCount=7, createdAt=AT))
    said(app, upstream)
    assert versions(app, "acme/clock") == ["1.0.0"]


def install(app: Flask, times: int, path: str = "acme/clock") -> None:
    for _ in range(times):
        assert app.test_client().post(f"/api/v1/widgets/{path}").status_code == 200


COUNTS = {
    "both": (7, 2, 10, 12),
    "only there": (7, 0, 10, 10),
    "only here": (7, 2, 7, 9),
    "null there, none here": (None, 0, None, None),
    "null there, some here": (None, 2, None, 2),
    "null there at first": (None, 2, 5, 7),
    "null there since": (7, 2, None, 2),
    "null there since, none here": (7, 0, None, None),
    "fewer there since": (7, 2, 3, 5),
    "as many as there can be": (7, 2, 2**53 - 2, 2**53 - 1),
}


@pytest.mark.parametrize(("first", "here", "then", "served"), COUNTS.values(), ids=COUNTS)
def test_served_count_is_what_was_counted_there_and_here(
    app: Flask,
    upstream: FakeUpstream,
    first: int | None,
    here: int,
    then: int | None,
    served: int | None,
) -> None:
    upstream.put(document("acme/clock", downloadCount=first))
    said(app, upstream)
    install(app, here)
    upstream.put(document("acme/clock", downloadCount=then))
    said(app, upstream)
    assert count(app) == served
    said(app, upstream)
    assert count(app) == served


def test_other_changes_leave_the_count_alone(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    install(app, 2)
    upstream.put(document("acme/clock", downloadCount=7, icon="mdi:clock"))
    said(app, upstream)
    assert count(app) == 9


def test_widget_gone_there_is_reported_and_stays(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    del upstream.documents["acme/notes"]
    told = "acme/notes is gone from the upstream; it stays listed here without --prune.\n"
    result = mirror(app, upstream)
    assert (result.exit_code, result.stderr) == (
        0,
        f"{told}Mirrored {upstream.url}: 0 added, 0 changed, 2 unchanged, 0 failed, 1 gone.\n",
    )
    assert held(app)["acme/notes"]["widget"]["listed"] is True


def test_prune_unlists_what_is_gone_and_lists_it_again_when_it_comes_back(
    app: Flask, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    notes = upstream.documents.pop("acme/notes")
    result = mirror(app, upstream, "--prune")
    assert result.stderr.startswith("acme/notes is gone from the upstream; it is unlisted here.\n")
    assert held(app)["acme/notes"]["widget"]["listed"] is False
    assert said(app, upstream) == "0 added, 0 changed, 2 unchanged, 0 failed, 0 gone.\n"
    upstream.put(notes)
    assert said(app, upstream) == "0 added, 1 changed, 2 unchanged, 0 failed, 0 gone.\n"
    assert held(app)["acme/notes"]["widget"]["listed"] is True


def test_prune_leaves_widgets_that_are_no_copies(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("mine/own"))
    said(app, upstream, "--prune")
    assert held(app)["mine/own"]["widget"]["listed"] is True


def test_prune_refuses_where_the_upstream_is_empty(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    upstream.documents.clear()
    before = state(app)
    result = mirror(app, upstream, "--prune")
    why = f"{upstream.url} lists no widget; --prune would unlist all copies of it"
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {upstream.url} cannot be mirrored: {why}.\n",
    )
    assert state(app) == before


def test_scope_limits_what_is_copied_and_what_is_gone(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream, "--scope", "lab")
    assert list(held(app)) == ["lab/tide"]
    said(app, upstream, "--scope", "acme", "--scope", "lab", "--scope", "none")
    assert list(held(app)) == ["acme/clock", "acme/notes", "lab/tide"]
    del upstream.documents["lab/tide"]
    upstream.requests.clear()
    told = said(app, upstream, "--scope", "acme", "--prune")
    assert told == "0 added, 0 changed, 2 unchanged, 0 failed, 0 gone.\n"
    one = f"{SEARCH}?page=1&limit=1&scope=acme"  # to count them; no need to read the list
    assert [path for path, _ in upstream.requests if SEARCH in path] == [one, one]


def test_widget_of_a_scope_not_asked_for_is_left_out(app: Flask, upstream: FakeUpstream) -> None:
    found = {"widgets": [CLOCK["widget"], TIDE["widget"]], "total": 2}
    upstream.fail(SEARCH, *[body(json.dumps(found).encode())] * 3)
    said(app, upstream, "--scope", "lab")
    assert list(held(app)) == ["lab/tide"]


def test_widget_made_here_is_not_replaced(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("acme/clock", displayName="Mine", downloadCount=2))
    result = mirror(app, upstream)
    assert (result.exit_code, result.stderr) == (
        1,
        "acme/clock: was published or imported here; --adopt replaces it.\n"
        f"Mirrored {upstream.url}: 2 added, 0 changed, 0 unchanged, 1 failed, 0 gone.\n"
        "Error: 1 widget failed; the rest is done.\n",
    )
    assert held(app)["acme/clock"]["widget"]["displayName"] == "Mine"


def test_adopt_replaces_a_widget_made_here_with_its_count(
    app_with: Callable[..., Flask], upstream: FakeUpstream
) -> None:
    app = app_with(document("acme/clock", version("0.1.0"), displayName="Mine", downloadCount=2))
    assert said(app, upstream, "--adopt") == (
        "2 added, 1 changed, 0 unchanged, 0 failed, 0 gone.\n"
    )
    assert (versions(app, "acme/clock"), count(app)) == (["2.0.0", "1.0.0"], 7)
    assert said(app, upstream) == UNCHANGED


def test_copy_from_elsewhere_is_replaced_by_adopt_alone_and_keeps_installs(
    app: Flask, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    install(app, 2)
    other = FakeUpstream(document("acme/clock", downloadCount=100))
    try:
        result = mirror(app, other)
        assert result.exit_code == 1
        assert f"acme/clock: is a copy from {upstream.url}; --adopt replaces" in result.stderr
        assert count(app) == 9
        said(app, other, "--adopt")
        assert count(app) == 102
    finally:
        other.close()


def test_copies_from_elsewhere_are_left_alone_by_a_mirror_that_lacks_them(
    app: Flask, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    other = FakeUpstream(document("other/clock"))
    try:
        told = said(app, other, "--prune")
    finally:
        other.close()
    assert told.endswith("1 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n")
    assert all(each["widget"]["listed"] for each in held(app).values())


def test_dry_run_tells_what_would_be_and_changes_nothing(
    app: Flask, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    upstream.put(document("acme/clock", version("3.0.0")))
    upstream.put(document("acme/alarm"))
    del upstream.documents["lab/tide"]
    before = state(app)
    result = mirror(app, upstream, "--dry-run", "--prune")
    assert (result.exit_code, result.stderr) == (
        0,
        "lab/tide is gone from the upstream; it would be unlisted here.\n"
        f"Would mirror {upstream.url}: 1 added, 1 changed, 1 unchanged, 0 failed, 1 gone.\n",
    )
    assert state(app) == before


def test_dry_run_makes_no_catalog(app: Flask, upstream: FakeUpstream, tmp_path: Path) -> None:
    result = mirror(app, upstream, "--dry-run", "--bundles")
    assert (result.exit_code, result.stderr) == (
        0,
        f"Would mirror {upstream.url}: 3 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n"
        "Bundles: 1 to fetch, 0 here already, 0 failed.\n",
    )
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "not JSON": (body(b"<html>"), "the response is not JSON in UTF-8 ("),
    "not UTF-8": (body(b'"\xff"'), "the response is not JSON in UTF-8 ("),
    "too deep": (body(b"[" * 100_000), "nested too deeply"),
    "no document": (body(b"[]"), "must be an object"),
    "another widget": (body(json.dumps(NOTES).encode()), "the response is about 'acme/notes'"),
    "a bad field": (
        body(json.dumps(document("acme/clock", version("1"), icon=1)).encode()),
        "icon must be a string of Unicode text without NUL, not 1 (and 1 more)",
    ),
    "a bad address": (
        body(json.dumps(document("acme/clock", version(bundleUrl="file:///x"))).encode()),
        "bundleUrl must be an absolute http or https URL, not 'file:///x'",
    ),
    "403": (status(403), "the response status is 403, not 200"),
    "500": (status(500), "sends too many 500 error responses"),
    "file": (redirect("file:///etc/passwd"), "'file:///etc/passwd' is not an absolute"),
    "hang-up": (hang_up, "closes the connection before its response is complete"),
}


@pytest.mark.parametrize(("fault", "why"), WRONG.values(), ids=WRONG)
def test_one_bad_widget_is_named_and_the_rest_is_copied(
    app: Flask, upstream: FakeUpstream, fault: Fault, why: str
) -> None:
    upstream.fail(detail("acme/clock"), *[fault] * 10)
    result = mirror(app, upstream)
    named, summary, error = result.stderr.splitlines()
    assert named.startswith("acme/clock: ")
    assert why in named
    assert summary.endswith(": 2 added, 0 changed, 0 unchanged, 1 failed, 0 gone.")
    assert (result.exit_code, error) == (1, "Error: 1 widget failed; the rest is done.")
    assert list(held(app)) == ["acme/notes", "lab/tide"]


@pytest.mark.parametrize("name", ["..", "", "a/b", "line\nend", "\ud800"])
def test_name_that_no_path_can_have_is_not_asked_for(
    app: Flask, upstream: FakeUpstream, name: str
) -> None:
    upstream.put(document("acme/alarm", name=name))
    result = mirror(app, upstream)
    assert result.exit_code == 1
    assert "3 added, 0 changed, 0 unchanged, 1 failed" in result.stderr
    assert "printable characters without a slash" in result.stderr
    assert len(result.stderr.splitlines()) == 3


def test_widget_that_is_listed_without_a_detail_is_a_failure(
    app: Flask, upstream: FakeUpstream
) -> None:
    upstream.fail(detail("acme/clock"), status(404))
    result = mirror(app, upstream)
    assert result.exit_code == 1
    assert result.stderr.startswith("acme/clock: is listed, but its detail is not found.\n")


def test_failed_refresh_of_a_widget_leaves_it_as_it_was(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    before = held(app)
    upstream.fail(detail("acme/clock"), body(b"{}"))
    assert mirror(app, upstream).exit_code == 1
    assert held(app) == before


def test_many_failures_are_named_up_to_a_point(app: Flask, upstream: FakeUpstream) -> None:
    for each in many(30, displayName=""):
        upstream.put(each)
    lines = mirror(app, upstream).stderr.splitlines()
    assert (len(lines), lines[20]) == (23, "There are 10 more failures.")


def test_upstream_that_falls_silent_is_not_asked_for_all_the_rest(
    app: Flask, upstream: FakeUpstream
) -> None:
    for each in many(300):
        upstream.put(each)
        upstream.fail(detail(f"acme/{each['widget']['name']}"), *[status(503)] * 5)
    result = mirror(app, upstream)
    assert result.exit_code == 1
    assert "25 requests in a row failed, the last one because" in result.stderr
    assert len(upstream.requests) < 800


def test_what_came_before_the_upstream_fell_silent_is_kept(
    app: Flask, upstream: FakeUpstream
) -> None:
    upstream.documents.clear()
    for number, each in enumerate(many(100)):
        upstream.put(each)
        if number >= 10:
            upstream.fail(detail(f"acme/{each['widget']['name']}"), *[status(503)] * 5)
    assert "25 requests in a row failed" in mirror(app, upstream).stderr
    assert len(held(app)) == 10


def test_widgets_that_are_refused_do_not_stop_the_rest(app: Flask, upstream: FakeUpstream) -> None:
    upstream.documents.clear()
    for number, each in enumerate(many(100)):
        upstream.put(each)
        if 10 <= number < 40:
            upstream.fail(detail(f"acme/{each['widget']['name']}"), status(403))
    result = mirror(app, upstream)
    assert "70 added, 0 changed, 0 unchanged, 30 failed, 0 gone." in result.stderr
    assert len(held(app)) == 70


NO_CATALOG = {
    "404": (status(404), "the search response is not that of a widget catalog"),
    "HTML": (body(b"<html>"), "the search response is not that of a widget catalog"),
    "an array": (body(b"[]"), "the search response is not that of a widget catalog"),
    "no total": (body(b'{"widgets": []}'), "the search response is not that of a widget"),
    "odd names": (
        body(b'{"widgets": [{"scope": 1, "name": []}], "total": 1}'),
        "the search response is not that of a widget catalog",
    ),
    "too many": (
        body(b'{"widgets": [], "total": 1000001}'),
        "it lists 1000001 widgets, more than 1000000",
    ),
    "endless": (endless(), "the response is larger than 1000 bytes"),
}


@pytest.mark.parametrize(("fault", "why"), NO_CATALOG.values(), ids=NO_CATALOG)
def test_what_is_no_catalog_is_refused_and_nothing_is_made(
    app: Flask,
    upstream: FakeUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    why: str,
) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_RESPONSE_BYTES", 1000)
    upstream.fail(SEARCH, fault)
    result = mirror(app, upstream)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {upstream.url} cannot be mirrored: {why}")
    assert list(tmp_path.iterdir()) == []


def test_faults_that_pass_do_not_show(app: Flask, upstream: FakeUpstream) -> None:
    upstream.fail(SEARCH, status(503), hang_up, cut(5))
    upstream.fail(detail("acme/clock"), cut(20), status(500), hang_up)
    assert said(app, upstream) == "3 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n"
    assert versions(app, "acme/clock") == ["2.0.0", "1.0.0"]


def test_list_of_several_pages_is_read_to_its_end(app: Flask, upstream: FakeUpstream) -> None:
    for each in many(250):
        upstream.put(each)
    assert said(app, upstream).startswith("253 added, ")
    pages = [path for path, _ in upstream.requests if "limit=100" in path]
    assert pages == [f"{SEARCH}?page={number}&limit=100" for number in (1, 2, 3)]


def rank_first(upstream: FakeUpstream, path: str) -> None:
    """Move a widget to the top of the list, as many installs would."""
    upstream.documents = {path: upstream.documents[path], **upstream.documents}


def test_widget_that_moves_to_a_page_already_read_is_found(
    app: Flask, upstream: FakeUpstream
) -> None:
    for each in many(250):
        upstream.put(each)
    moving = iter(["acme/w0249", "acme/w0120"])

    def move(path: str) -> None:
        if "page=2" in path:
            for name in moving:
                rank_first(upstream, name)
                break

    upstream.on_request = move
    assert said(app, upstream).startswith("253 added, 0 changed, 0 unchanged, 0 failed")
    assert set(held(app)) == set(upstream.documents)


def test_widgets_that_come_and_go_while_the_list_is_read_hide_no_others(
    app: Flask, upstream: FakeUpstream
) -> None:
    for each in many(250):
        upstream.put(each)
    changes = iter(
        [
            lambda: (upstream.documents.pop("acme/w0001"), rank_first(upstream, "acme/w0200")),
            lambda: upstream.put(document("late/comer")),
        ]
    )

    def change(path: str) -> None:
        if "page=2" in path:
            next(changes, lambda: None)()

    upstream.on_request = change
    result = mirror(app, upstream)
    assert result.exit_code == 0
    assert set(held(app)) >= set(upstream.documents)
    assert mirror(app, upstream, "--prune").exit_code == 0
    listed = {path for path, each in held(app).items() if each["widget"]["listed"]}
    assert listed == set(upstream.documents)


def test_list_that_never_holds_still_is_read_so_often_and_said(
    app: Flask, upstream: FakeUpstream
) -> None:
    for each in many(250):
        upstream.put(each)
    numbers = iter(range(1000))

    def add(path: str) -> None:
        if "page=" in path:
            upstream.put(document(f"late/w{next(numbers)}"))

    upstream.on_request = add
    result = mirror(app, upstream)
    assert result.exit_code == 1
    assert "The list: changed or repeated itself in each of 5 readings." in result.stderr
    assert set(held(app)) >= {f"acme/w{number:04}" for number in range(250)}


def page(*names: str, total: int) -> Fault:
    """A page of a list with just these widgets, and this total."""
    widgets = [dict(zip(("scope", "name"), name.split("/"), strict=True)) for name in names]
    return body(json.dumps({"widgets": widgets, "total": total}).encode())


ENDLESS_LISTS = {
    "one page again and again": [page("acme/clock", "acme/notes", total=1_000_000)] * 1000,
    "a new name on each page": [
        page("acme/clock", f"acme/n{number}", total=1000) for number in range(1000)
    ],
    "a total that grows with each page": [
        page(f"acme/n{number}", total=100 + 1000 * number) for number in range(1000)
    ],
    "empty pages before the end": [page("acme/clock", total=500), *[page(total=500)] * 1000],
}


@pytest.mark.parametrize("pages", ENDLESS_LISTS.values(), ids=ENDLESS_LISTS)
def test_list_without_an_end_is_left(
    app: Flask, upstream: FakeUpstream, pages: list[Fault]
) -> None:
    upstream.fail(SEARCH, *pages)
    result = mirror(app, upstream)
    assert result.exit_code == 1
    assert "The list: changed or repeated itself in each of 5 readings." in result.stderr
    assert upstream.paths().count(SEARCH) < 500
    assert upstream.faults[SEARCH]


def test_page_with_more_widgets_than_a_page_can_have_is_refused(
    app: Flask, upstream: FakeUpstream
) -> None:
    upstream.fail(SEARCH, page(*(f"acme/w{number}" for number in range(101)), total=101))
    result = mirror(app, upstream)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {upstream.url} cannot be mirrored: a page of the list has 101 widgets, "
        "more than 100.\n",
    )


def test_widget_that_is_unlisted_between_list_and_detail_is_no_failure(
    app: Flask, upstream: FakeUpstream
) -> None:
    def remove(path: str) -> None:
        if path == detail("acme/notes"):
            upstream.documents.pop("acme/notes", None)

    upstream.on_request = remove
    assert said(app, upstream) == "2 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n"
    assert list(held(app)) == ["acme/clock", "lab/tide"]


def test_names_of_every_kind_reach_their_widgets(app: Flask, upstream: FakeUpstream) -> None:
    names = [
        "天気",
        "a b",
        "50%",
        "%2e%2e",
        "a?b#c",
        "a+b&c=d",
        "@x;y",
        "...",
        "search",
        "Ünï",
        "'\"",
    ]
    for name in names:
        upstream.put(document(f"天 {name}/{name}"))
    assert said(app, upstream).startswith("14 added, ")
    assert set(held(app)) == set(upstream.documents)
    assert said(app, upstream).startswith("0 added, 0 changed, 14 unchanged")


def test_interrupted_run_keeps_what_it_had_and_goes_on(app: Flask, upstream: FakeUpstream) -> None:
    for each in many(200):
        upstream.put(each)
    for each in many(200)[150:]:
        upstream.fail(detail(f"acme/{each['widget']['name']}"), *[status(503)] * 5)
    assert mirror(app, upstream).exit_code == 1
    kept = len(held(app))
    assert kept >= BATCH_SIZE
    upstream.requests.clear()
    upstream.faults.clear()
    told = said(app, upstream)
    assert told == f"{203 - kept} added, 0 changed, {kept} unchanged, 0 failed, 0 gone.\n"
    assert set(held(app)) == set(upstream.documents)


@pytest.mark.parametrize(
    "given", ["127.0.0.1:8080", "file:///x", "http://u:p@a.example", "x\ud800"]
)
def test_url_that_is_none_of_a_service_is_wrong_usage(app: Flask, given: str) -> None:
    result = app.test_cli_runner().invoke(args=["mirror", given])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not an absolute http or https URL" in result.stderr


@pytest.mark.parametrize("given", ["", "a/b", ".."])
def test_scope_that_none_can_be_is_wrong_usage(app: Flask, given: str) -> None:
    result = app.test_cli_runner().invoke(args=["mirror", "http://a.example", "--scope", given])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "printable characters without a slash" in result.stderr


def test_interrupt_ends_it_at_once_in_a_sentence(upstream: FakeUpstream, tmp_path: Path) -> None:
    asked = threading.Event()

    def wait_for_ever(handler: Handler) -> None:
        asked.set()
        silent(handler)

    upstream.fail(detail("acme/clock"), wait_for_ever)
    # Whoever runs the tests may ignore interrupts, and a child inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "flask", "mirror", upstream.url],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(tmp_path / "mirror.db")},
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    assert asked.wait(30)
    process.send_signal(signal.SIGINT)
    try:
        _, told = process.communicate(timeout=4)  # silent() would hold it for longer
    except subprocess.TimeoutExpired:  # Python cannot raise it everywhere; people press again
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=4)
    assert (process.returncode, told) == (130, "Interrupted; the next run continues from here.\n")


def test_file_that_is_no_catalog_is_refused_before_anything_is_asked(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    (tmp_path / "other.db").write_bytes(b"not a database, " * 100)
    result = mirror(create_app({"DATABASE": tmp_path / "other.db"}), upstream)
    assert (result.exit_code, upstream.requests) == (1, [])
    assert result.stderr.endswith("other.db cannot be opened: file is not a database.\n")


def test_quiet_leaves_failures_alone(app: Flask, upstream: FakeUpstream) -> None:
    assert mirror(app, upstream, "--quiet").output == ""
    upstream.fail(detail("acme/clock"), body(b"[]"))
    assert len(mirror(app, upstream, "--quiet").stderr.splitlines()) == 2


def test_terminal_shows_how_far_it_is(upstream: FakeUpstream, tmp_path: Path) -> None:
    terminal, its_end = pty.openpty()
    environment = {**os.environ, "CATALOG_DATABASE": str(tmp_path / "mirror.db")}
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-m", "flask", "mirror", upstream.url],
        cwd=ROOT,
        env=environment,
        stdout=its_end,
        stderr=its_end,
    ):
        os.close(its_end)
        with suppress(OSError), open(terminal, "rb", buffering=0) as screen:
            while read := screen.read(4096):
                shown += read
    assert b"Widgets  [" in shown
    assert b"3/3" in shown
    assert shown.endswith(b"3 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\r\n")


def test_workers_are_as_many_as_are_set(upstream: FakeUpstream, tmp_path: Path) -> None:
    for each in many(50):
        upstream.put(each)
    app = create_app({"DATABASE": tmp_path / "mirror.db", "MIRROR_WORKERS": "1"})
    with closing(app.extensions["database"]):
        said(app, upstream)
    assert upstream.connections == 1


def test_details_are_fetched_several_at_once(app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("acme/alarm"))
    together = threading.Barrier(4, timeout=10)

    def meet(path: str) -> None:
        if "search" not in path:
            together.wait()

    upstream.on_request = meet
    assert said(app, upstream) == "4 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n"


def test_mirror_may_be_served_while_it_is_written(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    client = app.test_client()
    assert client.get("/api/v1/widgets/acme/clock").json["latestVersion"] == "2.0.0"
    upstream.put(document("acme/clock", version("9.0.0")))
    said(app, upstream)
    assert client.get("/api/v1/widgets/acme/clock").json["latestVersion"] == "9.0.0"
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
