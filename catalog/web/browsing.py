"""What the browse page lists: the results of a search, and a widget whose own name was typed.

The API's q reads display names and descriptions only. A person also types focus-timer or
acme/weather, so the page shows such a widget before the results.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from catalog.documents import Json
from catalog.store.json_sql import with_bundle_urls
from catalog.store.search import find_widgets
from catalog.store.search_params import SearchQuery, parse_search
from catalog.store.sqlite import Connection


def search_page(connection: Connection, arguments: Mapping[str, str], public_url: str) -> Json:
    """The response of the API to these arguments; raises ParameterError."""
    return _found(connection, parse_search(arguments), public_url)


def widgets_named(
    connection: Connection, arguments: Mapping[str, str], public_url: str
) -> list[Json]:
    """The widgets with what was typed as their name, unless the search itself finds them."""
    search = parse_search(arguments)
    typed = arguments.get("q", "").strip()
    if not search.q:
        return []
    named: list[Json] = _found(connection, replace(search, name=typed, page=1), public_url)[
        "widgets"
    ]
    return named


def _found(connection: Connection, search: SearchQuery, public_url: str) -> Json:
    _, body = find_widgets(connection, search)
    response: Json = json.loads(with_bundle_urls(body, public_url))
    return response
