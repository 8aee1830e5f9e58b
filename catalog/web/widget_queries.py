"""Widgets and versions for the pages: a missing widget is a 404, and bundle URLs are absolute."""

from flask import abort

from ..domain.documents import Json
from ..domain.messages import quoted
from ..domain.semver_ranges import is_version
from ..store.connection.sqlite import Connection
from ..store.read.candidates import Candidates
from ..store.read.detail import find_version
from ..store.read.listed_widgets import find_listed_widget
from .pages import parse_body


def load_widget(connection: Connection, scope: str, name: str) -> tuple[int, Json]:
    """Return the id and the JSON of a listed widget, without versions; respond 404 if missing."""
    found = find_listed_widget(connection, scope, name)
    if found is None:
        abort(404, f"There is no widget {quoted(f'{scope}/{name}')}.")
    return found


def load_version(
    connection: Connection, widget: Json, number: str, sdk: str = "", *, stable: bool = False
) -> Json | None:
    """Return a version, or LATEST, as the API returns it; None if there is no such version."""
    candidates = Candidates(sdk or None, stable)
    found = find_version(connection, widget["scope"], widget["name"], number, candidates)
    if found is None or found[1] is None:
        return None
    version: Json = parse_body(found[1])
    return version


def load_numbered(connection: Connection, widget: Json, number: str) -> Json | None:
    """Return the version with this number; None if it does not exist."""
    # LATEST is not a version number.
    return load_version(connection, widget, number) if is_version(number) else None
