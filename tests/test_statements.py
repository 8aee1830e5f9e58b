"""How many SQL statements a request runs, with and without a cached response."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask import Flask

from catalog.store import mirror_writes, writes

SEARCH = "/api/v1/widgets/search"
CATALOG = [
    document(f"acme/widget-{n}", version("1.0.0"), version("2.0.0"), displayName=f"Widget {n}")
    for n in range(30)
]
PATHS = {
    "browse": SEARCH,
    "words": f"{SEARCH}?q=widget",
    "short word": f"{SEARCH}?q=wi",
    "words and SDK": f"{SEARCH}?q=widget&compatSdk=1.4.0&scope=acme&official=false",
    "largest page": f"{SEARCH}?limit=100",
    "detail": "/api/v1/widgets/acme/widget-1",
    "registry": "/api/widgets/acme/registry.json",
}
# A commit that no response shows.
INVISIBLE_WRITE = mirror_writes.put_mirrored(
    [mirror_writes.MirroredWidget("acme", "widget-1", "https://a.example", None, None)]
)

AppWith = Callable[..., Flask]


def count_reads(app: Flask, request: Callable[[], object]) -> int:
    """Return the number of statements that read the catalog during the request."""
    connection = app.extensions["database"].reader()
    # Its first use makes the text index read its configuration.
    connection.execute("SELECT 1 FROM listing_text WHERE listing_text MATCH 'oth'")
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    try:
        request()
    finally:
        connection.set_trace_callback(None)
    # The statements of the text index itself are traced as comments. Reading the data version is
    # no read of the catalog.
    return sum(not sql.startswith(("--", "PRAGMA data_version")) for sql in statements)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_cached_response_needs_no_statement(app_with: AppWith, path: str) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    assert count_reads(app, lambda: client.get(path)) > 0
    assert count_reads(app, lambda: client.get(path)) == 0


@pytest.mark.parametrize(("kind", "limit"), [("detail", 1), ("registry", 4)])
def test_detail_and_small_registry_need_few_statements(
    app_with: AppWith, kind: str, limit: int
) -> None:
    app = app_with(*CATALOG)
    assert count_reads(app, lambda: app.test_client().get(PATHS[kind])) <= limit


SEARCHES: dict[str, dict[str, str]] = {
    "all": {},
    "words": {"q": "widget"},
    "two letters": {"q": "wi"},
    "many words": {"q": "w i d g e t 0 1 2 3 4 5"},
    "filters": {"q": "widget", "scope": "acme", "official": "false"},
    "a late page": {"page": "2", "limit": "20"},
    "largest page": {"limit": "100"},
    "SDK of the latest versions": {"compatSdk": "1.4.0", "limit": "100"},
    "SDK of no version": {"compatSdk": "9.0.0", "limit": "100"},
    "words and SDK": {"q": "widget", "compatSdk": "1.4.0"},
}


@pytest.mark.parametrize("query", SEARCHES.values(), ids=SEARCHES)
def test_search_is_one_statement(app_with: AppWith, query: dict[str, str]) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    assert count_reads(app, lambda: client.get(SEARCH, query_string=query)) <= 1


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_after_a_commit_a_cached_response_is_revalidated_with_one_statement(
    app_with: AppWith, path: str
) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    etag = client.get(path).headers["ETag"]
    app.extensions["database"].write(INVISIBLE_WRITE)

    def revalidate() -> None:
        assert client.get(path, headers={"If-None-Match": etag}).status_code == 304

    assert count_reads(app, revalidate) <= 1
    assert count_reads(app, revalidate) == 0


@pytest.mark.parametrize(
    "query",
    [{"q": "clock"}, {"scope": "other"}, {"limit": "2"}],
    ids=["with other words", "in another scope", "with more installs"],
)
def test_page_is_not_rendered_again_for_an_install_that_it_does_not_show(
    app_with: AppWith, query: dict[str, str]
) -> None:
    popular = [document(f"other/clock-{n}", displayName="Clock", downloadCount=50) for n in "ab"]
    app = app_with(*CATALOG, *popular)
    client = app.test_client()
    client.get(SEARCH, query_string=query)
    client.post("/api/v1/widgets/acme/widget-1")
    assert count_reads(app, lambda: client.get(SEARCH, query_string=query)) <= 1
    assert len(client.get(SEARCH, query_string=query).json["widgets"]) == 2


def test_install_is_one_statement() -> None:
    assert len(writes.count_install("acme", "widget-1")) == 1


@pytest.mark.parametrize(
    "path", ["/api/version", "/api/settings", "/api/widgets/cli-version", "/api/none"]
)
def test_path_without_catalog_data_runs_no_statement(app_with: AppWith, path: str) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    assert count_reads(app, lambda: client.get(path)) == 0
