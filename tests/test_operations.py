"""The operational endpoints: health, version, cli-version, stats, settings."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from flask import Flask
from flask.testing import FlaskClient

import catalog
from app import create_app

Catalog = Callable[..., FlaskClient]

ENDPOINTS = {
    "/api/health": ["status"],
    "/api/version": ["version"],
    "/api/widgets/cli-version": ["minimumVersion"],
    "/api/stats": ["scopes", "widgets", "versions", "downloads", "official"],
    "/api/settings": ["search", "rateLimit"],
}


@pytest.fixture
def client_of() -> Iterator[Callable[[Path], FlaskClient]]:
    """A client of the app on a file that no one made a catalog of."""
    apps = []

    def make(path: Path) -> FlaskClient:
        apps.append(create_app({"DATABASE": path}))
        return apps[-1].test_client()

    yield make
    for app in apps:
        app.extensions["database"].close()


def assert_unavailable(client: FlaskClient) -> None:
    answer = client.get("/api/health")
    assert answer.status_code == 503
    assert list(answer.json) == ["status", "error"]
    assert answer.json["status"] == "unavailable"
    assert answer.json["error"]
    # A stranger may ask: where the file lies is for the log.
    assert ".db" not in answer.text


def stats(client: FlaskClient) -> dict[str, int]:
    return client.get("/api/stats").json


@pytest.mark.parametrize(("path", "keys"), ENDPOINTS.items())
def test_endpoint_answers_json_without_a_session(
    demo: FlaskClient, path: str, keys: list[str]
) -> None:
    answer = demo.get(path)
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    assert list(answer.json) == keys


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_no_cors_header_whatever_the_method(demo: FlaskClient, path: str, method: str) -> None:
    origin = {"Origin": "https://example.com", "Access-Control-Request-Method": "GET"}
    answer = demo.open(path, method=method, headers=origin)
    assert not [name for name, _ in answer.headers if name.startswith("Access-Control-")]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_head_has_the_headers_of_get_and_no_body(demo: FlaskClient, path: str) -> None:
    got, head = demo.get(path), demo.head(path)
    assert (head.status_code, head.data, head.headers) == (200, b"", got.headers)


def test_health_of_a_catalog_is_ok(client_with: Catalog) -> None:
    answer = client_with().get("/api/health")
    assert (answer.status_code, answer.json) == (200, {"status": "ok"})


def test_health_is_503_where_there_is_no_file(
    client_of: Callable[[Path], FlaskClient], tmp_path: Path
) -> None:
    assert_unavailable(client_of(tmp_path / "none.db"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"x", b"not a database\n" * 1000, b"SQLite format 3\0" + b"x" * 5000]
)
def test_health_is_503_where_the_file_is_no_database(
    client_of: Callable[[Path], FlaskClient], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "broken.db"
    path.write_bytes(content)
    assert_unavailable(client_of(path))
    assert path.read_bytes() == content


def test_health_is_503_where_the_database_is_not_a_catalog(
    client_of: Callable[[Path], FlaskClient], tmp_path: Path
) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE widget (id)")
    connection.close()
    assert_unavailable(client_of(tmp_path / "other.db"))


def test_health_is_503_where_the_path_cannot_be_looked_at(
    client_of: Callable[[Path], FlaskClient], tmp_path: Path
) -> None:
    # As a directory without permission would be, but to root as well.
    assert_unavailable(client_of(tmp_path / ("x" * 300 + ".db")))


def test_health_is_503_once_the_file_is_removed(app_with: Callable[..., Flask]) -> None:
    app = app_with(document())
    client = app.test_client()
    assert client.get("/api/health").status_code == 200
    app.config["DATABASE"].unlink()
    assert_unavailable(client)


def test_health_is_ok_again_once_the_file_is_back(app_with: Callable[..., Flask]) -> None:
    app = app_with(document())
    file: Path = app.config["DATABASE"]
    file.rename(file.with_suffix(".away"))
    client = app.test_client()
    assert_unavailable(client)
    file.with_suffix(".away").rename(file)
    assert client.get("/api/health").json == {"status": "ok"}


def test_version_is_that_of_the_service(client_with: Catalog) -> None:
    assert client_with().get("/api/version").json == {"version": catalog.__version__}


def test_cli_version_has_a_default(client_with: Catalog) -> None:
    answer = client_with().get("/api/widgets/cli-version")
    assert answer.json == {"minimumVersion": "1.0.0"}


@pytest.mark.parametrize("number", ["2.3.4", "0.0.0-rc.1+build", "10.0.0"])
def test_cli_version_is_the_one_configured(client_with: Catalog, number: str) -> None:
    client = client_with(MINIMUM_CLI_VERSION=number)
    assert client.get("/api/widgets/cli-version").json == {"minimumVersion": number}


def test_cli_version_is_the_one_of_the_environment(
    client_with: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_MINIMUM_CLI_VERSION", "2.0.0")
    assert client_with().get("/api/widgets/cli-version").json == {"minimumVersion": "2.0.0"}


def test_stats_of_an_empty_catalog_are_zeros(client_with: Catalog) -> None:
    expected = {"scopes": 0, "widgets": 0, "versions": 0, "downloads": 0, "official": 0}
    # As text: a sum over nothing would be null, and one of reals 0.0.
    assert json.dumps(stats(client_with())) == json.dumps(expected)


def test_stats_are_over_listed_widgets_only(client_with: Catalog) -> None:
    many = [version(f"{n}.0.0", yanked=n == 1) for n in range(1, 6)]
    client = client_with(
        document("acme/clock", *many[:2], isOfficial=True, downloadCount=10),
        document("acme/notes", *many[:3], isOfficial=False, downloadCount=None),
        document("acme/hidden", *many, isOfficial=True, downloadCount=1000, listed=False),
        document("labs/bare", isOfficial=True, downloadCount=5),
        document("labs/other", *many[:1], isOfficial=None, downloadCount=0),
        document("secret/hidden", *many, isOfficial=True, downloadCount=1000, listed=False),
    )
    expected = {"scopes": 2, "widgets": 4, "versions": 6, "downloads": 15, "official": 2}
    assert json.dumps(stats(client)) == json.dumps(expected)


def test_stats_of_unlisted_widgets_alone_are_zeros(client_with: Catalog) -> None:
    client = client_with(document("acme/clock", version(), listed=False, downloadCount=3))
    assert set(stats(client).values()) == {0}


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        pytest.param({"downloadCount": 3}, 1, id="count"),
        pytest.param({"downloadCount": None}, 1, id="null"),
        pytest.param({"downloadCount": 3, "listed": False}, 0, id="unlisted"),
    ],
)
def test_install_shows_in_the_downloads(
    client_with: Catalog, fields: dict[str, Any], added: int
) -> None:
    client = client_with(document(**fields), document("acme/notes", downloadCount=4))
    before = stats(client)
    client.post("/api/v1/widgets/acme/clock")
    assert stats(client) == {**before, "downloads": before["downloads"] + added}


@pytest.mark.parametrize("widgets", [3, 1025], ids=["over 53 bits", "over 64 bits"])
def test_downloads_are_exact_however_many(client_with: Catalog, widgets: int) -> None:
    greatest = 2**53 - 1
    client = client_with(*(document(f"acme/w{n}", downloadCount=greatest) for n in range(widgets)))
    assert stats(client)["downloads"] == greatest * widgets


def test_stats_are_counted_once_until_the_catalog_changes(app_with: Callable[..., Flask]) -> None:
    app = app_with(document())
    client = app.test_client()
    before = stats(client)
    statements: list[str] = []
    connection = app.extensions["database"].reader()
    connection.set_trace_callback(statements.append)
    assert stats(client) == before
    assert not [sql for sql in statements if "listing" in sql]
    client.post("/api/v1/widgets/acme/clock")
    assert stats(client) == {**before, "downloads": 1}


def test_stats_have_neither_an_etag_nor_a_cache_control(client_with: Catalog) -> None:
    client = client_with(document())
    for _ in range(2):
        answer = client.get("/api/stats", headers={"If-None-Match": "*"})
        assert answer.status_code == 200
        assert {"ETag", "Cache-Control"}.isdisjoint(answer.headers.keys())


@pytest.mark.parametrize("exists", [True, False])
def test_health_is_not_to_be_stored(app_with: Callable[..., Flask], exists: bool) -> None:
    app = app_with(document())
    if not exists:
        app.config["DATABASE"].unlink()
    answer = app.test_client().get("/api/health")
    assert (answer.status_code == 200) is exists
    assert answer.headers["Cache-Control"] == "no-store"


def test_settings_tell_the_limits_of_search(client_with: Catalog) -> None:
    client = client_with(*(document(f"acme/w{n}") for n in range(101)))
    answer = client.get("/api/settings").json
    assert answer == {"search": {"defaultLimit": 20, "maxLimit": 100}, "rateLimit": None}
    assert len(client.get("/api/v1/widgets/search").json["widgets"]) == 20
    assert client.get("/api/v1/widgets/search?limit=1000").json["limit"] == 100
