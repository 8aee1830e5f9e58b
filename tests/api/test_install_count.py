"""POST /api/v1/widgets/{scope}/{name}: the download counter."""

import http.client
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from builders import document
from flask import Flask
from flask.testing import FlaskClient

from catalog.settings import DEFAULTS

Catalog = Callable[..., FlaskClient]
Apps = Callable[..., Flask]

CLOCK = "/api/v1/widgets/acme/clock"
# The greatest whole number that every JSON parser reads exactly.
GREATEST = 2**53 - 1
MAX_BODY_BYTES = int(DEFAULTS["MAX_BODY_BYTES"])
STORED_COUNTS = "SELECT scope || '/' || name, download_count FROM widget"


def count(client: FlaskClient) -> int | None:
    return client.get(CLOCK).json["widget"]["downloadCount"]


def stored_counts(app: Flask) -> dict[str, int | None]:
    """Return the counts in the file, including unlisted widgets."""
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection:
        return dict(connection.execute(STORED_COUNTS).fetchall())


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("before", "after"), [(None, 1), (0, 1), (41, 42), (GREATEST - 1, GREATEST)]
)
def test_install_adds_exactly_one(
    app_with: Apps, before: int | None, after: int, listed: bool
) -> None:
    app = app_with(document(listed=listed, downloadCount=before))
    response = app.test_client().post(CLOCK)
    assert (response.status_code, response.json) == (200, {"success": True})
    assert stored_counts(app) == {"acme/clock": after}


def test_count_does_not_exceed_the_greatest_number(app_with: Apps) -> None:
    app = app_with(document(downloadCount=GREATEST))
    assert app.test_client().post(CLOCK).status_code == 200
    assert stored_counts(app) == {"acme/clock": GREATEST}


@pytest.mark.parametrize("path", ["acme/other", "other/clock", "ACME/clock", "acme/clock%00"])
def test_install_of_a_missing_widget_is_404_and_counts_nothing(app_with: Apps, path: str) -> None:
    app = app_with(document(downloadCount=7))
    assert app.test_client().post(f"/api/v1/widgets/{path}").status_code == 404
    assert stored_counts(app) == {"acme/clock": 7}


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"json": {"downloadCount": 1000}}, id="JSON"),
        pytest.param({"data": b"{", "content_type": "application/json"}, id="broken JSON"),
        pytest.param({"data": b"x", "content_type": "multipart/form-data"}, id="broken form"),
        pytest.param({"data": b"\xff" * MAX_BODY_BYTES}, id="largest allowed"),
        pytest.param({"query_string": "by=5&page=x"}, id="query"),
    ],
)
def test_body_and_query_are_ignored(client_with: Catalog, request_: dict[str, Any]) -> None:
    client = client_with(document(downloadCount=7))
    assert client.post(CLOCK, **request_).status_code == 200
    assert count(client) == 8


def test_body_over_the_limit_is_413_and_not_counted(client_with: Catalog) -> None:
    client = client_with(document(downloadCount=7))
    response = client.post(CLOCK, data=b"x" * (MAX_BODY_BYTES + 1))
    assert response.status_code == 413
    assert str(MAX_BODY_BYTES) in response.json["error"]
    assert count(client) == 7


@pytest.mark.parametrize(("size", "status"), [(MAX_BODY_BYTES, 404), (MAX_BODY_BYTES + 1, 413)])
def test_limit_applies_to_a_chunked_body(server: Any, size: int, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    chunks = iter([b"x" * 1000] * (size // 1000) + [b"x" * (size % 1000)])
    headers = {"Transfer-Encoding": "chunked"}
    # No such widget, so that the shared server is not changed.
    connection.request("POST", "/api/v1/widgets/no/widget", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == status
    connection.close()


def test_concurrent_installs_are_all_counted(app_with: Apps) -> None:
    app = app_with(document(), document("acme/notes", downloadCount=3))

    def install(worker: int) -> set[int]:
        client = app.test_client()
        path = CLOCK if worker % 2 else "/api/v1/widgets/acme/notes"
        return {client.post(path).status_code for _ in range(25)}

    with ThreadPoolExecutor(max_workers=8) as workers:
        assert list(workers.map(install, range(8))) == [{200}] * 8
    assert stored_counts(app) == {"acme/clock": 100, "acme/notes": 103}


def test_install_at_the_limit_of_the_count_leaves_cached_responses_valid(app_with: Apps) -> None:
    app = app_with(document("acme/clock", downloadCount=2**53 - 1))
    client, database = app.test_client(), app.extensions["database"]
    before = database.fetch("SELECT content FROM revision", {})[0][0]
    assert client.post(CLOCK).status_code == 200
    assert count(client) == 2**53 - 1
    assert client.get(f"{CLOCK}/installs").json["days"][0]["installs"] == 1
    assert client.post(CLOCK).status_code == 200
    assert client.get(f"{CLOCK}/installs").json["days"][0]["installs"] == 2
    assert database.fetch("SELECT content FROM revision", {})[0][0] == before
