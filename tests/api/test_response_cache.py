"""The response cache: what it answers without Flask, and its limits of memory."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask import Flask
from flask.testing import FlaskClient

from catalog.api import response_cache
from catalog.store.connection.sqlite import DeadlineExceeded, WouldBlock

SEARCH = "/api/v1/widgets/search"
CLOCK = "/api/v1/widgets/acme/clock"
REGISTRY = "/api/widgets/acme/registry.json"
CACHED = [SEARCH, CLOCK, f"{CLOCK}/1.0.0", "/api/v1/widgets/changes", REGISTRY, "/api/stats"]
HELD = "x" * 3_000
AppWith = Callable[..., Flask]


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(document("acme/clock", version(releaseNotes=HELD)))


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def cached(app: Flask, client: FlaskClient) -> FlaskClient:
    """A client of a service that has only cached responses left."""
    for path in CACHED:
        assert client.get(path).status_code == 200
    app.extensions["database"].deadline.only_cached = True
    return client


@pytest.mark.parametrize("path", CACHED)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_cached_response_is_the_response_of_the_view(
    client: FlaskClient, path: str, method: str
) -> None:
    first = client.open(path, method=method)
    client.application.extensions["database"].deadline.only_cached = True
    second = client.open(path, method=method)
    assert (second.status, second.data) == (first.status, first.data)
    assert sorted(second.headers) == sorted(first.headers)


@pytest.mark.parametrize("path", [path for path in CACHED if path != "/api/stats"])
def test_cached_response_is_revalidated_and_compressed(cached: FlaskClient, path: str) -> None:
    etag = cached.get(path).headers["ETag"]
    unchanged = cached.get(path, headers={"If-None-Match": f'"other", W/{etag}'})
    assert (unchanged.status_code, unchanged.headers["ETag"]) == (304, etag)
    # Parsing it would take too long.
    assert cached.get(path, headers={"If-None-Match": '"x",' * 500 + etag}).status_code == 200
    compressed = cached.get(path, headers={"Accept-Encoding": "gzip"})
    assert ("Content-Encoding" in compressed.headers) == (len(cached.get(path).data) > 1000)


def test_statistics_have_no_etag(cached: FlaskClient) -> None:
    response = cached.get("/api/stats", headers={"If-None-Match": "*"})
    assert (response.status_code, "ETag" in response.headers) == (200, False)


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("GET", f"{SEARCH}?q=other", {}),
        ("GET", SEARCH, {"base_url": "http://other.example"}),
        ("GET", SEARCH, {"data": b"x"}),
        ("POST", CLOCK, {}),
        ("OPTIONS", CLOCK, {}),
        ("GET", "/", {}),
        ("GET", f"{CLOCK}/9.9.9", {}),
    ],
)
def test_everything_else_needs_time_that_the_io_thread_may_not_have(
    cached: FlaskClient, method: str, path: str, options: dict[str, object]
) -> None:
    with pytest.raises(WouldBlock):
        cached.open(path, method=method, **options)


def test_errors_are_not_cached(client: FlaskClient) -> None:
    paths = [f"{SEARCH}?page=0", "/api/v1/widgets/acme/none", "/api/widgets/none/registry.json"]
    statuses = [client.get(path).status_code for path in paths]
    assert statuses == [400, 404, 404]
    client.application.extensions["database"].deadline.only_cached = True
    for path in paths:
        with pytest.raises(WouldBlock):
            client.get(path)


def test_response_that_fails_after_it_was_rendered_is_not_cached(client: FlaskClient) -> None:
    def fail(response: object) -> object:
        raise ZeroDivisionError

    client.application.after_request_funcs.setdefault(None, []).append(fail)
    client.application.config["PROPAGATE_EXCEPTIONS"] = False
    assert client.get(SEARCH).status_code == 500
    client.application.after_request_funcs[None].remove(fail)
    assert client.get(SEARCH).status_code == 200


def test_deadline_ends_a_revalidation_and_the_final_one_is_503(
    app: Flask, client: FlaskClient
) -> None:
    assert client.get(SEARCH).status_code == 200
    app.extensions["database"].set_deadline(-1)
    with pytest.raises(DeadlineExceeded):
        client.get(SEARCH)
    app.extensions["database"].set_deadline(-1, is_final=True)
    response = client.get(SEARCH)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    app.extensions["database"].set_deadline(60)
    assert client.get(SEARCH).status_code == 200


def is_cached(client: FlaskClient, path: str) -> bool:
    deadline = client.application.extensions["database"].deadline
    deadline.only_cached = True
    try:
        return client.get(path).status_code == 200
    except WouldBlock:
        return False
    finally:
        deadline.only_cached = False


def searches(client: FlaskClient, *words: str, **headers: str) -> list[str]:
    """Search for each of the words, and return those of them whose responses are cached."""
    for word in words:
        client.get(f"{SEARCH}?q={word}", headers=headers)
    return [word for word in "abcdef" if is_cached(client, f"{SEARCH}?q={word}")]


def test_least_recently_used_response_is_evicted(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = response_cache.ENTRY_OVERHEAD + 1000
    monkeypatch.setattr(response_cache, "MAX_BYTES", 2 * size)
    assert searches(client, "a", "b") == ["a", "b"]
    client.get(f"{SEARCH}?q=a")
    assert searches(client, "d") == ["a", "d"]


def test_key_and_compressed_body_count(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = client.application.extensions["response_cache"]
    client.get(f"{SEARCH}?scope={'x' * 100_000}")
    assert cache.size() > 400_000
    client.get(CLOCK)
    before = cache.size()
    response = client.get(CLOCK, headers={"Accept-Encoding": "gzip"})
    assert cache.size() == before + len(response.data)
    client.get(CLOCK, headers={"Accept-Encoding": "gzip"})
    assert cache.size() == before + len(response.data)


def test_one_response_larger_than_the_cache_is_cached_besides_the_others(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_cache, "MAX_BYTES", response_cache.ENTRY_OVERHEAD + 2500)
    client.get(f"{SEARCH}?q=none")
    client.get(REGISTRY)
    assert [is_cached(client, path) for path in (f"{SEARCH}?q=none", REGISTRY)] == [True, True]
    client.get(CLOCK)
    assert [is_cached(client, path) for path in (f"{SEARCH}?q=none", REGISTRY)] == [True, False]


def test_hits_and_misses_are_counted(client: FlaskClient) -> None:
    cache = client.application.extensions["response_cache"]
    for _ in range(3):
        client.get(SEARCH)
    client.get("/api/v1/widgets/acme/none")
    assert (cache.hits, cache.misses) == (2, 1)


def test_changes_list_the_etags_of_details(app_with: AppWith) -> None:
    client = app_with(document("acme/clock", version())).test_client()
    (change,) = client.get("/api/v1/widgets/changes").json["changes"]
    assert change["etag"] == client.get(CLOCK).headers["ETag"]
