"""What the pages read from the catalog: search results, one widget, the scopes.

The API's q matches display names and descriptions only. People also type focus-timer or
acme/weather, so the browse page lists widgets with that name before the results.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from catalog.documents import Json
from catalog.store.detail import find_detail
from catalog.store.json_sql import with_bundle_urls
from catalog.store.search import find_widgets
from catalog.store.search_params import SearchQuery, parse_search
from catalog.store.sqlite import Connection
from catalog.store.updates import UpdatesQuery, find_updates


def load_results(connection: Connection, arguments: Mapping[str, str], public_url: str) -> Json:
    """Return what the API responds to these arguments; raise ParameterError."""
    return _search(connection, parse_search(arguments), public_url)


def load_widgets_named(
    connection: Connection, arguments: Mapping[str, str], public_url: str
) -> list[Json]:
    """Return the widgets that have q as their name, without those that the search itself finds."""
    query = parse_search(arguments)
    if not query.q:
        return []
    by_name = replace(query, name=arguments["q"].strip(), page=1)
    widgets: list[Json] = _search(connection, by_name, public_url)["widgets"]
    return widgets


def load_widget(connection: Connection, scope: str, name: str, public_url: str) -> Json | None:
    """Return a listed widget with its versions, as the API does; None if there is none."""
    detail = find_detail(connection, scope, name)
    if detail is None:
        return None
    _, body = detail
    return _parse(body, public_url)


def load_updates(connection: Connection, query: UpdatesQuery, public_url: str) -> Json:
    """Return what the API responds for these installed versions."""
    _, body = find_updates(connection, query)
    return _parse(body, public_url)


SCOPES = """
SELECT scope FROM listing GROUP BY scope ORDER BY count(*) DESC, scope LIMIT :limit
"""


def load_scopes(connection: Connection, limit: int) -> set[str]:
    """Return the scopes with the most listed widgets."""
    return {scope for (scope,) in connection.execute(SCOPES, {"limit": limit})}


def _search(connection: Connection, query: SearchQuery, public_url: str) -> Json:
    _, body = find_widgets(connection, query)
    return _parse(body, public_url)


def _parse(body: bytes, public_url: str) -> Json:
    value: Json = json.loads(with_bundle_urls(body, public_url))
    return value
