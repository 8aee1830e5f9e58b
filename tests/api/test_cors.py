"""CORS: Access-Control-Allow-Origin: * once on all of /api/v1/widgets/, and nowhere else."""

import http.client
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import Server, putting
from flask.testing import FlaskClient

from app import create_app
from catalog.documents import check_document
from catalog.store.connection.database import Database

V1 = "/api/v1/widgets/"
CLOCK = V1 + "acme/clock"
ORIGINS = [None, "https://dashboard.example", "null"]
PREFLIGHT = {
    "Origin": "https://dashboard.example",
    "Access-Control-Request-Method": "GET",
    "Access-Control-Request-Headers": "content-type",
}

WIDGET_REQUESTS = [
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
    ("GET", CLOCK + "/1.0.0", {}, 200),
    ("GET", CLOCK + "/latest", {"headers": {"If-None-Match": "*"}}, 304),
    ("GET", CLOCK + "/latest?compatSdk=1", {}, 400),
    ("GET", CLOCK + "/9.9.9", {}, 404),
    ("PUT", CLOCK + "/1.0.0", {}, 405),
    ("POST", CLOCK + "/1.0.0", {}, 200),
    ("POST", CLOCK + "/9.9.9", {}, 404),
    ("POST", CLOCK + "/installs", {}, 405),
    ("GET", CLOCK + "/installs", {}, 200),
    ("GET", CLOCK + "/installs?days=x", {}, 400),
    ("GET", V1 + "acme/hidden/installs", {}, 404),
    ("GET", V1 + "updates?compatSdk=1.0.0&installed=acme/clock@1.0.0", {}, 200),
    ("GET", V1 + "updates", {}, 400),
    ("POST", V1 + "updates", {}, 405),
    ("PUT", V1 + "acme/clock/1.0.0/x", {}, 404),
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

OTHER_REQUESTS = [
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


def with_ids(requests: list[Any]) -> list[Any]:
    """Return the requests with ids such as "404 GET /api/v1/widgets/acme"."""
    return [pytest.param(*r, id=f"{r[3]} {r[0]} {r[1][:40]} {n}") for n, r in enumerate(requests)]


def cors_headers(headers: Any) -> dict[str, list[str]]:
    headers_by_name: dict[str, list[str]] = {}
    for name, value in headers.items():
        if name.lower().startswith("access-control-"):
            headers_by_name.setdefault(name, []).append(value)
    return headers_by_name


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    database = Database(tmp_path_factory.mktemp("cors") / "catalog.db")
    documents = [document("acme/clock", version()), document("acme/hidden", listed=False)]
    database.create(putting(map(check_document, documents)))
    app = create_app({"DATABASE": database.path})
    yield app.test_client()
    app.extensions["database"].close()


@pytest.fixture
def broken(client_with: Callable[..., FlaskClient]) -> FlaskClient:
    """A catalog with a damaged schema, so that every request fails unexpectedly."""
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


@pytest.mark.parametrize(("method", "path", "extra", "status"), with_ids(WIDGET_REQUESTS))
def test_every_response_of_the_widget_api_has_the_cors_header(
    catalog: FlaskClient, method: str, path: str, extra: dict[str, Any], status: int
) -> None:
    for origin in ORIGINS:
        headers = {**extra.get("headers", {}), **({"Origin": origin} if origin else {})}
        response = catalog.open(path, method=method, **{**extra, "headers": headers})
        assert response.status_code == status
        assert cors_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}
        # A shared cache must not store one for each origin.
        assert response.headers.getlist("Vary") in ([], ["Accept-Encoding"])


@pytest.mark.parametrize(
    ("method", "path"), [("GET", V1 + "search"), ("GET", CLOCK), ("POST", CLOCK)]
)
def test_unexpected_failure_of_the_widget_api_has_the_cors_header(
    broken: FlaskClient, method: str, path: str
) -> None:
    for headers in ({}, {"Origin": "https://dashboard.example"}):
        response = broken.open(path, method=method, headers=headers)
        assert response.status_code == 500
        assert cors_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


def test_missing_database_does_not_change_the_cors_headers(tmp_path: Path) -> None:
    client = create_app({"DATABASE": tmp_path / "none.db"}).test_client()
    assert client.get(CLOCK).status_code == 503
    assert cors_headers(client.get(CLOCK).headers) == {"Access-Control-Allow-Origin": ["*"]}
    assert cors_headers(client.get("/api/stats", headers=PREFLIGHT).headers) == {}


def test_unexpected_failure_of_the_registry_has_no_cors_header(broken: FlaskClient) -> None:
    response = broken.get("/api/widgets/acme/registry.json", headers=PREFLIGHT)
    assert response.status_code == 500
    assert cors_headers(response.headers) == {}


@pytest.mark.parametrize(("method", "path", "headers", "status"), with_ids(OTHER_REQUESTS))
def test_no_other_response_has_a_cors_header(
    catalog: FlaskClient, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    for extra in ({}, PREFLIGHT):
        response = catalog.open(path, method=method, headers={**extra, **headers})
        assert response.status_code == status
        assert cors_headers(response.headers) == {}
        assert response.headers.getlist("Vary") in ([], ["Accept-Encoding"])


@pytest.mark.parametrize("path", ["search", "acme/clock", "acme/none", "a/b/c"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_preflight_succeeds_on_every_path_of_the_widget_api(
    catalog: FlaskClient, path: str, method: str
) -> None:
    headers = {**PREFLIGHT, "Access-Control-Request-Method": method}
    response = catalog.options(V1 + path, headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    sent = cors_headers(response.headers)
    assert sent["Access-Control-Allow-Origin"] == ["*"]
    assert method in sent["Access-Control-Allow-Methods"][0].split(", ")
    assert sent["Access-Control-Allow-Headers"] == ["content-type"]
    assert "Access-Control-Allow-Credentials" not in sent


@pytest.mark.parametrize("path", ["", "a%0Ab", "a/b/c/d/e"])
def test_preflight_of_a_path_without_a_route_is_404_that_a_page_can_read(
    catalog: FlaskClient, path: str
) -> None:
    response = catalog.options(V1 + path, headers=PREFLIGHT)
    assert response.status_code == 404
    assert cors_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


def test_preflight_for_an_unsupported_method_is_not_approved(catalog: FlaskClient) -> None:
    headers = {**PREFLIGHT, "Access-Control-Request-Method": "DELETE"}
    sent = cors_headers(catalog.options(CLOCK, headers=headers).headers)
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
        assert cors_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


def test_the_real_server_responds_to_a_preflight(server: Server) -> None:
    headers = {name.replace("-", "_"): value for name, value in PREFLIGHT.items()}
    response, body = server.request("OPTIONS", CLOCK, **headers)
    assert (response.status, body) == (200, b"")
    sent = cors_headers(response.headers)
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
        assert cors_headers(response.headers) == {}


def test_rejected_large_body_has_the_cors_header(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        fields = f"Host: a\r\nContent-Length: {2**40}\r\n"
        connection.sendall(f"POST {CLOCK} HTTP/1.1\r\n{fields}\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.close()
    assert response.status == 413
    assert cors_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


@pytest.mark.parametrize("host", ["a..b", "a" * 70], ids=["empty label", "long label"])
def test_unusual_host_header_does_not_change_the_cors_header(server: Server, host: str) -> None:
    response, _ = server.request("GET", CLOCK, Host=host)
    assert cors_headers(response.headers) == {"Access-Control-Allow-Origin": ["*"]}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", CLOCK), ("GET", V1 + "none"), ("POST", CLOCK)]
)
def test_unsupported_upgrade_is_ignored(catalog: FlaskClient, method: str, path: str) -> None:
    plain = catalog.open(path, method=method)
    upgrade = catalog.open(
        path, method=method, headers={"Connection": "Upgrade", "Upgrade": "websocket"}
    )
    assert upgrade.status_code == plain.status_code
    assert cors_headers(upgrade.headers) == {"Access-Control-Allow-Origin": ["*"]}
