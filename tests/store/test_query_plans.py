"""How SQLite runs the statements of requests and writes: with indexes, without full scans."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from builders import bundled, document, version
from conftest import hold, running
from flask import Flask

from catalog.store.connection.sqlite import Connection
from catalog.store.read.export import catalog_lines
from catalog.store.read.facets import find_facets
from catalog.store.read.search_params import parse_search
from catalog.store.schema.derived import REFRESH
from catalog.store.write.documents import PUT_VERSION, PUT_WIDGET
from catalog.store.write.installs import COUNT_INSTALL

SEARCH = "/api/v1/widgets/search"
CONTENT = b"export default 1"
CLOCK = document(
    "acme/clock",
    version("2.0.0", sdkVersion="^2.0.0"),
    version("0.9.0"),
    version("0.5.0", yanked=True),
    bundled("0.1.0", CONTENT),
    isOfficial=True,
)
# A commit that no response shows.
INVISIBLE_WRITE = running("DELETE FROM mirrored")


@pytest.fixture
def app(app_with: Callable[..., Flask]) -> Flask:
    app = app_with(
        document("acme/bell", displayName="Bell"),
        CLOCK,
        document("acme/alarm", displayName="Alarm", description="A clock"),
    )
    hold(app, CONTENT)
    return app


def explain(connection: Connection, sql: str, values: Any = ()) -> list[str]:
    return [step for _, _, _, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def plan(app: Flask, run: Callable[[Connection], object]) -> list[str]:
    """Return the steps of the statements that this thread reads with."""
    connection: Connection = app.extensions["database"].reader()
    # Its first use makes the text index read its configuration.
    connection.execute("SELECT 1 FROM listing_text WHERE listing_text MATCH 'oth'")
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    run(connection)
    connection.set_trace_callback(None)
    # The statements of the text index itself are traced as comments.
    reads = [sql for sql in statements if not sql.startswith(("--", "PRAGMA", "BEGIN", "ROLLBACK"))]
    assert reads
    return [step for sql in reads for step in explain(connection, sql)]


def plan_of_get(app: Flask, path: str, **query: str) -> list[str]:
    response = app.test_client().get
    return plan(app, lambda _: response(path, query_string=query or None).close())


def scanned(steps: list[str]) -> set[str]:
    """Return the tables that are read from the first row on, or through an index from its first."""
    tables = {"widget", "version", "summary", "sdk_range", "sdk_interval", "version_entry"}
    tables |= {"mirrored", "listing", "install"}
    return {step.split()[1] for step in steps if step.startswith("SCAN")} & tables


def is_sorted(steps: list[str]) -> bool:
    """Return whether SQLite sorts rows, instead of reading them in the order of an index."""
    return any("TEMP B-TREE" in step for step in steps)


FILTERS = {
    "all": {},
    "in a scope": {"scope": "acme"},
    "official": {"official": "true"},
    "official in a scope": {"scope": "acme", "official": "false"},
}
SDKS = {
    "without an SDK": {},
    "with an SDK": {"compatSdk": "1.4.0"},
    "stable": {"stable": "true"},
    "pictures": {"include": "picture"},
    "stable before": {"compatSdk": "1.4.0", "stable": "true", "before": "2025-01-01"},
}
COMPATIBLE = {"compatSdk": "1.4.0", "compatible": "true"}


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
@pytest.mark.parametrize("words", ["", "clock", "cl"], ids=["no words", "words", "short word"])
def test_search_scans_at_most_the_listing(
    app: Flask, words: str, filters: dict[str, str], sdk: dict[str, str]
) -> None:
    steps = plan_of_get(app, SEARCH, q=words, **filters, **sdk)
    assert scanned(steps) <= ({"listing"} if words != "clock" else set())
    if not words:
        assert not is_sorted(steps)
        assert "scope" not in filters or scanned(steps) == set()
    if words == "clock":
        # The cached response is revalidated.
        app.extensions["database"].transact(INVISIBLE_WRITE)
        assert scanned(plan_of_get(app, SEARCH, q=words, **filters, **sdk)) == set()


@pytest.mark.parametrize("sort", ["installs", "updated", "created", "name"])
@pytest.mark.parametrize("filters", [{}, {"official": "false"}], ids=["all", "official"])
@pytest.mark.parametrize("sdk", [{}, COMPATIBLE], ids=["all SDKs", "compatible"])
def test_sorted_search_reads_the_listing_in_order(
    app: Flask, sort: str, filters: dict[str, str], sdk: dict[str, str]
) -> None:
    assert not is_sorted(plan_of_get(app, SEARCH, sort=sort, **filters, **sdk))
    if sort != "installs":
        assert scanned(plan_of_get(app, SEARCH, sort=sort, scope="acme")) == set()


@pytest.mark.parametrize("filters", [*FILTERS.values(), {"q": "clock"}], ids=[*FILTERS, "words"])
def test_compatible_is_decided_by_distinct_ranges(app: Flask, filters: dict[str, str]) -> None:
    steps = plan_of_get(app, SEARCH, **filters, **COMPATIBLE)
    assert scanned(steps) <= {"listing", "sdk_interval"}
    # The ranges are read once, not for each widget.
    assert [step for step in steps if step.startswith("LIST SUBQUERY")]
    assert "SEARCH version USING COVERING INDEX version_newest (widget_id=?)" in steps
    assert not is_sorted(steps) or "q" in filters


READS = {
    "detail": "/api/v1/widgets/acme/clock",
    "detail with an SDK": "/api/v1/widgets/acme/clock?compatSdk=1.4.0",
    "stable detail": "/api/v1/widgets/acme/clock?compatSdk=1.4.0&stable=true&before=2025-06-01",
    "version": "/api/v1/widgets/acme/clock/0.9.0",
    "latest stable version": "/api/v1/widgets/acme/clock/latest?stable=true&before=2025-06-01",
    "latest version for an SDK": "/api/v1/widgets/acme/clock/latest?compatSdk=1.4.0",
    "updates": "/api/v1/widgets/updates?compatSdk=1.4.0&installed=acme/clock@0.9.0",
    "registry": "/api/widgets/acme/registry.json",
    "bundle": "/api/v1/widgets/acme/clock/0.1.0/bundle.js",
}


@pytest.mark.parametrize("path", READS.values(), ids=READS)
def test_read_scans_no_table_and_sorts_nothing(app: Flask, path: str) -> None:
    # The second request revalidates the cached response.
    for _ in range(2):
        steps = plan_of_get(app, path)
        assert scanned(steps) == set()
        assert not is_sorted(steps)
        app.extensions["database"].transact(INVISIBLE_WRITE)


SCANS_NOTHING = {
    "installs": "/api/v1/widgets/acme/clock/installs?days=7",
    "import map": "/api/v1/widgets/importmap?compatSdk=1.4.0&widget=acme/clock&widget=a/b@1.0.0",
    "version": "/widgets/acme/clock/0.9.0",
    "comparison": "/widgets/acme/clock/compare?from=0.9.0&to=2.0.0",
    "scope": "/widgets/acme",
}


@pytest.mark.parametrize("path", SCANS_NOTHING.values(), ids=SCANS_NOTHING)
def test_read_that_may_sort_scans_no_table(app: Flask, path: str) -> None:
    assert scanned(plan_of_get(app, path)) == set()


WIDGET_PAGES = {
    "all SDKs": "/widgets/acme/clock",
    "one SDK": "/widgets/acme/clock?compatSdk=1.4.0&compatible=true&stable=true",
}


@pytest.mark.parametrize("path", WIDGET_PAGES.values(), ids=WIDGET_PAGES)
def test_page_of_a_widget_scans_no_table(app: Flask, path: str) -> None:
    assert scanned(plan_of_get(app, path)) == set()


BROWSE_QUERIES: dict[str, dict[str, str]] = {
    "all": {},
    "scope": {"scope": "acme"},
    "permission and licence": {"permission": "network", "license": "MIT"},
    "words": {"q": "clock", "license": "MIT"},
    "compatible": {**COMPATIBLE, "permission": "(none)"},
    "no results": {"q": "cluck"},
}


@pytest.mark.parametrize("query", BROWSE_QUERIES.values(), ids=BROWSE_QUERIES)
def test_browse_page_scans_only_the_listing(app: Flask, query: dict[str, str]) -> None:
    steps = plan_of_get(app, "/", **query)
    assert scanned(steps) <= {"listing", "sdk_interval"}
    # The permissions for an SDK too.
    assert "SEARCH version USING INDEX version_newest (widget_id=?)" not in steps


@pytest.mark.parametrize("query", [{}, {"scope": "acme"}, {"license": "MIT"}, {"official": 0}])
def test_filters_are_counted_in_indexes_alone(app: Flask, query: dict[str, Any]) -> None:
    search = replace(parse_search({}), **query)
    steps = plan(app, lambda connection: find_facets(connection, search))
    reads = [step for step in steps if "listing" in step]
    assert reads
    assert [step for step in reads if "COVERING INDEX" not in step] == []


def test_export_reads_widgets_and_versions_in_order(app: Flask) -> None:
    steps = plan(app, lambda connection: list(catalog_lines(connection)))
    assert scanned(steps) <= {"widget"}
    assert not is_sorted(steps)


WRITES = {
    "install": COUNT_INSTALL,
    "widget": PUT_WIDGET,
    "version": PUT_VERSION,
    **{f"refresh {number}": sql for number, sql in enumerate(REFRESH)},
}


@pytest.mark.parametrize("sql", WRITES.values(), ids=WRITES)
def test_write_scans_no_table(app: Flask, sql: str) -> None:
    connection: Connection = app.extensions["database"].reader()
    values = dict.fromkeys(re.findall(r":(\w+)", sql))
    assert scanned(explain(connection, sql, values)) == set()
