"""/api/widgets/{scope}/registry.json: all listed widgets of a scope in one response."""

import json
from collections.abc import Iterator

from flask import Blueprint, Response, abort

from ..store.connection.sqlite import Connection, snapshot
from ..store.read import json_sql
from ..store.read.detail import revalidate_content
from ..text import quoted
from .response_cache import RenderResult, render_for_cache

# Rendered by one statement. A body can be as large as the catalog; in one piece, SQLite and Python
# would each hold a copy of it.
WIDGETS_PER_PIECE = 250

registry = Blueprint("registry", __name__)


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    return render_for_cache(
        revalidate_content, lambda connection: render_registry(connection, scope)
    )


# The registry has no download counts, so installs do not change it.
REGISTRY_REVISION = "SELECT content FROM revision"


def render_registry(connection: Connection, scope: str) -> RenderResult:
    """Return the revision and the JSON of the registry; 404 if no widget is listed."""
    with snapshot(connection):
        (content,) = connection.execute(REGISTRY_REVISION).fetchone()
        pieces = list(render_pieces(connection, scope))
    if not pieces:
        abort(404, f"There is no widget in the scope {quoted(scope)}.")
    name = json.dumps(scope, ensure_ascii=False).encode()
    pieces[0] = b'{"scope":%b,"widgets":[%b' % (name, pieces[0])
    pieces[-1] += b"]}\n"
    return content, pieces


REGISTRY_PIECE = f"""
SELECT count(*), max(name), CAST(group_concat(text) AS BLOB) FROM (
    SELECT name, {json_sql.REGISTRY_WIDGET} AS text FROM widget
    WHERE scope = :scope AND name > :after AND listed
    ORDER BY name LIMIT :limit)
"""


def render_pieces(connection: Connection, scope: str) -> Iterator[bytes]:
    """Yield the JSON of the widgets by name; every piece but the first begins with a comma."""
    values: dict[str, object] = {"scope": scope, "after": "", "limit": WIDGETS_PER_PIECE}
    comma, count = b"", WIDGETS_PER_PIECE
    while count == WIDGETS_PER_PIECE:
        count, values["after"], text = connection.execute(REGISTRY_PIECE, values).fetchone()
        if count:
            yield comma + text
        comma = b","
