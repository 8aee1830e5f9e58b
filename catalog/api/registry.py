"""/api/widgets/{scope}/registry.json: a whole scope in one response, fit for edge caching."""

import json
from collections.abc import Iterator

from flask import Blueprint, Response, abort

from catalog.api.response_cache import RenderResult, respond
from catalog.store import json_sql
from catalog.store.sqlite import Connection, snapshot
from catalog.text import quoted

# Rendered by one statement. More at once would have SQLite and Python hold a copy each of a body
# that can be as large as the catalog.
WIDGETS_PER_PIECE = 250

registry = Blueprint("registry", __name__)


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    return respond(
        ("registry", scope),
        revalidate_registry,
        lambda connection: render_registry(connection, scope),
        can_be_large=True,
    )


UNCHANGED = "SELECT 1 FROM revision WHERE content = :content"


def revalidate_registry(connection: Connection, seen: dict[str, int]) -> dict[str, int] | None:
    return seen if connection.execute(UNCHANGED, seen).fetchone() else None


def render_registry(connection: Connection, scope: str) -> RenderResult:
    with snapshot(connection):
        (content,) = connection.execute("SELECT content FROM revision").fetchone()
        pieces = list(widget_pieces(connection, scope))
    if not pieces:
        abort(404, f"There is no widget in the scope {quoted(scope)}.")
    name = json.dumps(scope, ensure_ascii=False).encode()
    pieces[0] = b'{"scope":%b,"widgets":[%b' % (name, pieces[0])
    pieces[-1] += b"]}\n"
    return {"content": content}, tuple(pieces)


PIECE = f"""
SELECT count(*), max(name), CAST(group_concat(text) AS BLOB) FROM (
    SELECT name, {json_sql.REGISTRY_WIDGET} AS text FROM widget
    WHERE scope = :scope AND name > :after AND listed
    ORDER BY name LIMIT :limit)
"""


def widget_pieces(connection: Connection, scope: str) -> Iterator[bytes]:
    """The JSON of the listed widgets by name, with a comma before each piece but the first."""
    values: dict[str, object] = {"scope": scope, "after": "", "limit": WIDGETS_PER_PIECE}
    comma, count = b"", WIDGETS_PER_PIECE
    while count == WIDGETS_PER_PIECE:
        count, values["after"], text = connection.execute(PIECE, values).fetchone()
        if count:
            yield comma + text
        comma = b","
