"""Errors beyond the contract of each route: long values, a failing database."""

import json
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import Server, run_on
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app import create_app

V1 = "/api/v1/widgets/"
CLOCK = V1 + "acme/clock"
REGISTRY = "/api/widgets/acme/registry.json"

LONG_VALUES = {
    "method": ("F" * 10_000, CLOCK, 405),
    "widget": ("GET", V1 + "%F0%9F%98%80" * 1_000 + "/x", 404),
    "scope": ("GET", "/api/widgets/" + "%F0%9F%98%80" * 1_000 + "/registry.json", 404),
}


def assert_error(response: TestResponse, status: int) -> str:
    """Check status, shape and CORS header of an error, and return its message."""
    assert response.status_code == status
    assert list(response.get_json()) == ["error"]
    is_v1 = response.request.path.startswith(V1)
    assert response.headers.get("Access-Control-Allow-Origin") == ("*" if is_v1 else None)
    message: str = response.json["error"]
    assert len(message) < 250
    return message


@pytest.fixture
def without_database(tmp_path: Path) -> FlaskClient:
    return create_app({"DATABASE": tmp_path / "none.db"}).test_client()


@pytest.fixture
def catalog(client_with: Callable[..., FlaskClient]) -> FlaskClient:
    return client_with(document("acme/clock", version()))


def test_value_in_a_message_has_no_control_characters(catalog: FlaskClient) -> None:
    # They are a control sequence of terminals, and one that reverses the text after it.
    response = catalog.get(f"{V1}search?sort=%C2%9B31m%E2%80%AE")
    assert assert_error(response, 400).endswith(r", not '\x9b31m\u202e'.")


def change(client: FlaskClient, *statements: str) -> None:
    """Run statements on the file of the catalog, as another program would."""
    path = client.application.config["DATABASE"]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(("method", "path", "status"), LONG_VALUES.values(), ids=LONG_VALUES)
def test_long_value_is_cut_in_the_message(
    catalog: FlaskClient, method: str, path: str, status: int
) -> None:
    assert_error(catalog.open(path, method=method), status)


def test_query_in_raw_utf8_is_accepted(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"GET {V1}search?q=天気&limit=1 HTTP/1.0\r\n\r\n".encode())
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.split()[1] == b"200"
    assert [widget["name"] for widget in json.loads(body)["widgets"]] == ["tenki-yoho"]


@pytest.mark.parametrize("path", [V1 + "search", CLOCK, REGISTRY])
def test_unexpected_failure_does_not_reveal_its_cause(catalog: FlaskClient, path: str) -> None:
    change(catalog, "DROP VIEW version_entry", "DROP TABLE summary")
    message = assert_error(catalog.get(path), 500)
    assert not any(word in message for word in ("table", "version_entry", "Traceback", "sqlite"))


def test_failed_write_is_an_error_and_changes_nothing(catalog: FlaskClient) -> None:
    before = catalog.get(CLOCK).json
    refuse = "CREATE TRIGGER refuse AFTER UPDATE ON widget BEGIN SELECT RAISE(ABORT, 'no'); END"
    change(catalog, refuse)
    assert_error(catalog.post(CLOCK), 500)
    change(catalog, "DROP TRIGGER refuse")
    assert catalog.get(CLOCK).json == before
    assert catalog.post(CLOCK).json == {"success": True}


def test_client_cannot_forge_log_lines(
    catalog: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    rename = "UPDATE widget SET name = 'clock' || char(10) || 'ERROR: forged'"
    change(catalog, "DROP TRIGGER widget_renamed", rename, "DROP VIEW version_entry")
    assert_error(catalog.get(CLOCK + "%0AERROR: forged"), 500)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((f"/api/{name}", 200) for name in ("version", "settings", "widgets/cli-version")),
        *(("/api/me", 401), (V1 + "search?page=0", 400), (V1 + "none", 404)),
    ],
)
def test_paths_without_catalog_data_work_without_a_database(
    without_database: FlaskClient, path: str, status: int
) -> None:
    assert without_database.get(path).status_code == status


def test_database_that_appears_is_served_without_a_restart(without_database: FlaskClient) -> None:
    assert without_database.get(V1 + "search").status_code == 503
    assert run_on(without_database.application.config["DATABASE"], "init").exit_code == 0
    assert without_database.get(V1 + "search").json["total"] == 0
    without_database.application.extensions["database"].close()
