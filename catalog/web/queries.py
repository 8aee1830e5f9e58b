"""What the pages read from the catalog: search results, one widget, updates."""

import json
from collections.abc import Mapping

from ..documents import Json
from ..store.connection.sqlite import Connection
from ..store.read.detail import find_detail
from ..store.read.json_sql import with_bundle_urls
from ..store.read.search import find_widgets
from ..store.read.search_params import SearchQuery, parse_search
from ..store.read.updates import UpdatesQuery, find_updates


def load_results(connection: Connection, arguments: Mapping[str, str], public_url: str) -> Json:
    """Return what the API responds to these arguments; raise ParameterError."""
    return search_widgets(connection, parse_search(arguments), public_url)


def search_widgets(connection: Connection, query: SearchQuery, public_url: str) -> Json:
    """Return what the API responds to this search."""
    _, body = find_widgets(connection, query)
    return _parse(body, public_url)


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


def _parse(body: bytes, public_url: str) -> Json:
    value: Json = json.loads(with_bundle_urls(body, public_url))
    return value
