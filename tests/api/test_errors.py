"""Errors: one JSON object with one key, for every path family and every status."""

import json
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import Server
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app import create_app
from catalog.store.connection.database import Database

V1 = "/api/v1/widgets/"
CLOCK = V1 + "acme/clock"
REGISTRY = "/api/widgets/acme/registry.json"
LARGE = {"data": b"x" * 4097}

ERRORS = [
    (400, "GET", V1 + "search?compatSdk=one", {}),
    (400, "GET", V1 + "search?official=perhaps", {}),
    (400, "GET", V1 + "search?limit=0", {}),
    (401, "GET", "/api/me", {}),
    (401, "POST", "/api/widgets", LARGE),
    (404, "GET", V1 + "acme/none", {}),
    (404, "POST", V1 + "acme/none", {}),
    (404, "GET", V1 + "none", {}),
    (404, "GET", "/api/widgets/none/registry.json", {}),
    (404, "GET", "/api/v1/other", {}),
    (404, "GET", "/api/stats/", {}),
    (405, "PUT", CLOCK, {}),
    (405, "POST", REGISTRY, {}),
    (405, "DELETE", "/api/health", {}),
    (413, "POST", CLOCK, LARGE),
]

# Segments of paths that lead to no widget, scope or internal path.
UNUSUAL_SEGMENTS = {
    "bad escape": "%zz",
    "not UTF-8": "%FF%FE",
    "surrogate": "%ED%A0%80",
    "NUL": "a%00b",
    "newline": "a%0D%0Ab",
    "quotes": "%22%27%3Cb%3E",
    "10 kB": "a" * 10_000,
    "4 kB of emoji": "%F0%9F%98%80" * 1_000,
}


def assert_error(response: TestResponse, status: int) -> str:
    """Check the shape of the error, and return its message."""
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    assert list(response.json) == ["error"]
    message = response.json["error"]
    assert isinstance(message, str)
    assert message.strip() == message != ""
    return message


@pytest.fixture
def without_database(tmp_path: Path) -> FlaskClient:
    return create_app({"DATABASE": tmp_path / "none.db"}).test_client()


@pytest.fixture
def catalog(client_with: Callable[..., FlaskClient]) -> FlaskClient:
    return client_with(document("acme/clock", version()))


def change(client: FlaskClient, *statements: str) -> None:
    """Run statements on the file of the catalog, as another program would."""
    connection = sqlite3.connect(client.application.config["DATABASE"], isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("status", "method", "path", "body"),
    ERRORS,
    ids=[f"{status} {method} {path}" for status, method, path, _ in ERRORS],
)
def test_error_is_one_json_object_with_one_key(
    catalog: FlaskClient, status: int, method: str, path: str, body: dict[str, Any]
) -> None:
    for accept in ("*/*", "text/html"):
        headers = {"Accept": accept}
        assert_error(catalog.open(path, method=method, headers=headers, **body), status)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [(method, path, body) for _, method, path, body in ERRORS if path.startswith(V1)],
)
def test_error_of_the_versioned_api_must_be_revalidated(
    catalog: FlaskClient, method: str, path: str, body: dict[str, Any]
) -> None:
    headers = catalog.open(path, method=method, **body).headers
    assert headers.getlist("Cache-Control") == ["no-cache"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *((method, path) for _, method, path, _ in ERRORS),
        *(("OPTIONS", path) for path in (CLOCK, REGISTRY, "/", "/api/me")),
        *(("GET", path) for path in (CLOCK, REGISTRY, "/api/stats", "/", "/none", "/openapi.json")),
        *(("GET", path) for path in ("/docs", "/static/catalog.css", "/static/none")),
    ],
)
def test_every_response_has_nosniff(catalog: FlaskClient, method: str, path: str) -> None:
    with catalog.open(path, method=method) as response:
        assert response.headers.getlist("X-Content-Type-Options") == ["nosniff"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (V1 + "{}/x", 404),
        (V1 + "{}", 404),
        ("/api/widgets/{}/registry.json", 404),
        ("/api/{}", 401),
    ],
)
@pytest.mark.parametrize("segment", UNUSUAL_SEGMENTS.values(), ids=UNUSUAL_SEGMENTS.keys())
def test_unusual_path_gives_a_short_error_message(
    server: Server, segment: str, path: str, status: int
) -> None:
    response, body = server.request("GET", path.format(segment))
    assert response.status == status
    assert response.headers["Content-Type"] == "application/json"
    error = json.loads(body)
    assert list(error) == ["error"]
    assert len(error["error"]) < 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("F" * 10_000, CLOCK),
        ("GET", V1 + "search?page=" + "9x" * 5_000),
        ("GET", V1 + "search?limit=-" + "9" * 10_000),
        ("GET", V1 + "search?official=" + "é" * 10_000),
        ("GET", V1 + "search?compatSdk=1.0.0-" + "a" * 10_000),
    ],
    ids=["method", "page", "limit", "official", "compatSdk"],
)
def test_a_long_value_is_cut_in_the_message(catalog: FlaskClient, method: str, path: str) -> None:
    response = catalog.open(path, method=method)
    assert len(assert_error(response, 405 if path == CLOCK else 400)) < 250


