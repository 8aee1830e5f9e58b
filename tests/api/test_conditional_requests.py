"""When an ETag changes, and what a 304 does to the connection."""

import http.client
from collections.abc import Callable
from contextlib import closing

import pytest
from builders import document, version
from conftest import Server
from flask.testing import FlaskClient

CLOCK = "/api/v1/widgets/acme/clock"
SEARCH = "/api/v1/widgets/search"
READS = [
    *(CLOCK, SEARCH, f"{SEARCH}?q=clock&compatSdk=1.2.3&limit=5", f"{SEARCH}?q=nothing"),
    *(f"{CLOCK}?compatSdk=1.4.0", f"{CLOCK}/1.0.0", f"{CLOCK}/latest"),
    f"{CLOCK}/installs",
    *(f"{SEARCH}?compatSdk=1.4.0&compatible=true", f"{SEARCH}?sort=updated"),
    "/api/v1/widgets/updates?compatSdk=1.4.0&installed=acme/clock@1.0.0",
]


@pytest.fixture
def client(client_with: Callable[..., FlaskClient]) -> FlaskClient:
    """A catalog for tests that install; the others use the demo catalog."""
    return client_with(document("acme/clock", version(), downloadCount=5), document("acme/notes"))


def etag(client: FlaskClient, path: str) -> str:
    return client.get(path).headers["ETag"]


def test_each_response_has_its_own_etag(demo: FlaskClient) -> None:
    assert len({etag(demo, path) for path in READS}) == len(READS)


@pytest.mark.parametrize("path", [CLOCK, SEARCH])
def test_etag_changes_with_an_install(client: FlaskClient, path: str) -> None:
    before = etag(client, path)
    client.post("/api/v1/widgets/acme/notes")
    # The search shows this install too.
    assert (etag(client, path) == before) == (path == CLOCK)
    client.post(CLOCK)
    response = client.get(path, headers={"If-None-Match": before})
    assert response.status_code == 200
    assert b'"downloadCount":6' in response.data


@pytest.mark.parametrize("connection_header", ["keep-alive", "close"])
def test_response_without_a_body_ends_the_connection_only_if_requested(
    server: Server, connection_header: str
) -> None:
    headers = {"If-None-Match": "*", "Connection": connection_header}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("GET", SEARCH, headers=headers)
        response = connection.getresponse()
        assert (response.status, response.read()) == (304, b"")
        assert response.will_close == (connection_header == "close")
        if not response.will_close:
            connection.request("GET", SEARCH, headers=headers)
            assert connection.getresponse().status == 304
