"""How SQLite runs a search: it reads indexes in their order, and never all of a table."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask import Flask

from catalog.store.search import PageRevision, find_widgets, revalidate_search
from catalog.store.search_params import parse_search
from catalog.store.sqlite import Connection


@pytest.fixture
def connection(app_with: Callable[..., Flask]) -> Connection:
    app = app_with(
        document("acme/bell", displayName="Bell"),
        document("acme/clock", version(sdkVersion="^2.0.0"), version("0.9.0"), isOfficial=True),
        document("acme/alarm", displayName="Alarm", description="A clock"),
    )
    connection: Connection = app.extensions["database"].reader()
    # The text index reads its settings once, with its first statement.
    connection.execute("SELECT 1 FROM listing_text WHERE listing_text MATCH 'oth'")
    return connection


def plan(connection: Connection, run: Callable[[], object]) -> list[str]:
    """The steps of the statements that are run, except those of the text index itself."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    run()
    connection.set_trace_callback(None)
    return [
        step
        for statement in statements
        if not statement.startswith("--")
        for _, _, _, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]


def plan_of_search(connection: Connection, **arguments: str) -> list[str]:
    search = parse_search(arguments)
    return plan(connection, lambda: find_widgets(connection, search))


def scanned(steps: list[str]) -> set[str]:
    """The tables of schema.sql, and their indexes, that are read from the first row on."""
    tables = ("widget", "version", "summary", "sdk_range", "sdk_interval", "version_entry")
    return {
        step
        for step in steps
        if step.startswith("SCAN") and step.split()[1] in (*tables, "listing", "listing_text")
    }


FILTERS = {
    "all": {},
    "in a scope": {"scope": "acme"},
    "official": {"official": "true"},
    "official in a scope": {"scope": "acme", "official": "false"},
}
SDKS = {"without an SDK": {}, "with an SDK": {"compatSdk": "1.4.0"}}


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
def test_without_words_the_page_is_read_from_an_index_and_nothing_is_sorted(
    connection: Connection, filters: dict[str, str], sdk: dict[str, str]
) -> None:
    steps = plan_of_search(connection, **filters, **sdk)
    assert all("USING COVERING INDEX" in step for step in scanned(steps))
    assert "scope" not in filters or scanned(steps) == set()
    assert not any("TEMP B-TREE" in step for step in steps)


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
def test_words_are_looked_up_in_the_text_index_alone(
    connection: Connection, filters: dict[str, str], sdk: dict[str, str]
) -> None:
    steps = plan_of_search(connection, q="clock", **filters, **sdk)
    assert all("VIRTUAL TABLE INDEX" in step for step in scanned(steps))


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
def test_short_words_are_looked_for_in_the_narrow_table_alone(
    connection: Connection, filters: dict[str, str], sdk: dict[str, str]
) -> None:
    steps = plan_of_search(connection, q="cl", **filters, **sdk)
    assert {step.split()[1] for step in scanned(steps)} <= {"listing"}


def test_compatible_versions_are_found_without_reading_the_versions_before_them(
    connection: Connection,
) -> None:
    steps = plan_of_search(connection, q="clock", compatSdk="1.4.0")
    of_versions = [step for step in steps if step.startswith("SEARCH version ")]
    assert len(of_versions) == 2
    assert any("COVERING INDEX" in step for step in of_versions)
    assert any("PRIMARY KEY (rowid=?)" in step for step in of_versions)


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_whether_a_page_is_still_valid_is_decided_by_the_recent_installs_alone(
    connection: Connection, filters: dict[str, str]
) -> None:
    search = parse_search({"q": "clock", **filters})
    steps = plan(connection, lambda: revalidate_search(connection, search, PageRevision(0, -1, -1)))
    assert steps != []
    assert scanned(steps) == set()
