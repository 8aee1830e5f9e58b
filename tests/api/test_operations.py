"""The operational endpoints: health, version, cli-version, stats, settings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document, version
from flask import Flask
from flask.testing import FlaskClient

import catalog

Catalog = Callable[..., FlaskClient]


def stats(client: FlaskClient) -> dict[str, int]:
    numbers: dict[str, int] = client.get("/api/stats").get_json()
    return numbers


BROKEN_FILES = {
    "none": None,
    "empty": b"",
    "no database": b"not a database\n" * 1000,
    "damaged": b"SQLite format 3\0" + b"x" * 5000,
}


@pytest.mark.parametrize("content", BROKEN_FILES.values(), ids=BROKEN_FILES)
def test_health_is_503_without_a_database(
    app_with: Callable[..., Flask], content: bytes | None
) -> None:
    app = app_with()
    path: Path = app.config["DATABASE"]
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    response = app.test_client().get("/api/health")
    assert (response.status_code, response.headers["Cache-Control"]) == (503, "no-store")
    assert list(response.get_json()) == ["status", "error"]
    assert response.json["status"] == "unavailable"
    # The path of the file is not public.
    assert ".db" not in response.text
    assert (path.read_bytes() if path.exists() else None) == content


def test_health_is_503_after_the_file_was_removed(app_with: Callable[..., Flask]) -> None:
    app = app_with()
    assert app.test_client().get("/api/health").json == {"status": "ok"}
    app.config["DATABASE"].unlink()
    assert app.test_client().get("/api/health").status_code == 503


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


def test_sum_of_downloads_over_64_bits_is_no_error(client_with: Catalog) -> None:
    greatest = 2**53 - 1
    client = client_with(*(document(f"acme/w{n}", downloadCount=greatest) for n in range(1025)))
    assert stats(client)["downloads"] == pytest.approx(greatest * 1025, rel=0.01)


def test_settings_show_the_limits_of_search(client_with: Catalog) -> None:
    body = client_with().get("/api/settings").json
    assert body == {"search": {"defaultLimit": 20, "maxLimit": 100}, "rateLimit": None}
