"""The operational endpoints: health, version, cli-version, stats, settings."""

import json
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


@pytest.fixture
def client_of() -> Iterator[Callable[[Path], FlaskClient]]:
    """Return a function that creates a client of a service on the path."""
    apps = []

    def make(path: Path) -> FlaskClient:
        apps.append(create_app({"DATABASE": path}))
        return apps[-1].test_client()

    yield make
    for app in apps:
        app.extensions["database"].close()


def assert_unavailable(client: FlaskClient) -> None:
    response = client.get("/api/health")
    assert response.status_code == 503
    assert list(response.json) == ["status", "error"]
    assert response.json["status"] == "unavailable"
    assert response.json["error"]
    # The path of the file is not public.
    assert ".db" not in response.text


def stats(client: FlaskClient) -> dict[str, int]:
    return client.get("/api/stats").json


def test_health_is_503_without_a_file(
    client_of: Callable[[Path], FlaskClient], tmp_path: Path
) -> None:
    assert_unavailable(client_of(tmp_path / "none.db"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"x", b"not a database\n" * 1000, b"SQLite format 3\0" + b"x" * 5000]
)
def test_health_is_503_if_the_file_is_no_database(
    client_of: Callable[[Path], FlaskClient], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "broken.db"
    path.write_bytes(content)
    assert_unavailable(client_of(path))
    assert path.read_bytes() == content


def test_health_is_503_if_the_path_is_not_accessible(
    client_of: Callable[[Path], FlaskClient], tmp_path: Path
) -> None:
    # A name that is too long, since root may access every directory.
    assert_unavailable(client_of(tmp_path / ("x" * 300 + ".db")))


def test_health_is_503_after_the_file_was_removed(app_with: Callable[..., Flask]) -> None:
    app = app_with(document())
    client = app.test_client()
    assert client.get("/api/health").status_code == 200
    app.config["DATABASE"].unlink()
    assert_unavailable(client)


def test_version_is_that_of_the_service(client_with: Catalog) -> None:
    assert client_with().get("/api/version").json == {"version": catalog.__version__}


def test_stats_of_an_empty_catalog_are_zeros(client_with: Catalog) -> None:
    expected = {"scopes": 0, "widgets": 0, "versions": 0, "downloads": 0, "official": 0}
    # As text, which distinguishes 0 from 0.0.
    assert json.dumps(stats(client_with())) == json.dumps(expected)


def test_stats_count_only_listed_widgets(client_with: Catalog) -> None:
    versions = [version(f"{n}.0.0", yanked=n == 1) for n in range(1, 6)]
    client = client_with(
        document("acme/clock", *versions[:2], isOfficial=True, downloadCount=10),
        document("acme/notes", *versions[:3], isOfficial=False, downloadCount=None),
        document("acme/hidden", *versions, isOfficial=True, downloadCount=1000, listed=False),
        document("labs/bare", isOfficial=True, downloadCount=5),
        document("labs/other", *versions[:1], isOfficial=None, downloadCount=0),
        document("secret/hidden", *versions, isOfficial=True, downloadCount=1000, listed=False),
    )
    expected = {"scopes": 2, "widgets": 4, "versions": 6, "downloads": 15, "official": 2}
    assert json.dumps(stats(client)) == json.dumps(expected)


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        pytest.param({"downloadCount": 3}, 1, id="count"),
        pytest.param({"downloadCount": None}, 1, id="null"),
        pytest.param({"downloadCount": 3, "listed": False}, 0, id="unlisted"),
    ],
)
def test_install_increments_the_downloads(
    client_with: Catalog, fields: dict[str, Any], added: int
) -> None:
    client = client_with(document(**fields), document("acme/notes", downloadCount=4))
    before = stats(client)
    client.post("/api/v1/widgets/acme/clock")
    assert stats(client) == {**before, "downloads": before["downloads"] + added}


@pytest.mark.parametrize("widgets", [3, 1025], ids=["over 53 bits", "over 64 bits"])
def test_sum_of_downloads_that_a_client_could_not_read_exactly_is_no_error(
    client_with: Catalog, widgets: int
) -> None:
    greatest = 2**53 - 1
    client = client_with(*(document(f"acme/w{n}", downloadCount=greatest) for n in range(widgets)))
    assert stats(client)["downloads"] == pytest.approx(greatest * widgets, rel=0.01)


@pytest.mark.parametrize("exists", [True, False])
def test_health_must_not_be_stored(app_with: Callable[..., Flask], exists: bool) -> None:
    app = app_with(document())
    if not exists:
        app.config["DATABASE"].unlink()
    response = app.test_client().get("/api/health")
    assert (response.status_code == 200) is exists
    assert response.headers["Cache-Control"] == "no-store"


def test_settings_show_the_limits_of_search(client_with: Catalog) -> None:
    client = client_with(*(document(f"acme/w{n}") for n in range(101)))
    body = client.get("/api/settings").json
    assert body == {"search": {"defaultLimit": 20, "maxLimit": 100}, "rateLimit": None}
    assert len(client.get("/api/v1/widgets/search").json["widgets"]) == 20
    assert client.get("/api/v1/widgets/search?limit=1000").json["limit"] == 100
