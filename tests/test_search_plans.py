"""How SQLite goes about a search: by an index, in its order, and never through all of a table."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask import Flask

from catalog import search
from catalog.parameters import parse_search
from catalog.search import find_widgets, still_holds
from catalog.shelf import Shelf
from catalog.sqlite_file import Connection


@pytest.fixture
def connection(app_with: Callable[..., Flask]) -> Connection:
    app = app_with(
        document("acme/bell", displayName="Bell"),
        document("acme/clock", version(sdkVersion="^2.0.0"), version("0.9.0"), isOfficial=True),
        document("acme/alarm", displayName="Alarm", description="A clock"),
    )
    connection: Connection = app.extensions["database"].reader()
    # The text index reads its settings once, when it is first asked.
    connection.execute("SELECT 1 FROM listing_text WHERE listing_text MATCH 'oth'")
    return connection


def plans(connection: Connection, ask: Callable[[], object]) -> list[list[str]]:
    """The steps that read or sort rows, in their order, of each statement that is asked."""
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    ask()
    connection.set_trace_callback(None)
    return [
        [
            step
            for _, _, _, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
            if step.startswith(("SCAN", "SEARCH", "USE")) and "subquery" not in step
        ]
        for statement in asked
        if "SELECT" in statement and not statement.startswith("--")
    ]


def plans_of_search(connection: Connection, **arguments: str) -> list[list[str]]:
    wanted = parse_search(arguments)
    return plans(connection, lambda: find_widgets(connection, wanted, Shelf()))


OFFERED = "SEARCH version USING INDEX version_newest_offered (widget_id=?)"
BY_ID = "SEARCH {} USING INTEGER PRIMARY KEY (rowid=?)"
IDS = "SCAN json_each VIRTUAL TABLE INDEX 1:"
SUMMARIES = ["SCAN revision", IDS, BY_ID.format("widget"), OFFERED]

IN_SCOPE = "SEARCH listing USING COVERING INDEX listing_order_in_scope (scope=?)"
COUNTED_BY = {
    "all": ({}, "SCAN listing USING COVERING INDEX listing_official"),
    "a scope": ({"scope": "acme"}, IN_SCOPE),
    "official": (
        {"official": "true"},
        "SEARCH listing USING COVERING INDEX listing_official (official=?)",
    ),
    "a scope's official": ({"scope": "acme", "official": "false"}, IN_SCOPE),
}


@pytest.mark.parametrize(("arguments", "counted"), COUNTED_BY.values(), ids=COUNTED_BY)
def test_browsing_reads_the_page_off_an_index_and_sorts_nothing(
    connection: Connection, arguments: dict[str, str], counted: str
) -> None:
    in_order = (
        IN_SCOPE if "scope" in arguments else "SCAN listing USING COVERING INDEX listing_order"
    )
    page = [in_order, "SCAN hit", "SCAN revision", counted, "SCAN total"]
    assert plans_of_search(connection, **arguments) == [page, SUMMARIES]


AT_THE_INDEX = ["SCAN listing_text VIRTUAL TABLE INDEX 0:M1", BY_ID.format("listing")]
COUNTED_AND_SORTED = [
    *("SCAN found", "USE TEMP B-TREE FOR ORDER BY", "SCAN hit", "SCAN revision"),
    *("SCAN found", "SCAN total"),
]
FILTERS = {
    "alone": {},
    "in a scope": {"scope": "acme"},
    "official": {"official": "true"},
    "in a scope, official": {"scope": "acme", "official": "true"},
}


@pytest.mark.parametrize("arguments", FILTERS.values(), ids=FILTERS)
def test_words_begin_at_the_text_index_and_only_hits_are_sorted(
    connection: Connection, arguments: dict[str, str]
) -> None:
    page = [*AT_THE_INDEX, *COUNTED_AND_SORTED]
    assert plans_of_search(connection, q="clock", **arguments) == [page, SUMMARIES]


@pytest.mark.parametrize("arguments", FILTERS.values(), ids=FILTERS)
def test_of_many_hits_only_those_by_name_are_sorted(
    connection: Connection, arguments: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MANY", 1)
    in_order = "SCAN listing USING INDEX listing_order"
    if "scope" in arguments:
        in_order = "SEARCH listing USING INDEX listing_order_in_scope (scope=?)"
    by_name = [IDS, BY_ID.format("listing"), "USE TEMP B-TREE FOR ORDER BY"]
    rest = ["SCAN hit", "SCAN revision", "SCAN CONSTANT ROW", "SCAN total"]
    assert plans_of_search(connection, q="clock", **arguments) == [
        [*AT_THE_INDEX, *COUNTED_AND_SORTED],
        AT_THE_INDEX,
        [*AT_THE_INDEX, "SCAN revision"],
        [*by_name, *rest],
        [in_order, *rest],
        SUMMARIES,
    ]


def test_hits_that_are_most_of_all_are_counted_in_one_go(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MANY", 2)
    _, _, counted, *_ = plans_of_search(connection, q="clock")
    assert counted == ["SCAN listing", "SCAN revision"]


def test_compatible_versions_are_looked_up_newest_first(connection: Connection) -> None:
    _, summaries, offers, entries = plans_of_search(connection, q="clock", compatSdk="1.4.0")
    assert summaries == offers == SUMMARIES
    assert entries == ["SCAN revision", IDS, BY_ID.format("version"), BY_ID.format("widget")]


def test_whether_a_page_still_holds_is_asked_of_the_widgets_installed_last(
    connection: Connection,
) -> None:
    wanted = parse_search({"q": "clock", "scope": "acme", "official": "false"})
    asked = plans(connection, lambda: still_holds(connection, wanted, (0, -1, -1)))
    assert asked == [["SCAN revision", "SCAN installed", BY_ID.format("listing")]]
