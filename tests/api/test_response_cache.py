"""The response cache: what it answers without a statement, and its limits of memory."""

from collections.abc import Callable
from gzip import decompress
from hashlib import sha256
from typing import Any

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder

from catalog.store.connection.sqlite import DeadlineExceeded

SEARCH = "/api/v1/widgets/search"
CLOCK = "/api/v1/widgets/acme/clock"
REGISTRY = "/api/widgets/acme/registry.json"
CACHED = [SEARCH, CLOCK, f"{CLOCK}/1.0.0", "/api/v1/widgets/changes", REGISTRY, "/api/stats"]
NOTES = "x" * 65_000
AppWith = Callable[..., Flask]
IsCached = Callable[..., bool]


@pytest.fixture
def is_cached(statements: list[str]) -> IsCached:
    """Return a function that tells whether a request, which must succeed, needs no statement."""

    def check(client: FlaskClient, path: str, **options: Any) -> bool:
        statements.clear()
        with client.open(path, **options) as response:
            assert response.status_code in (200, 304)
        return statements == []

    return check


@pytest.fixture
def client(statements: list[str], app_with: AppWith) -> FlaskClient:
    return app_with(document("acme/clock", version(releaseNotes="x" * 3_000))).test_client()


@pytest.mark.parametrize("path", CACHED)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_cached_response_is_the_response_of_the_view(
    client: FlaskClient, is_cached: IsCached, path: str, method: str
) -> None:
    # The cache takes no request with a body.
    rendered = client.open(path, method=method, data=b"x")
    client.open(path, method=method)
    assert is_cached(client, path, method=method)
    cached = client.open(path, method=method)
    assert (cached.status, cached.data) == (rendered.status, rendered.data)
    assert sorted(cached.headers) == sorted(rendered.headers)


@pytest.mark.parametrize("path", CACHED[:-1])
def test_cached_response_is_revalidated_and_compressed(
    client: FlaskClient, is_cached: IsCached, path: str
) -> None:
    etag = client.get(path).headers["ETag"]
    known = {"If-None-Match": f'"other", W/{etag}'}
    assert client.get(path, headers=known).status_code == 304
    assert is_cached(client, path, headers=known)
    # Parsing it would take too long.
    assert client.get(path, headers={"If-None-Match": '"x",' * 500 + etag}).status_code == 200
    gzip = {"Accept-Encoding": "gzip"}
    is_long = len(client.get(path).data) > 1000
    assert ("Content-Encoding" in client.get(path, headers=gzip).headers) == is_long
    assert is_cached(client, path, headers=gzip)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (f"{SEARCH}?q=other", {}),
        (SEARCH, {"base_url": "http://other.example"}),
        (SEARCH, {"data": b"x"}),
        (CLOCK, {"method": "POST"}),
        ("/", {}),
    ],
)
def test_other_requests_are_not_answered_from_the_cache(
    client: FlaskClient, is_cached: IsCached, path: str, options: dict[str, Any]
) -> None:
    for each in CACHED:
        client.get(each)
    assert not is_cached(client, path, **options)


def test_errors_are_not_cached(client: FlaskClient, statements: list[str]) -> None:
    for path in ("/api/v1/widgets/acme/none", "/api/widgets/none/registry.json"):
        for _ in range(2):
            statements.clear()
            assert client.get(path).status_code == 404
            assert statements


def test_response_that_fails_after_it_was_rendered_is_not_cached(client: FlaskClient) -> None:
    is_failing = True

    @client.application.after_request
    def fail(response: Any) -> Any:
        assert not is_failing
        return response

    client.application.config["PROPAGATE_EXCEPTIONS"] = False
    assert client.get(SEARCH).status_code == 500
    is_failing = False
    assert client.get(SEARCH).status_code == 200


class Interrupted(dict[str, Any]):
    """The environ of a request that runs a function after its response was found in the cache."""

    function: Callable[[], object]

    def get(self, key: str, default: Any = None) -> Any:
        if key == "HTTP_IF_NONE_MATCH":
            self.function()
        return super().get(key, default)


