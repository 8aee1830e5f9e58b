"""The response cache: its limits of memory, and large responses that are rendered one at a time."""

from collections.abc import Callable

from builders import document, version
from flask import Flask
from flask.testing import FlaskClient

from catalog.api.cached_response import CachedResponse
from catalog.api.response_cache import MAX_BYTES, ResponseCache
from catalog.store.read.search_params import parse_search

REGISTRY = "/api/widgets/acme/registry.json"


def entry(size: int) -> CachedResponse:
    return CachedResponse("r", (0, 0), (b"",), "digest", 0, held_bundles=0, size=size)


def cached_keys(cache: ResponseCache, *keys: str) -> list[str]:
    return [key for key in keys if cache.get(key)]


def test_least_recently_used_response_is_evicted() -> None:
    cache = ResponseCache()
    for key in ("a", "b"):
        cache.put(key, entry(MAX_BYTES // 2))
    assert cache.get("a")
    cache.put("c", entry(MAX_BYTES // 2))
    assert cached_keys(cache, "a", "b", "c") == ["a", "c"]


def test_one_response_larger_than_the_cache_is_cached_besides_the_others() -> None:
    cache = ResponseCache()
    cache.put("small", entry(MAX_BYTES))
    for key in ("first", "second"):
        cache.put(key, entry(MAX_BYTES + 1))
    assert cached_keys(cache, "small", "first", "second") == ["small", "second"]


def test_memory_of_the_key_counts(client_with: Callable[..., FlaskClient]) -> None:
    client = client_with()
    query = {"scope": "x" * 100_000}
    client.get("/api/v1/widgets/search", query_string=query)
    cache: ResponseCache = client.application.extensions["response_cache"]
    cached = cache.get(parse_search(query))
    assert cached is not None
    assert cached.size > 400_000


def test_request_waits_for_a_registry_that_is_being_rendered_until_its_deadline(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(document("acme/clock", version()))
    database, cache = app.extensions["database"], app.extensions["response_cache"]
    with cache.render_lock:
        database.set_deadline(0.1, is_final=True)
        assert app.test_client().get(REGISTRY).status_code == 503
    database.set_deadline(60, is_final=True)
    assert app.test_client().get(REGISTRY).status_code == 200


def test_io_thread_does_not_wait_for_a_registry_that_is_being_rendered(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(document("acme/clock", version()))
    database, cache = app.extensions["database"], app.extensions["response_cache"]
    database.check()
    database.mark_io_thread()
    with cache.render_lock:
        assert app.test_client().get(REGISTRY).status_code == 200
