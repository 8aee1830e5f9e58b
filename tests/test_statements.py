"""How many SQL statements an answer costs, made and kept: what no noise can change."""

from collections.abc import Callable
from itertools import groupby

import pytest
from builders import document, version
from flask import Flask

CATALOG = [
    document(f"acme/widget-{n}", version("1.0.0"), version("2.0.0"), displayName=f"Widget {n}")
    for n in range(30)
]
KEPT = {
    "browse": "/api/v1/widgets/search",
    "words": "/api/v1/widgets/search?q=widget",
    "short word": "/api/v1/widgets/search?q=wi",
    "words and SDK": "/api/v1/widgets/search?q=widget&compatSdk=1.4.0&scope=acme&official=false",
    "largest page": "/api/v1/widgets/search?limit=100",
    "detail": "/api/v1/widgets/acme/widget-1",
    "registry": "/api/widgets/acme/registry.json",
}


def statements(app: Flask, request: Callable[[], object], *, commit: bool = True) -> list[str]:
    """What SQLite is asked while the request is answered."""
    database = app.extensions["database"]
    # The text index reads its settings once, when it is first asked.
    database.reader().execute("SELECT 1 FROM listing_text WHERE listing_text MATCH 'oth'")
    if commit:  # which opens the connection to write with
        database.write([("UPDATE widget SET icon = icon WHERE id = -1", {})])
    connections = [database.reader()]
    if database._writer:
        connections.append(database._writer)
    seen: list[str] = []
    for connection in connections:
        connection.set_trace_callback(seen.append)
    try:
        request()
    finally:
        for connection in connections:
            connection.set_trace_callback(None)
    # A statement that sets off triggers is told again for each, and what the text index asks of
    # its own tables begins as a comment. The data version is no read of the catalog.
    apart = ("--", "PRAGMA data_version")
    return [sql for sql, _ in groupby(seen) if not sql.startswith(apart)]


@pytest.mark.parametrize("path", KEPT.values(), ids=KEPT)
def test_a_kept_answer_is_given_without_a_statement(
    app_with: Callable[..., Flask], path: str
) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    assert statements(app, lambda: None) == []
    assert statements(app, lambda: client.get(path), commit=False) != []
    assert statements(app, lambda: client.get(path), commit=False) == []


@pytest.mark.parametrize(("kind", "most"), [("detail", 1), ("registry", 4)])
def test_a_detail_and_a_small_registry_take_few_statements(
    app_with: Callable[..., Flask], kind: str, most: int
) -> None:
    app = app_with(*CATALOG)
    assert len(statements(app, lambda: app.test_client().get(KEPT[kind]))) <= most


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
def test_a_search_is_one_statement(app_with: Callable[..., Flask], query: dict[str, str]) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    path = "/api/v1/widgets/search"
    assert len(statements(app, lambda: client.get(path, query_string=query))) <= 1


@pytest.mark.parametrize("path", KEPT.values(), ids=KEPT)
def test_just_after_a_commit_a_kept_answer_is_confirmed_with_one_statement(
    app_with: Callable[..., Flask], path: str
) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    etag = client.get(path).headers["ETag"]
    app.extensions["database"].write([("UPDATE recent_install SET revision = -1", {})])

    def ask() -> None:
        assert client.get(path, headers={"If-None-Match": etag}).status_code == 304

    assert len(statements(app, ask, commit=False)) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/widgets/search?q=clock",
        "/api/v1/widgets/search?scope=other",
        "/api/v1/widgets/search?limit=2",
    ],
    ids=["with other words", "in another scope", "with more installs"],
)
def test_a_page_is_not_made_anew_for_an_install_that_does_not_touch_it(
    app_with: Callable[..., Flask], path: str
) -> None:
    popular = [document(f"other/clock-{n}", displayName="Clock", downloadCount=50) for n in "ab"]
    app = app_with(*CATALOG, *popular)
    client = app.test_client()
    client.get(path)
    client.post("/api/v1/widgets/acme/widget-1")
    assert len(statements(app, lambda: client.get(path), commit=False)) <= 1
    assert len(client.get(path).json["widgets"]) == 2


def test_an_install_is_one_statement(app_with: Callable[..., Flask]) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    path = "/api/v1/widgets/acme/widget-1"
    assert len(statements(app, lambda: client.post(path))) == 1


def test_paths_without_a_catalog_ask_nothing(app_with: Callable[..., Flask]) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    for path in ("/api/version", "/api/settings", "/api/widgets/cli-version", "/api/none"):
        assert statements(app, lambda path=path: client.get(path)) == []