@pytest.mark.parametrize("value", ['"other"', "*"])
@pytest.mark.parametrize("path", [CLOCK, REGISTRY])
def test_only_a_success_contains_the_resource(catalog: FlaskClient, path: str, value: str) -> None:
    response = catalog.get(path, headers={"If-Match": value})
    assert (response.status_code == 200) is (list(response.json) != ["error"])


@pytest.mark.parametrize(
    "request_",
    [
        b"GET " + CLOCK.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"POST " + CLOCK.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999\r\n\r\n",
        b"POST " + CLOCK.encode() + b" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"get " + CLOCK.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["bad length", "huge length", "bad encoding", "lower case"],
)
def test_malformed_request_gives_a_json_error(server: Server, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request_)
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.split()[1][:1] in (b"4", b"5")
    assert b"content-type: application/json" in head.lower().split(b"\r\n")
    assert list(json.loads(body)) == ["error"]


def test_query_in_raw_utf8_is_accepted(server: Server) -> None:
    request_ = f"GET {V1}search?q=天気&limit=1 HTTP/1.0\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request_)
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.split()[1] == b"200"
    assert [widget["name"] for widget in json.loads(body)["widgets"]] == ["tenki-yoho"]


@pytest.mark.parametrize("path", [CLOCK, V1 + "search", REGISTRY])
def test_unexpected_failure_does_not_reveal_its_cause(catalog: FlaskClient, path: str) -> None:
    change(
        catalog,
        "DROP VIEW version_entry",
        "DROP TABLE summary",
    )
    message = assert_error(catalog.get(path), 500)
    assert not any(word in message for word in ("table", "version_entry", "Traceback", "sqlite"))


def test_a_failed_write_is_an_error_and_changes_nothing(catalog: FlaskClient) -> None:
    before = catalog.get(CLOCK).json
    change(
        catalog,
        "CREATE TRIGGER refuse AFTER UPDATE ON widget BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    assert_error(catalog.post(CLOCK), 500)
    change(catalog, "DROP TRIGGER refuse")
    assert catalog.get(CLOCK).json == before
    assert catalog.post(CLOCK).json == {"success": True}


def test_client_cannot_forge_log_lines(
    catalog: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    change(
        catalog,
        "DROP TRIGGER widget_renamed",
        "UPDATE widget SET name = 'clock' || char(10) || 'ERROR: forged'",
        "DROP VIEW version_entry",
    )
    assert_error(catalog.get(CLOCK + "%0AERROR: forged"), 500)
    assert len(caplog.records) == 1
    assert "\n" not in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", V1 + "search"),
        ("GET", CLOCK),
        ("POST", CLOCK),
        ("GET", REGISTRY),
        ("GET", "/api/stats"),
    ],
)
def test_missing_database_is_503_with_retry_after(
    without_database: FlaskClient, method: str, path: str
) -> None:
    response = without_database.open(path, method=method)
    assert "none.db" not in assert_error(response, 503)
    assert response.headers["Retry-After"] == "5"


def test_health_is_unavailable_without_a_database(
    without_database: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    response = without_database.get("/api/health")
    assert response.status_code == 503
    assert list(response.json) == ["status", "error"]
    assert response.json["status"] == "unavailable"
    assert "none.db" not in response.json["error"]
    # One line, no stack trace.
    assert [record.exc_info for record in caplog.records] == [None]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/version", 200),
        ("/api/settings", 200),
        ("/api/widgets/cli-version", 200),
        ("/api/me", 401),
        (V1 + "search?page=0", 400),
        (V1 + "none", 404),
    ],
)
def test_paths_without_catalog_data_work_without_a_database(
    without_database: FlaskClient, path: str, status: int
) -> None:
    assert without_database.get(path).status_code == status


def test_request_does_not_create_the_database(without_database: FlaskClient) -> None:
    without_database.post(CLOCK)
    without_database.get("/api/health")
    assert not Path(without_database.application.config["DATABASE"]).exists()


def test_a_database_that_appears_is_served_without_a_restart(without_database: FlaskClient) -> None:
    assert without_database.get(V1 + "search").status_code == 503
    Database(without_database.application.config["DATABASE"]).create()
    assert without_database.get(V1 + "search").json["total"] == 0
    without_database.application.extensions["database"].close()


def test_locked_database_refuses_installs_but_serves_reads(catalog: FlaskClient) -> None:
    path = catalog.application.config["DATABASE"]
    database = Database(path, busy_timeout_ms=1)
    catalog.application.extensions["database"] = database
    other = sqlite3.connect(catalog.application.config["DATABASE"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    response = catalog.post(CLOCK)
    assert_error(response, 503)
    assert response.headers["Retry-After"] == "5"
    assert catalog.get(CLOCK).status_code == 200
    other.execute("ROLLBACK")
    other.close()
    assert catalog.post(CLOCK).json == {"success": True}
    assert catalog.get(CLOCK).json["widget"]["downloadCount"] == 1
    database.close()
