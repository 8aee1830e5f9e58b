"""Upper bounds for the number of SQL statements of a request."""

from collections.abc import Callable
from itertools import groupby

import pytest
from builders import document, version
from conftest import running
from flask import Flask

CATALOG = [
    document(f"acme/widget-{n}", version("1.0.0"), version("2.0.0"), displayName=f"Widget {n}")
    for n in range(30)
]
CACHED = {
    "browse": "/api/v1/widgets/search",
    "words": "/api/v1/widgets/search?q=widget",
    "short word": "/api/v1/widgets/search?q=wi",
    "words and SDK": "/api/v1/widgets/search?q=widget&compatSdk=1.4.0&scope=acme&official=false",
    "largest page for an SDK": "/api/v1/widgets/search?limit=100&compatSdk=1.4.0",
    "compatible": "/api/v1/widgets/search?compatSdk=1.4.0&compatible=true",
    "by name": "/api/v1/widgets/search?sort=name",
    "updates": "/api/v1/widgets/updates?compatSdk=1.4.0&installed=acme/widget-1@1.0.0",
    "version": "/api/v1/widgets/acme/widget-1/latest?compatSdk=1.4.0",
    "installs": "/api/v1/widgets/acme/widget-1/installs",
    "detail": "/api/v1/widgets/acme/widget-1",
    "registry": "/api/widgets/acme/registry.json",
}


AppWith = Callable[..., Flask]
Count = Callable[..., int]


@pytest.fixture
def count_statements(statements: list[str]) -> Count:
    """Counts the SQL statements that SQLite runs for a request, on any connection."""

    def count(app: Flask, request: Callable[[], object], *, commit: bool = True) -> int:
        database = app.extensions["database"]
        # FTS5 reads its configuration before its first query.
        database.reader().execute("SELECT 1 FROM listing_text WHERE listing_text MATCH 'oth'")
        if commit:
            # This also opens the connection that writes.
            database.transact(running("UPDATE widget SET icon = icon WHERE id = -1"))
        statements.clear()
        request()
        # SQLite repeats a statement for each trigger that it fires.
        return len([*groupby(statements)])

    return count


@pytest.mark.parametrize("path", CACHED.values(), ids=CACHED)
def test_cached_response_needs_no_statement(
    app_with: AppWith, count_statements: Count, path: str
) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    assert count_statements(app, lambda: None) == 0
    assert count_statements(app, lambda: client.get(path), commit=False) > 0
    assert count_statements(app, lambda: client.get(path), commit=False) == 0


@pytest.mark.parametrize("path", CACHED.values(), ids=CACHED)
def test_cached_response_is_revalidated_with_one_statement_after_an_install_of_another_widget(
    app_with: AppWith, count_statements: Count, path: str
) -> None:
    app = app_with(*CATALOG, document("other/clock", listed=False))
    client = app.test_client()
    etag = client.get(path).headers["ETag"]
    client.post("/api/v1/widgets/other/clock")

    def revalidate() -> None:
        assert client.get(path, headers={"If-None-Match": etag}).status_code == 304

    assert count_statements(app, revalidate, commit=False) == 1


@pytest.mark.parametrize("query", ["q=clock", "scope=other", "limit=2"])
def test_install_does_not_invalidate_a_page_without_its_widget(
    app_with: AppWith, count_statements: Count, query: str
) -> None:
    path = f"/api/v1/widgets/search?{query}"
    popular = [document(f"other/clock-{n}", displayName="Clock", downloadCount=50) for n in "ab"]
    app = app_with(*CATALOG, *popular)
    client = app.test_client()
    client.get(path)
    client.post("/api/v1/widgets/acme/widget-1")
    assert count_statements(app, lambda: client.get(path), commit=False) <= 1
    assert len(client.get(path).json["widgets"]) == 2


SEARCH = "/api/v1/widgets/search?"
# How many statements a request may need when nothing is cached.
LIMITS = {
    **dict.fromkeys((path for path in CACHED.values() if path.startswith(SEARCH[:-1])), 1),
    SEARCH + "q=w+i+d+g+e+t+0+1+2+3+4+5": 1,
    SEARCH + "page=2&limit=20": 1,
    SEARCH + "compatSdk=9.0.0&limit=100": 1,
    SEARCH + "q=widget&compatSdk=1.4.0&compatible=true": 1,
    SEARCH + "q=widget&sort=name": 1,
    CACHED["detail"]: 1,
    CACHED["version"]: 1,
    CACHED["updates"]: 5,
    CACHED["registry"]: 4,
    "/api/version": 0,
    "/api/settings": 0,
    "/api/widgets/cli-version": 0,
    "/api/none": 0,
}


@pytest.mark.parametrize(("path", "limit"), LIMITS.items())
def test_read_needs_few_statements(
    app_with: AppWith, count_statements: Count, path: str, limit: int
) -> None:
    app = app_with(*CATALOG)
    assert count_statements(app, lambda: app.test_client().get(path)) <= limit


def test_install_needs_one_statement(app_with: AppWith, count_statements: Count) -> None:
    app = app_with(*CATALOG)
    assert count_statements(app, lambda: app.test_client().post(CACHED["detail"])) == 1
