"""Internal paths: every /api/* path that is not public is 401, whether or not it exists."""

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from builders import document, version
from conftest import Server
from flask.testing import FlaskClient
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from app import create_app

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO"]
OPERATIONS = ["health", "version", "widgets/cli-version", "stats", "settings"]
INTERNAL = [
    "/api/",
    "/api/me",
    "/api/widgets",
    "/api/widgets/",
    "/api/widgets/acme",
    "/api/widgets/acme/clock",
    "/api/widgets/acme/registry",
    "/api/widgets/acme/registry.json/clock",
    "/api/widgets/acme/clock/registry.json",
    "/api/widgets//registry.json",
    "/api/widgets/cli-version/1",
    "/api/health/deep",
    "/api/healthz",
    "/api/v1",
    "/api/v10/widgets/search",
    "/api/v2/widgets/search",
    "/api//v1/widgets/search",
    "/api/a%0Ab",
    "/api/health%0A",
    "/api/%00",
    "/api/%FF",
]
OUTSIDE_WIDGETS = [
    "/api/v1/",
    "/api/v1//",
    "/api/v1/widgets",
    "/api/v1/widget/acme/clock",
    "/api/v1/health",
    "/api/v1/widgets-old/search",
    "/api/v1/a%0Ab",
]


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    """A service without a database, which internal paths do not need."""
    return create_app({"DATABASE": "no-such-directory/catalog.db"}).test_client()


@pytest.mark.parametrize("path", INTERNAL)
def test_internal_path_is_401_for_every_method(client: FlaskClient, path: str) -> None:
    for method in METHODS:
        response = client.open(path, method=method)
        assert response.status_code == 401
        assert response.headers.getlist("WWW-Authenticate") == ['Session realm="internal"']
        assert response.headers["Content-Type"] == "application/json"
        assert "Allow" not in response.headers
        if method != "HEAD":
            assert response.json == {"error": "This path is internal and needs a session."}


@given(
    method=st.sampled_from(METHODS),
    path=st.lists(
        st.sampled_from(["v1", "v2", "api", "widgets", "acme", "registry.json", "health", "", ".."])
        | st.text(max_size=8),
        max_size=5,
    ).map("/".join),
)
@settings(
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_path_that_is_not_public_is_401(client: FlaskClient, method: str, path: str) -> None:
    assume(not path.startswith("v1/"))
    assume(path.removesuffix("/") not in OPERATIONS)
    assume(not re.fullmatch("widgets/[^/]+/registry[.]json/?", path))
    response = client.open("/api/" + quote(path.encode("utf-8", "replace")), method=method)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Session realm="internal"'


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": "session=x"},
        {"Authorization": "Bearer x"},
        {"Origin": "https://dashboard.example", "Access-Control-Request-Method": "GET"},
        {"Connection": "Upgrade", "Upgrade": "websocket"},
        {"If-None-Match": "*"},
    ],
    ids=["cookie", "bearer", "preflight", "upgrade", "revalidation"],
)
def test_no_header_opens_an_internal_path(client: FlaskClient, headers: dict[str, str]) -> None:
    response = client.get("/api/me", headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Session realm="internal"'
    assert "Set-Cookie" not in response.headers


def test_large_body_does_not_change_the_response(client: FlaskClient) -> None:
    assert client.post("/api/widgets", data=b"x" * 100_000).status_code == 401


@pytest.mark.parametrize("method", ["GET", "DELETE", "FOO"])
def test_the_real_server_sends_the_challenge(server: Server, method: str) -> None:
    response, body = server.request(method, "/api/widgets/acme/clock")
    assert response.status == 401
    assert response.headers.get_all("WWW-Authenticate") == ['Session realm="internal"']
    assert body == b'{"error":"This path is internal and needs a session."}\n'


@pytest.mark.parametrize("path", OUTSIDE_WIDGETS)
def test_a_versioned_path_outside_widgets_does_not_exist_in_any_method(
    client: FlaskClient, path: str
) -> None:
    for method in METHODS:
        response = client.open(path, method=method)
        assert response.status_code == 404
        assert "WWW-Authenticate" not in response.headers
        assert "Allow" not in response.headers


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/apix/me", "/api%0A/me", "/", "/v1/widgets/search"]
)
def test_path_outside_the_api_is_not_401(client: FlaskClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code != 401
    assert "WWW-Authenticate" not in response.headers


@pytest.mark.parametrize(
    "path", [*(f"/api/{name}" for name in OPERATIONS), "/api/widgets/acme/registry.json"]
)
def test_public_path_is_not_internal(client_with: Callable[..., FlaskClient], path: str) -> None:
    client = client_with(document("acme/clock", version()))
    assert client.get(path).status_code == 200
    assert client.head(path).status_code == 200
    assert client.options(path).status_code == 200
    assert client.post(path).status_code == 405
    assert "WWW-Authenticate" not in client.post(path).headers


@pytest.mark.parametrize("scope", ["cli-version", "health", "v1", "registry.json", "a b", "天気"])
def test_a_scope_named_like_another_path_has_its_registry(
    client_with: Callable[..., FlaskClient], scope: str
) -> None:
    client = client_with(document(f"{scope}/clock"))
    assert client.get(f"/api/widgets/{quote(scope)}/registry.json").json["scope"] == scope
