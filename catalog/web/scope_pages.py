"""The page of a scope: its widgets, totals, registry and feed."""

from typing import NamedTuple

from flask import Response, abort, render_template, request

from ..routing import public_url
from ..store.connection.sqlite import Connection, snapshot
from ..text import quoted
from .browse import PAGE_SIZE, field_errors
from .caching import page_response
from .pages import pages, reader
from .queries import load_results
from .widget_pages import pager_links


class Totals(NamedTuple):
    """The listed widgets of a scope, their installs as far as they are known, their versions."""

    widgets: int
    installs: int
    versions: int


TOTALS = """
SELECT count(*), coalesce(sum(max(downloads, 0)), 0),
    (SELECT count(*) FROM listing CROSS JOIN version USING (widget_id) WHERE scope = :scope)
FROM listing WHERE scope = :scope
"""


@pages.get("/widgets/<scope>")
def scope(scope: str) -> Response:
    return page_response(render_scope(scope))


def render_scope(scope: str) -> tuple[str, int]:
    connection = reader()
    number = request.args.get("page", "")
    errors = field_errors({"page": number} if number else {})
    arguments = {"scope": scope, "limit": str(PAGE_SIZE), "page": "" if errors else number}
    with snapshot(connection):
        totals = load_totals(connection, scope)
        results = load_results(connection, arguments, public_url())
    connection.check_deadline()
    last = -(-totals.widgets // PAGE_SIZE)
    page = render_template(
        "scope.html",
        scope=scope,
        totals=totals,
        results=results,
        links=pager_links("pages.scope", {"scope": scope}, results["page"], last),
        errors=errors,
    )
    return page, 400 if errors else 200


def load_totals(connection: Connection, scope: str) -> Totals:
    """Return the totals of a scope; 404 if it has no listed widget."""
    totals = Totals(*connection.execute(TOTALS, {"scope": scope}).fetchone())
    if not totals.widgets:
        abort(404, f"There is no widget in the scope {quoted(scope)}.")
    return totals
