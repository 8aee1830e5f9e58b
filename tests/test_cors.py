"""CORS: one Access-Control-Allow-Origin: * on all of /api/v1/widgets/, and nothing elsewhere."""

import http.client
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import Server
from flask.testing import FlaskClient

from app import create_app
from catalog.documents import check_document
from catalog.store import writes
from catalog.store.database import Database

V1 = "/api/v1/widgets/"
CLOCK = V1 + "acme/clock"
ORIGINS = [None, "https://dashboard.example", "null"]
PREFLIGHT = {
    "Origin": "https://dashboard.example",
    "Access-Control-Request-Method": "GET",
    "Access-Control-Request-Headers": "content-type",
}

WIDGET_ANSWERS = [
    ("GET", V1 + "search", {}, 200),
    ("GET", CLOCK, {}, 200),
    ("HEAD", CLOCK, {}, 200),
    ("POST", CLOCK, {}, 200),
    ("OPTIONS", CLOCK, {}, 200),
    ("GET", CLOCK, {"headers": {"If-None-Match": "*"}}, 304),
    ("GET", V1 + "search", {"headers": {"If-None-Match": "*"}}, 304),
    ("GET", V1 + "search?page=0", {}, 400),
    ("GET", V1 + "search?compatSdk=", {}, 400),
    ("GET", V1 + "acme/none", {}, 404),
    ("GET", V1 + "acme/hidden", {}, 404),
    ("POST", V1 + "acme/none", {}, 404),
    ("GET", V1, {}, 404),
    ("GET", V1 + "acme", {}, 404),
    ("PUT", V1 + "acme/clock/1.0.0", {}, 404),
    ("GET", V1 + "search/", {}, 404),
    ("GET", V1 + "/search", {}, 404),
    ("GET", V1 + "acme//clock", {}, 404),
    ("GET", V1 + "//", {}, 404),
    ("GET", V1 + "../../health", {}, 404),
    ("GET", V1 + "a%0Ab", {}, 404),
    ("GET", V1 + "%0A/a/b", {}, 404),
    ("GET", CLOCK + "%0A", {}, 404),
    ("GET", V1 + "acme/%00", {}, 404),
    ("GET", V1 + "%FF/%zz", {}, 404),
    ("GET", V1 + "a" * 10_000, {}, 404),
    ("DELETE", CLOCK, {}, 405),
    ("POST", V1 + "search", {}, 405),
    ("FOO", CLOCK, {}, 405),
    ("POST", CLOCK, {"data": b"x" * 4097}, 413),
    ("GET", V1 + "none/such/path", {"data": b"x" * 4097}, 413),
]

OTHER_ANSWERS = [
    ("GET", "/api/widgets/acme/registry.json", {}, 200),
    ("GET", "/api/widgets/acme/registry.json", {"If-None-Match": "*"}, 304),
    ("GET", "/api/widgets/none/registry.json", {}, 404),
    ("POST", "/api/widgets/acme/registry.json", {}, 405),
    ("OPTIONS", "/api/widgets/acme/registry.json", {}, 200),
    ("GET", "/api/health", {}, 200),
    ("GET", "/api/version", {}, 200),
    ("GET", "/api/widgets/cli-version", {}, 200),
    ("GET", "/api/stats", {}, 200),
    ("GET", "/api/settings", {}, 200),
    ("OPTIONS", "/api/stats", {}, 200),
    ("PUT", "/api/stats", {}, 405),
    ("GET", "/api/stats/", {}, 404),
    ("GET", "/api/widgets", {}, 401),
    ("POST", "/api/widgets/acme/clock", {}, 401),
    ("OPTIONS", "/api/widgets/acme/clock", {}, 401),
    ("GET", "/api/v1/widgets", {}, 404),
    ("GET", "/api/v1/other", {}, 404),
    ("OPTIONS", "/api/v1/other", {}, 404),
    ("GET", "/api/v1//widgets/search", {}, 404),
    ("GET", "/api/v2/widgets/search", {}, 401),
    ("GET", "/nowhere", {}, 404),
    ("OPTIONS", "/nowhere", {}, 404),
]


def named(answers: list[Any]) -> list[Any]:
    """The answers with ids such as "404 GET /api/v1/widgets/acme"."""
    return [pytest.param(*a, id=f"{a[3]} {a[0]} {a[1][:40]} {n}") for n, a in enumerate(answers)]


def cross_origin_headers(headers: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        if name.lower().startswith("access-control-"):
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    database = Database(tmp_path_factory.mktemp("cors") / "catalog.db")
    documents = [document("acme/clock", version()), document("acme/hidden", listed=False)]
    database.create(writes.put_documents(map(check_document, documents)))
    app = create_app({"DATABASE": database.path})
    yield app.test_client()
    app.extensions["database"].close()


@pytest.fixture
def broken(client_with: Callable[..., FlaskClient]) -> FlaskClient:
    """A catalog that holds what it never should: no view can expect it."""
    client = client_with(document("acme/clock", version()))
    connection = sqlite3.connect(client.application.config["DATABASE"])
    connection.execute("DROP VIEW version_entry")
    connection.execute("DROP TABLE summary")
    connection.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON widget BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    connection.commit()
    connection.close()
    return client


@pytest.mark.parametrize(("method", "path", "extra", "status"), named(WIDGET_ANSWERS))
def test_every_answer_of_the_widget_api_is_open(
    catalog: FlaskClient, method: str, path: str, extra: dict[str, Any], status: int
) -> None:
    for origin in ORIGINS:
        headers = {**extra.get("headers", {}), **({"Origin": origin} if origin else {})}
        response = catalog.open(path, method=method, **{**extra, "headers": headers})
        assert response.status_code == status
        assert cross_origin_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}
        assert "Vary" not in response.headers


