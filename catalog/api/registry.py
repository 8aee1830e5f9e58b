"""/api/widgets/{scope}/registry.json: all listed widgets in a scope, in one response."""

import json

from flask import Blueprint, Response, abort

from ..domain.messages import quoted
from ..store.connection.revision import read_revision
from ..store.connection.sqlite import Connection, snapshot
from ..store.read.detail import revalidate_content
from ..store.read.registry import render_pieces
from .response_cache import RenderResult, render_for_cache

registry = Blueprint("registry", __name__)


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    return render_for_cache(
        revalidate_content, lambda connection: render_registry(connection, scope)
    )


def render_registry(connection: Connection, scope: str) -> RenderResult:
    """Return the registry's revision and JSON; respond 404 if the scope has no listed widget."""
    with snapshot(connection):
        # The registry does not show download counts, so installs do not change it.
        content = read_revision(connection).content
        pieces = list(render_pieces(connection, scope))
    if not pieces:
        abort(404, f"There is no widget in the scope {quoted(scope)}.")
    name = json.dumps(scope, ensure_ascii=False).encode()
    pieces[0] = b'{"scope":%b,"widgets":[%b' % (name, pieces[0])
    pieces[-1] += b"]}\n"
    return content, pieces