def test_response_that_was_replaced_while_it_is_compressed_does_not_come_back(
    client: FlaskClient, is_cached: IsCached
) -> None:
    def change() -> None:
        run(client.application, "deprecate", "acme/clock@1.0.0", "--message", "Use another.")
        assert b"Use another." in client.get(CLOCK).data

    old = client.get(CLOCK).data
    gzip = {"Accept-Encoding": "gzip"}
    environ = Interrupted(EnvironBuilder(CLOCK, headers=[*gzip.items()]).get_environ())
    environ.function = change
    body = client.application.wsgi_app(environ, lambda *_: lambda _: None)
    assert decompress(b"".join(body)) == old
    assert is_cached(client, CLOCK, headers=gzip)


def test_response_that_two_requests_render_takes_its_memory_once(app_with: AppWith) -> None:
    once, twice = app_with(document("acme/clock")), app_with(document("acme/clock"))
    others = iter([twice.test_client()])

    @twice.after_request
    def render_again(response: Any) -> Any:
        for other in others:
            assert other.get(CLOCK).status_code == 200
        return response

    for app in (once, twice):
        assert app.test_client().get(CLOCK).status_code == 200
    sizes = [app.extensions["response_cache"].size() for app in (once, twice)]
    assert sizes[0] == sizes[1] > 0


def test_deadline_ends_a_revalidation_and_the_final_one_is_503(client: FlaskClient) -> None:
    database = client.application.extensions["database"]
    assert client.get(SEARCH).status_code == 200
    database.deadline.set(-1)
    with pytest.raises(DeadlineExceeded):
        client.get(SEARCH)
    database.deadline.set(-1, is_final=True)
    response = client.get(SEARCH)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    database.deadline.set(60)
    assert client.get(SEARCH).status_code == 200


def test_memory_has_a_limit_and_the_least_recently_used_response_is_evicted(
    app_with: AppWith, is_cached: IsCached
) -> None:
    # The detail of each widget has a megabyte; the cache has 16, and room for one larger response.
    versions = [version(f"1.{number}.0", releaseNotes=NOTES) for number in range(16)]
    client = app_with(
        *(document(f"acme/w{number}", *versions) for number in range(17))
    ).test_client()
    details = [f"/api/v1/widgets/acme/w{number}" for number in range(17)]
    for path in (REGISTRY, *details[:15]):
        client.get(path)
    assert is_cached(client, details[0])
    for path in details[15:]:
        client.get(path)
    kept = [is_cached(client, path) for path in (REGISTRY, details[0], details[1], details[16])]
    assert kept == [True, True, False, True]


def test_memory_of_long_addresses_has_a_limit(client: FlaskClient, is_cached: IsCached) -> None:
    # The bodies of all of them have less than a megabyte.
    addresses = [f"{SEARCH}?x{number}={'x' * 15_000}" for number in range(200)]
    for address in addresses:
        client.get(address)
    assert [is_cached(client, addresses[place]) for place in (0, -1)] == [False, True]


def test_memory_of_compressed_bodies_has_a_limit(app_with: AppWith, is_cached: IsCached) -> None:
    # The detail of each widget has a megabyte, and compressed over half of one.
    notes = [
        "".join(sha256(f"{number}-{part}".encode()).hexdigest() for part in range(1000))
        for number in range(16)
    ]
    versions = [version(f"1.{number}.0", releaseNotes=text) for number, text in enumerate(notes)]
    client = app_with(
        *(document(f"acme/w{number}", *versions) for number in range(15))
    ).test_client()
    details = [f"/api/v1/widgets/acme/w{number}" for number in range(15)]
    for path in details:
        client.get(path)
    for path in details[-4:]:
        client.get(path, headers={"Accept-Encoding": "gzip"})
    assert [is_cached(client, details[place]) for place in (0, -1)] == [False, True]