@pytest.mark.parametrize(
    ("method", "path"), [("GET", V1 + "search"), ("GET", CLOCK), ("POST", CLOCK)]
)
def test_an_unexpected_failure_of_the_widget_api_is_open(
    broken: FlaskClient, method: str, path: str
) -> None:
    for headers in ({}, {"Origin": "https://dashboard.example"}):
        response = broken.open(path, method=method, headers=headers)
        assert response.status_code == 500
        assert cross_origin_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


def test_a_database_that_is_missing_closes_nothing(tmp_path: Path) -> None:
    client = create_app({"DATABASE": tmp_path / "none.db"}).test_client()
    assert client.get(CLOCK).status_code == 503
    assert cross_origin_headers(client.get(CLOCK).headers) == {"Access-Control-Allow-Origin": ["*"]}
    assert cross_origin_headers(client.get("/api/stats", headers=PREFLIGHT).headers) == {}


def test_an_unexpected_failure_of_the_registry_is_not_open(broken: FlaskClient) -> None:
    response = broken.get("/api/widgets/acme/registry.json", headers=PREFLIGHT)
    assert response.status_code == 500
    assert cross_origin_headers(response.headers) == {}


@pytest.mark.parametrize(("method", "path", "headers", "status"), named(OTHER_ANSWERS))
def test_no_other_answer_has_a_cross_origin_header(
    catalog: FlaskClient, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    for asked in ({}, PREFLIGHT):
        response = catalog.open(path, method=method, headers={**asked, **headers})
        assert response.status_code == status
        assert cross_origin_headers(response.headers) == {}
        assert "Vary" not in response.headers


@pytest.mark.parametrize("path", ["search", "acme/clock", "acme/none", "", "a/b/c", "a%0Ab"])
@pytest.mark.parametrize("asked", ["GET", "HEAD", "POST"])
def test_a_preflight_is_approved_on_any_path_of_the_widget_api(
    catalog: FlaskClient, path: str, asked: str
) -> None:
    headers = {**PREFLIGHT, "Access-Control-Request-Method": asked}
    response = catalog.options(V1 + path, headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    sent = cross_origin_headers(response.headers)
    assert sent["Access-Control-Allow-Origin"] == ["*"]
    assert asked in sent["Access-Control-Allow-Methods"][0].split(", ")
    assert sent["Access-Control-Allow-Headers"] == ["content-type"]
    assert "Access-Control-Allow-Credentials" not in sent


def test_a_preflight_for_a_method_that_is_not_offered_is_not_approved(catalog: FlaskClient) -> None:
    headers = {**PREFLIGHT, "Access-Control-Request-Method": "DELETE"}
    sent = cross_origin_headers(catalog.options(CLOCK, headers=headers).headers)
    assert sent == {"Access-Control-Allow-Origin": ["*"]}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", V1 + "search", 200),
        ("HEAD", CLOCK, 200),
        ("GET", V1 + "search?limit=x", 400),
        ("GET", V1 + "acme/none", 404),
        ("GET", V1 + "a%0Ab//c", 404),
        ("PROPFIND", CLOCK, 405),
    ],
)
def test_the_real_server_sends_the_header_once(
    server: Server, method: str, path: str, status: int
) -> None:
    for headers in ({}, {"Origin": "https://dashboard.example"}):
        response, _ = server.request(method, path, **headers)
        assert response.status == status
        assert cross_origin_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


def test_the_real_server_answers_a_preflight(server: Server) -> None:
    headers = {name.replace("-", "_"): value for name, value in PREFLIGHT.items()}
    response, body = server.request("OPTIONS", CLOCK, **headers)
    assert (response.status, body) == (200, b"")
    sent = cross_origin_headers(response.headers)
    assert sent.pop("Access-Control-Max-Age") == ["7200"]
    assert sent == {
        "Access-Control-Allow-Origin": ["*"],
        "Access-Control-Allow-Methods": ["GET, HEAD, OPTIONS, POST"],
        "Access-Control-Allow-Headers": ["content-type"],
    }


@pytest.mark.parametrize(
    "path",
    ["/api/widgets/acme/registry.json", "/api/health", "/api/me", "/api/v1/other", "/nowhere"],
)
def test_the_real_server_sends_no_header_elsewhere(server: Server, path: str) -> None:
    for method in ("GET", "OPTIONS"):
        response, _ = server.request(method, path, Origin="https://dashboard.example")
        assert cross_origin_headers(response.headers) == {}


def test_a_body_too_large_to_be_received_is_refused_openly(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        fields = f"Host: a\r\nContent-Length: {2**40}\r\n"
        connection.sendall(f"POST {CLOCK} HTTP/1.1\r\n{fields}\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.close()
    assert response.status == 413
    assert cross_origin_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


@pytest.mark.parametrize("host", ["a..b", "a" * 70], ids=["empty label", "long label"])
def test_a_strange_host_header_does_not_close_the_widget_api(server: Server, host: str) -> None:
    response, _ = server.request("GET", CLOCK, Host=host)
    assert cross_origin_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", CLOCK), ("GET", V1 + "none"), ("POST", CLOCK)]
)
def test_an_upgrade_that_is_not_offered_is_ignored(
    catalog: FlaskClient, method: str, path: str
) -> None:
    plain = catalog.open(path, method=method)
    asked = catalog.open(
        path, method=method, headers={"Connection": "Upgrade", "Upgrade": "websocket"}
    )
    assert asked.status_code == plain.status_code
    assert cross_origin_headers(asked.headers) == {"Access-Control-Allow-Origin": ["*"]}
