"""How SQLite goes about a search: by an index, in its order, and never through all of a table."""

import sqlite3
from collections.abc import Callable, Iterator

import pytest
from builders import document, version
from flask import Flask

from catalog.search import _statement, parse_search, still_holds


@pytest.fixture
def connection(app_with: Callable[..., Flask]) -> Iterator[sqlite3.Connection]:
    app = app_with(document("acme/clock", version()))
    with app.extensions["database"].read() as connection:
        yield connection


def plan(connection: sqlite3.Connection, **arguments: str) -> list[str]:
    """The steps that read or sort rows, in the order of the statement."""
    statement, values = _statement(parse_search(arguments))
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    return [step for step in steps if step.startswith(("SCAN", "SEARCH", "USE"))]


# Handles the rows of one page, found and in order before it.
PAGE = [
    "SCAN hit",
    "SEARCH widget USING INTEGER PRIMARY KEY (rowid=?)",
    "SEARCH version USING INDEX version_newest_offered (widget_id=?)",
    "USE TEMP B-TREE FOR ORDER BY",
    "SCAN (subquery-{})",
    "SCAN revision",
    "SCAN (subquery-{})",
]


def page(number: int) -> list[str]:
    rows, text = number, number + 1
    return [*(step.format(rows) for step in PAGE[:-1]), PAGE[-1].format(text)]


COUNTED_BY = {
    "all": ({}, "SCAN listing USING COVERING INDEX listing_official"),
    "a scope": (
        {"scope": "acme"},
        "SEARCH listing USING COVERING INDEX listing_order_in_scope (scope=?)",
    ),
    "official": (
        {"official": "true"},
        "SEARCH listing USING COVERING INDEX listing_official (official=?)",
    ),
    "a scope's official": (
        {"scope": "acme", "official": "false"},
        "SEARCH listing USING COVERING INDEX listing_order_in_scope (scope=?)",
    ),
}


@pytest.mark.parametrize(("arguments", "counted"), COUNTED_BY.values(), ids=COUNTED_BY)
def test_browsing_reads_the_page_off_an_index_and_sorts_nothing(
    connection: sqlite3.Connection, arguments: dict[str, str], counted: str
) -> None:
    in_order = "SCAN listing USING COVERING INDEX listing_order"
    if "scope" in arguments:
        in_order = "SEARCH listing USING COVERING INDEX listing_order_in_scope (scope=?)"
    steps = plan(connection, **arguments)
    assert steps == [in_order, *page(5), counted, "SCAN total"]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"scope": "acme"}, {"official": "true"}, {"scope": "acme", "official": "false"}],
    ids=["alone", "in a scope", "official", "in a scope, not official"],
)
def test_words_begin_at_the_text_index_and_only_hits_are_sorted(
    connection: sqlite3.Connection, arguments: dict[str, str]
) -> None:
    assert plan(connection, q="clock", **arguments) == [
        "SCAN listing_text VIRTUAL TABLE INDEX 0:M1",
        "SEARCH listing USING INTEGER PRIMARY KEY (rowid=?)",
        "SCAN found",
        "USE TEMP B-TREE FOR ORDER BY",
        *page(6),
        "SCAN found",
        "SCAN total",
    ]


def test_compatible_versions_are_looked_up_newest_first(connection: sqlite3.Connection) -> None:
    steps = plan(connection, q="clock", compatSdk="1.4.0")
    offered = "SEARCH version USING INDEX version_newest_offered (widget_id=?)"
    assert [step for step in steps if "version" in step] == [offered, offered]


def test_whether_a_page_still_holds_is_asked_of_the_widgets_installed_last(
    connection: sqlite3.Connection,
) -> None:
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    search = parse_search({"q": "clock", "scope": "acme", "official": "false"})
    still_holds(connection, search, (0, -1, -1))
    connection.set_trace_callback(None)
    assert [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {seen[0]}")] == [
        "SCAN revision",
        "SCALAR SUBQUERY 2",
        "SCAN installed",
        "SEARCH listing USING INTEGER PRIMARY KEY (rowid=?)",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH widget USING INTEGER PRIMARY KEY (rowid=?)",
    ]
