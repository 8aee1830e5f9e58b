"""What a client of /api/v1 may keep, and how it asks whether that still holds."""

import http.client
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from builders import document, version
from conftest import Server
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

CLOCK = "/api/v1/widgets/acme/clock"
SEARCH = "/api/v1/widgets/search"
READS = [CLOCK, SEARCH, f"{SEARCH}?q=clock&compatSdk=1.2.3&limit=5", f"{SEARCH}?q=nothing"]
ERRORS = [("/api/v1/widgets/acme/none", 404), (f"{SEARCH}?page=0", 400), (f"{CLOCK}/x", 404)]

reads = pytest.mark.parametrize("path", READS)
methods = pytest.mark.parametrize("method", ["GET", "HEAD"])


@pytest.fixture
def client(client_with: Callable[..., FlaskClient]) -> FlaskClient:
    """A catalog to install from; what only reads has the demo."""
    return client_with(document("acme/clock", version(), downloadCount=5), document("acme/notes"))


def etag(client: FlaskClient, path: str) -> str:
    return client.get(path).headers["ETag"]


def headers_but_date(answer: TestResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "Date"}


@reads
def test_answer_must_be_revalidated_and_says_by_what(demo: FlaskClient, path: str) -> None:
    answer = demo.get(path)
    assert answer.status_code == 200
    assert answer.headers.getlist("Cache-Control") == ["no-cache"]
    (tag,) = answer.headers.getlist("ETag")
    assert tag.removeprefix("W/").strip('"')
    assert tag.endswith('"')


@reads
def test_same_answer_has_the_same_etag(demo: FlaskClient, path: str) -> None:
    assert etag(demo, path) == etag(demo, path)


def test_different_answers_have_different_etags(demo: FlaskClient) -> None:
    assert len({etag(demo, path) for path in READS}) == len(READS)


@methods
@reads
def test_known_etag_is_304_with_its_headers_and_no_body(
    demo: FlaskClient, path: str, method: str
) -> None:
    tag = etag(demo, path)
    answer = demo.open(path, method=method, headers={"If-None-Match": tag})
    assert (answer.status_code, answer.data) == (304, b"")
    # A 304 has what a 200 would have, save what describes the body it lacks.
    assert headers_but_date(answer) == {
        "ETag": tag,
        "Cache-Control": "no-cache",
        "Access-Control-Allow-Origin": "*",
        "X-Content-Type-Options": "nosniff",
    }


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
@pytest.mark.parametrize("path", [CLOCK, SEARCH])
def test_form_of_if_none_match(demo: FlaskClient, path: str, form: str, status: int) -> None:
    whole = demo.get(path)
    sent = form.format(whole.headers["ETag"].removeprefix("W/"))
    answer = demo.get(path, headers={"If-None-Match": sent})
    assert answer.status_code == status
    assert answer.data == (b"" if status == 304 else whole.data)


@pytest.mark.parametrize("path", [CLOCK, SEARCH])
def test_etag_changes_with_an_install(client: FlaskClient, path: str) -> None:
    before = etag(client, path)
    client.post(CLOCK)
    answer = client.get(path, headers={"If-None-Match": before})
    assert answer.status_code == 200
    assert answer.headers["ETag"] != before
    assert b'"downloadCount":6' in answer.data


def test_install_of_another_widget_keeps_the_etag_of_a_detail(client: FlaskClient) -> None:
    before = etag(client, CLOCK)
    client.post("/api/v1/widgets/acme/notes")
    assert etag(client, CLOCK) == before


@pytest.mark.parametrize("tag", ["*", '"other"'])
def test_install_takes_no_condition_and_has_no_etag(client: FlaskClient, tag: str) -> None:
    answer = client.post(CLOCK, headers={"If-None-Match": tag})
    assert (answer.status_code, answer.json) == (200, {"success": True})
    assert "ETag" not in answer.headers


@methods
@pytest.mark.parametrize(("path", "status"), ERRORS)
def test_error_has_no_etag_and_is_never_304(
    demo: FlaskClient, path: str, status: int, method: str
) -> None:
    answer = demo.open(path, method=method, headers={"If-None-Match": "*"})
    assert answer.status_code == status
    assert "ETag" not in answer.headers
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers.getlist("Cache-Control") == ["no-cache"]


@pytest.mark.parametrize("path", [*READS, *(path for path, _ in ERRORS)])
def test_head_has_the_headers_of_get_and_no_body(demo: FlaskClient, path: str) -> None:
    got, head = demo.get(path), demo.head(path)
    assert (head.status_code, head.data) == (got.status_code, b"")
    assert headers_but_date(head) == headers_but_date(got)
    assert head.headers["Content-Length"] == str(len(got.data))


@pytest.mark.parametrize("path", [CLOCK, SEARCH])
def test_failed_if_match_never_sends_the_resource_as_an_error(demo: FlaskClient, path: str) -> None:
    answer = demo.get(path, headers={"If-Match": '"other"'})
    assert answer.status_code == 200 or list(answer.json) == ["error"]


def test_part_of_an_answer_is_not_sent(demo: FlaskClient) -> None:
    whole = demo.get(CLOCK)
    answer = demo.get(CLOCK, headers={"Range": "bytes=0-3"})
    assert (answer.status_code, answer.data) == (200, whole.data)


def test_real_server_answers_304_and_head_without_a_body(server: Any) -> None:
    got, body = server.request("GET", SEARCH)
    tag = got.getheader("ETag")
    head, no_body = server.request("HEAD", SEARCH)
    assert (head.status, head.getheader("ETag"), no_body) == (200, tag, b"")
    assert head.getheader("Content-Length") == str(len(body))
    same, no_body = server.request("GET", SEARCH, If_None_Match=tag)
    assert (same.status, same.getheader("ETag"), no_body) == (304, tag, b"")
    assert same.getheader("Access-Control-Allow-Origin") == "*"


def test_connection_goes_on_after_an_answer_without_a_body(server: Server) -> None:
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


def test_connection_ends_after_an_answer_without_a_body_where_the_client_wants_it(
    server: Server,
) -> None:
    etag = server.request("GET", "/api/v1/widgets/search")[0].headers["ETag"]
    response, _ = server.request(
        "GET", "/api/v1/widgets/search", If_None_Match=etag, Connection="close"
    )
    assert (response.status, response.will_close) == (304, True)
