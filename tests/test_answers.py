"""The response cache: how much memory it may take, and what its entries share."""

from collections.abc import Callable

from flask.testing import FlaskClient

from catalog.answers import MAX_BYTES, CachedResponse, ResponseCache


def entry(size: int) -> CachedResponse:
    return CachedResponse(0, "r", None, (b"",), names_held_bundles=False, size=size)


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
