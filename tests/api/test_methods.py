"""Methods: HEAD for every GET, 405 with Allow for unsupported ones, and no redirects."""

from collections.abc import Iterator

import pytest
from builders import document, version
from conftest import Server, putting
from flask.testing import FlaskClient

from app import create_app
from catalog.documents import check_document
from catalog.store.connection.database import Database

CLOCK = "/api/v1/widgets/acme/clock"
INSTALL_PATHS = [CLOCK, f"{CLOCK}/1.0.0", f"{CLOCK}/latest"]
GET_PATHS = [
    "/api/v1/widgets/search",
    "/api/v1/widgets/updates",
    "/api/v1/widgets/acme/clock/installs",
    "/api/widgets/acme/registry.json",
    "/api/health",
    "/api/version",
    "/api/widgets/cli-version",
    "/api/stats",
    "/api/settings",
]
PATHS = [*INSTALL_PATHS, *GET_PATHS]
UNSUPPORTED = ["PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "FOO", "M-SEARCH"]


def allowed(path: str) -> list[str]:
    return ["GET", "HEAD", "OPTIONS", *["POST"] * (path in INSTALL_PATHS)]


def parse_allow(allow: str | None) -> list[str]:
    return sorted((allow or "").split(", "))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    database = Database(tmp_path_factory.mktemp("methods") / "catalog.db")
    clock = check_document(document("acme/clock", version(), downloadCount=7))
    database.create(putting([clock]))
    app = create_app({"DATABASE": database.path})
    yield app.test_client()
    app.extensions["database"].close()


@pytest.mark.parametrize(
    "path",
    [
        *PATHS,
        "/api/v1/widgets/search?page=0",
        "/api/v1/widgets/acme/none",
        "/api/v1/widgets/none",
        "/api/widgets/none/registry.json",
        "/api/me",
        "/api/v1/other",
        "/nowhere",
    ],
)
def test_head_has_the_headers_of_get_and_no_body(server: Server, path: str) -> None:
    get, body = server.request("GET", path)
    head, no_body = server.request("HEAD", path)
    assert head.status == get.status
    assert no_body == b""
    assert get.headers["Content-Length"] == str(len(body))
    for response in (get, head):
        del response.headers["Date"]
    assert head.headers.items() == get.headers.items()


def test_head_is_revalidated_like_get(catalog: FlaskClient) -> None:
    etag = catalog.get(CLOCK).headers["ETag"]
    assert catalog.head(CLOCK, headers={"If-None-Match": etag}).status_code == 304


def test_head_of_a_widget_counts_no_install(catalog: FlaskClient) -> None:
    catalog.head(CLOCK)
    assert catalog.get(CLOCK).json["widget"]["downloadCount"] == 7


@pytest.mark.parametrize(
    ("method", "path"),
    [(method, path) for path in PATHS for method in UNSUPPORTED]
    + [("POST", path) for path in GET_PATHS],
)
def test_unsupported_method_is_405_with_the_allowed_methods(
    catalog: FlaskClient, method: str, path: str
) -> None:
    response = catalog.open(path, method=method)
    assert response.status_code == 405
    assert parse_allow(response.headers["Allow"]) == allowed(path)
    assert response.mimetype == "application/json"
    assert list(response.json) == ["error"]
    assert method in response.json["error"]


@pytest.mark.parametrize(
    "path", ["/api/v1/widgets/no/such", "/api/v1/widgets/%0A/x", "/api/widgets/none/registry.json"]
)
def test_unsupported_method_is_405_even_if_the_resource_is_missing(
    catalog: FlaskClient, path: str
) -> None:
    response = catalog.delete(path)
    assert response.status_code == 405
    assert "GET" in parse_allow(response.headers["Allow"])


@pytest.mark.parametrize("method", ["PUT", "TRACE", "PROPFIND", "FOO"])
@pytest.mark.parametrize("path", [CLOCK, "/api/widgets/acme/registry.json", "/api/health"])
def test_the_real_server_sends_405(server: Server, method: str, path: str) -> None:
    response, body = server.request(method, path)
    assert response.status == 405
    assert response.headers.get_all("Allow") == [response.headers["Allow"]]
    assert parse_allow(response.headers["Allow"]) == allowed(path)
    assert response.headers["Content-Type"] == "application/json"
    assert body.startswith(b'{"error":')


@pytest.mark.parametrize("path", PATHS)
def test_options_lists_the_methods_of_a_path(catalog: FlaskClient, path: str) -> None:
    response = catalog.options(path)
    assert (response.status_code, response.data) == (200, b"")
    assert parse_allow(response.headers["Allow"]) == allowed(path)
    assert "Content-Type" not in response.headers


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "FOO"])
@pytest.mark.parametrize("path", PATHS)
def test_path_with_a_trailing_slash_is_404(catalog: FlaskClient, method: str, path: str) -> None:
    response = catalog.open(path + "/", method=method)
    assert response.status_code == 404
    assert "Location" not in response.headers
    assert "WWW-Authenticate" not in response.headers


def test_install_with_a_trailing_slash_is_not_counted(catalog: FlaskClient) -> None:
    catalog.post(CLOCK + "/")
    assert catalog.get(CLOCK).json["widget"]["downloadCount"] == 7


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/widgets//search", 404),
        ("/api/v1/widgets/acme//clock", 404),
        ("/api/v1/widgets//acme/clock", 404),
        ("/api/v1//widgets/acme/clock", 404),
        ("/api//v1/widgets/acme/clock", 401),
        ("/api/widgets/acme//registry.json", 401),
        ("/api/widgets//acme/registry.json", 401),
        ("/api//health", 401),
        ("/api/v1/widgets/./search", 404),
        ("/api/v1/widgets/../../health", 404),
        ("/api/v1/WIDGETS/search", 404),
        ("/API/health", 404),
        ("/api/Health", 401),
    ],
)
def test_similar_path_is_not_redirected(server: Server, path: str, status: int) -> None:
    response, _ = server.request("GET", path)
    assert response.status == status
    assert "Location" not in response.headers


@pytest.mark.parametrize("path", ["//api/health", "///api/v1/widgets/search"])
def test_leading_slashes_are_not_redirected(server: Server, path: str) -> None:
    response, _ = server.request("GET", path)
    assert response.status in (200, 404)
    assert "Location" not in response.headers
