"""Conditional requests: which ETags are 304, and when an ETag changes."""

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


def test_each_response_has_its_own_etag_which_is_304(demo: FlaskClient) -> None:
    tags = [etag(demo, path) for path in READS]
    assert len(set(tags)) == len(READS)
    for path, tag in zip(READS, tags, strict=True):
        for method in ("GET", "HEAD"):
            response = demo.open(path, method=method, headers={"If-None-Match": tag})
            assert (response.status_code, response.data) == (304, b"")
            assert response.headers["ETag"] == tag


@pytest.mark.parametrize(
    ("form", "status"),
    [
        pytest.param("W/{}", 304, id="weak"),
        pytest.param('"other", {}', 304, id="last of a list"),
        pytest.param('W/{},"other"', 304, id="weak in a list"),
        pytest.param("*", 304, id="star"),
        pytest.param('"other"', 200, id="another"),
        pytest.param('"other", W/"more"', 200, id="list of others"),
        pytest.param('""', 200, id="empty tag"),
        pytest.param("", 200, id="empty"),
        pytest.param('"', 200, id="broken"),
        pytest.param("é\x7f", 200, id="no tag at all"),
    ],
)
@pytest.mark.parametrize("path", [CLOCK, SEARCH, "/api/widgets/acme/registry.json"])
def test_form_of_if_none_match(demo: FlaskClient, path: str, form: str, status: int) -> None:
    whole = demo.get(path)
    sent = form.format(whole.headers["ETag"].removeprefix("W/"))
    response = demo.get(path, headers={"If-None-Match": sent})
    assert response.status_code == status
    assert response.data == (b"" if status == 304 else whole.data)


@pytest.mark.parametrize("path", [CLOCK, SEARCH])
def test_etag_changes_with_an_install(client: FlaskClient, path: str) -> None:
    before = etag(client, path)
    client.post(CLOCK)
    response = client.get(path, headers={"If-None-Match": before})
    assert response.status_code == 200
    assert response.headers["ETag"] != before
    assert b'"downloadCount":6' in response.data


def test_install_of_another_widget_keeps_the_etag_of_a_detail(client: FlaskClient) -> None:
    before = etag(client, CLOCK)
    client.post("/api/v1/widgets/acme/notes")
    assert etag(client, CLOCK) == before


def test_connection_stays_open_after_a_response_without_a_body(server: Server) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request("GET", "/api/v1/widgets/search")
        first = connection.getresponse()
        first.read()
        for _ in range(2):
            connection.request(
                "GET", "/api/v1/widgets/search", headers={"If-None-Match": first.headers["ETag"]}
            )
            again = connection.getresponse()
            assert (again.status, again.read(), again.will_close) == (304, b"", False)


def test_connection_closes_after_a_response_without_a_body_if_requested(
    server: Server,
) -> None:
    etag = server.request("GET", "/api/v1/widgets/search")[0].headers["ETag"]
    response, _ = server.request(
        "GET", "/api/v1/widgets/search", If_None_Match=etag, Connection="close"
    )
    assert (response.status, response.will_close) == (304, True)
