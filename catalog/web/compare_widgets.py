"""The page that compares two widgets, for people choosing between them."""

from flask import Response, current_app, render_template, request

from ..domain.documents import Json
from ..domain.messages import quoted
from ..store.connection.sqlite import Connection, snapshot
from ..store.read.about import find_about
from ..store.read.detail import LATEST
from ..store.read.listed_widgets import find_listed_widget
from . import widget_queries
from .pages import page_response, pages, reader
from .parameters import read_parameters


@pages.get("/compare")
def compare_widgets() -> Response:
    connection, parameters = reader(), read_parameters()
    names = [text.strip() for text in request.args.getlist("with")][:2]
    chosen = [*names, "", ""][:2]
    with snapshot(connection):
        found = [load_compared(connection, name, parameters.sdk) for name in chosen]
    errors = {
        number: f"There is no widget {quoted(name)}." if name else "Enter scope/name."
        for number, (name, each) in enumerate(zip(chosen, found, strict=True), 1)
        # Without names, the page shows an empty form and no errors.
        if each is None and any(chosen)
    }
    connection.check_deadline()
    page = render_template(
        "compare_widgets.html",
        parameters=parameters,
        chosen=chosen,
        errors=errors,
        compared=[each for each in found if each] if all(found) else [],
    )
    return page_response(page, 400 if errors else parameters.status)


def load_compared(connection: Connection, path: str, sdk: str) -> Json | None:
    """Return a widget, its best version for the SDK, and its picture; None if not found."""
    scope, _, name = path.partition("/")
    found = find_listed_widget(connection, scope, name)
    if found is None:
        return None
    _, widget = found
    about = find_about(connection, current_app.extensions["bundles"], scope, name)
    version = widget_queries.load_version(
        connection, widget, LATEST, sdk, stable=True
    ) or widget_queries.load_version(connection, widget, LATEST, sdk)
    return {"widget": widget, "version": version, "picture": about and about[1]["picture"]}
