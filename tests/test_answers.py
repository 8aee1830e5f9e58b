"""The response cache: how much memory it may take, and what its entries share."""

from collections.abc import Callable

from builders import document, version
from flask import Flask
from flask.testing import FlaskClient

from catalog.api.response_cache import MAX_BYTES, CachedResponse, ResponseCache


def entry(size: int) -> CachedResponse:
    return CachedResponse(0, "r", (0, 0), (b"",), "digest", 0, held_bundles=0, size=size)


def test_what_was_used_longest_ago_is_evicted_where_there_is_no_room() -> None:
    cache = ResponseCache()
    for key in ("a", "b"):
        cache.put(key, entry(MAX_BYTES // 2))
    assert cache.get("a")
    cache.put("c", entry(MAX_BYTES // 2))
    assert [key for key in ("a", "b", "c") if cache.get(key)] == ["a", "c"]


def test_one_response_larger_than_the_cache_is_kept_beside_the_others() -> None:
    cache = ResponseCache()
    cache.put("small", entry(MAX_BYTES))
    for key in ("first", "second"):
        cache.put(key, entry(MAX_BYTES + 1))
    assert [key for key in ("small", "first", "second") if cache.get(key)] == ["small", "second"]


def test_key_counts_as_memory(client_with: Callable[..., FlaskClient]) -> None:
    client = client_with()
    client.get("/api/v1/widgets/search", query_string={"scope": "x" * 100_000})
    (cached,) = client.application.extensions["response_cache"]._entries.values()
    assert cached.size > 400_000


REGISTRY = "/api/widgets/acme/registry.json"


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
