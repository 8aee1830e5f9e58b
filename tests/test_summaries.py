"""Parts of answers that are kept from search to search: never of another catalog than the rest."""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import document, version
from conftest import hold
from flask import Flask

from catalog import search
from catalog.parameters import parse_search
from catalog.search import find_widgets
from catalog.shelf import Shelf

SEARCH = "/api/v1/widgets/search"
OLD = version("1.0.0", sdkVersion="^1.0.0", publishedAt="2024-01-01T00:00:00Z")
NEW = version("2.0.0", sdkVersion="^2.0.0", publishedAt="2025-01-01T00:00:00Z")
CATALOG = [
    document("acme/clock", OLD, NEW, displayName="Clock"),
    document("acme/alarm", OLD, NEW, displayName="Alarm", description="A clock"),
    document("acme/bell", OLD, displayName="Bell", description="No clock"),
]
CHANGES = {
    "another name": "UPDATE widget SET display_name = 'Watch' WHERE name = 'clock'",
    "unlisted": "UPDATE widget SET listed = 0 WHERE name = 'clock'",
    "another unlisted": "UPDATE widget SET listed = 0 WHERE name = 'bell'",
    "all unlisted": "UPDATE widget SET listed = 0",
    "removed": "DELETE FROM widget WHERE name = 'clock'",
    "yanked": "UPDATE version SET yanked = 1 WHERE version = '1.0.0'",
    "installed": "UPDATE widget SET download_count = 1",
}
# By what only that statement has in it; the number of hits that are many; and those of a page.
STATEMENTS = {
    "summaries": ("rtrim(", 2000, "20"),
    "offers": ("json_group_array", 2000, "20"),
    "entries": ("JOIN version ON version.id", 2000, "20"),
    "reach of many": ("max(widget_id)", 1, "20"),
    "count of many": ("count(*),", 1, "20"),
    "many by name": ("listing ON widget_id = value", 1, "20"),
    "many by name, a whole page": ("listing ON widget_id = value", 1, "1"),
    "many in order": ("AND NOT (", 1, "20"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("statement", "many", "limit"), STATEMENTS.values(), ids=STATEMENTS)
def test_an_answer_is_of_one_state_though_a_write_comes_between_its_statements(
    app_with: Callable[..., Flask],
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    many: int,
    limit: str,
    change: str,
) -> None:
    monkeypatch.setattr(search, "MANY", many)
    database = app_with(*CATALOG).extensions["database"]
    connection = database.reader()
    wanted = parse_search({"q": "clock", "compatSdk": "1.4.0", "limit": limit})
    _, before = find_widgets(connection, wanted, Shelf())
    writes = [[(change, {})]]

    def write(sql: str) -> None:  # just before the statement sees the database
        if statement in sql and writes:
            database.write(writes.pop())

    connection.set_trace_callback(write)
    _, body = find_widgets(connection, wanted, Shelf())
    connection.set_trace_callback(None)
    _, after = find_widgets(connection, wanted, Shelf())
    assert (writes, connection.in_transaction) == ([], False)
    assert after != before
    # No count is in a summary, an offer or an entry, so that an install changes none of them.
    assert body in ([before, after] if "download_count" in change else [after])


def test_each_address_is_told_its_own(app_with: Callable[..., Flask]) -> None:
    content = b"export default 1"
    held = {"sha256Hash": hashlib.sha256(content).hexdigest(), "bundleSize": len(content)}
    app = app_with(document("acme/clock", {**OLD, **held}))
    hold(app, content)
    urls = []
    for host in ("a.example", "b.example", "a.example"):
        answer = app.test_client().get(SEARCH, headers={"Host": host}).get_json()
        urls.append(answer["widgets"][0]["latestVersion"]["bundleUrl"])
    path = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
    assert urls == [f"http://{letter}.example{path}" for letter in "aba"]


@pytest.mark.parametrize("limit", [1, 2], ids=["an answer given before", "a new answer"])
@pytest.mark.parametrize("threads", [1, 2], ids=["the same thread", "a thread not used before"])
def test_another_file_of_the_same_revision_is_read_anew(
    app_with: Callable[..., Flask], threads: int, limit: int
) -> None:
    app = app_with(document("acme/clock", displayName="Clock"))
    other = app_with(document("acme/clock", displayName="Watch"))

    def name(limit: int) -> str:
        answer = app.test_client().get(SEARCH, query_string={"limit": limit}).get_json()
        return answer["widgets"][0]["displayName"]

    pools = [ThreadPoolExecutor(1) for _ in range(threads)]
    assert pools[0].submit(name, 1).result() == "Clock"
    os.replace(other.config["DATABASE"], app.config["DATABASE"])
    assert pools[-1].submit(name, limit).result() == "Watch"
    assert pools[0].submit(name, limit).result() == "Watch"
    for pool in pools:
        pool.shutdown()


def test_what_was_counted_after_a_write_is_not_kept_for_the_state_before(
    app_with: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MANY", 1)
    database = app_with(*CATALOG).extensions["database"]
    connection, shelf = database.reader(), Shelf()
    wanted = parse_search({"q": "clock"})
    writes = [[("DELETE FROM widget WHERE name = 'bell'", {})]]
    seen = []

    def write_and_look_back(sql: str) -> None:
        if "count(*)," in sql and writes:
            database.write(writes.pop())
        elif not writes:
            seen.append(other.submit(find_widgets, held, wanted, shelf).result())

    with ThreadPoolExecutor(1) as other:
        held = other.submit(lambda: database.reader().execute("BEGIN")).result().connection
        before = other.submit(find_widgets, held, wanted, Shelf()).result()
        connection.set_trace_callback(write_and_look_back)
        find_widgets(connection, wanted, shelf)
        connection.set_trace_callback(None)
        other.submit(held.execute, "ROLLBACK").result()
    assert json.loads(before[1])["total"] == 3
    assert seen == [before] * len(seen) != []


def test_a_summary_is_the_same_read_now_or_kept(app_with: Callable[..., Flask]) -> None:
    connection = app_with(*CATALOG).extensions["database"].reader()
    shelf = Shelf()
    wanted = parse_search({"q": "clock", "compatSdk": "1.4.0"})
    first, again = (find_widgets(connection, wanted, shelf)[1] for _ in range(2))
    assert first == again == find_widgets(connection, wanted, Shelf())[1]
    assert [
        (widget["latestVersion"]["version"], widget["latestCompatibleVersion"]["version"])
        for widget in json.loads(again)["widgets"]
    ] == [("2.0.0", "1.0.0"), ("2.0.0", "1.0.0"), ("1.0.0", "1.0.0")]
