"""The pages of a widget and of one of its versions.

A page reads only the versions that it shows: a widget can have thousands of them.
"""

from itertools import pairwise

from flask import Response, current_app, redirect, render_template, url_for
from werkzeug import Response as BaseResponse

from ..documents import Json
from ..installed_list import Installed
from ..semver_ranges import is_version, satisfies
from ..store.connection.sqlite import Connection, snapshot
from ..store.read.about import find_about, find_origin
from ..store.read.detail import LATEST
from ..store.read.updates import find_advice
from ..store.schema.sdk_intervals import sdk_key
from ..update_rule import Advice
from . import widget_queries
from .browse import pager_links
from .compare import permission_changes
from .install_chart import load_install_chart
from .pages import page_response, pages, reader
from .parameters import Parameters, read_parameters

VERSIONS_PER_PAGE = 100
# How many of them a narrow screen shows at first, or more: up to the one for the SDK.
UNFOLDED_VERSIONS = 4


@pages.get("/widgets/<scope>/<name>")
def widget(scope: str, name: str) -> Response:
    connection, parameters = reader(), read_parameters("compatible", "stable", "page")
    # Every statement must see the same versions.
    with snapshot(connection):
        widget_id, found = widget_queries.find_widget(connection, scope, name)
        selection = select_version(connection, widget_id, found, parameters.sdk)
        history = widget_queries.load_history(connection, widget_id)
        table = load_table(connection, widget_id, selection, parameters, history["total"])
        installs = load_install_chart(connection, found)
        about = find_about(connection, current_app.extensions["bundles"], scope, name)
        origin = find_origin(connection, scope, name)
    connection.check_deadline()
    page = render_template(
        "widget.html",
        about=about[1] if about else {},
        origin=origin,
        parameters=parameters,
        sdk=parameters.sdk,
        history=history,
        **selection,
        **table,
        installs=installs,
    )
    return page_response(page, parameters.status)


def select_version(connection: Connection, widget_id: int, found: Json, sdk: str) -> Json:
    """Return the latest version, the one to install, and what its permissions changed."""
    latest = widget_queries.load_version(connection, found, LATEST)
    compatible = widget_queries.load_version(connection, found, LATEST, sdk) if sdk else latest
    selected = compatible or latest
    older, changes = None, None
    if selected:
        older = widget_queries.find_neighbour(
            connection, widget_queries.OLDER_AVAILABLE, widget_id, selected["version"]
        )
        changes = permission_changes(older, selected) if older else None
    is_deprecated = latest is not None and latest["deprecationMessage"] is not None
    return {
        "widget": found,
        "latest": latest,
        "withdrawn": find_withdrawn(connection, widget_id, latest, sdk) if latest else None,
        "is_deprecated": is_deprecated and not widget_queries.is_supported(connection, widget_id),
        # The facts of a version are shown even if it does not run on the SDK.
        "selected": selected,
        "runs": compatible is not None,
        "older": older,
        "permission_changes": changes,
    }


def find_withdrawn(
    connection: Connection, widget_id: int, latest: Json, sdk: str
) -> tuple[Json, Advice | None] | None:
    """Return the newest version if it is yanked, and what to do about it; else None."""
    (newest,) = widget_queries.load_numbers(connection, widget_id, 1)
    is_latest = newest == latest["version"]
    entry = None if is_latest else widget_queries.load_numbered(connection, latest, newest)
    if entry is None:
        return None
    installed = Installed(entry["scope"], entry["name"], newest)
    return entry, find_advice(connection, installed, sdk or None)


def load_table(
    connection: Connection, widget_id: int, selection: Json, parameters: Parameters, total: int
) -> Json:
    """Return the versions of one page of the table, with their number and the other pages."""
    found, selected = selection["widget"], selection["selected"]
    page = parameters.page
    shown = {
        "widget_id": widget_id,
        "sdk": sdk_key(parameters.sdk) if parameters.sdk else None,
        "only_compatible": parameters.is_true("compatible"),
        "only_stable": parameters.is_true("stable"),
    }
    is_filtered = shown["only_compatible"] or shown["only_stable"]
    matching = widget_queries.count_versions(connection, shown) if is_filtered else total
    offset = (page - 1) * VERSIONS_PER_PAGE
    # One more, with which the last one is compared.
    versions = widget_queries.load_versions(
        connection, shown, limit=VERSIONS_PER_PAGE + 1, offset=offset
    )
    for entry, previous in pairwise(versions):
        entry["previous"] = previous["version"]
    numbers = [entry["version"] for entry in versions]
    place = numbers.index(selected["version"]) if selected and selected["version"] in numbers else 0
    valid = {name: value for name, value in parameters.valid.items() if value != "false"}
    # What the page links to, with one of the filters changed.
    arguments = {**valid, "scope": found["scope"], "name": found["name"], "_anchor": "versions"}
    return {
        "matching": matching,
        "versions": versions[:VERSIONS_PER_PAGE],
        "unfolded": max(place + 1, UNFOLDED_VERSIONS),
        "arguments": {**arguments, "page": None},
        "links": pager_links("pages.widget", arguments, page, matching, VERSIONS_PER_PAGE),
    }


@pages.get("/widgets/<scope>/<name>/<version>")
def version(scope: str, name: str, version: str) -> BaseResponse:
    connection, parameters = reader(), read_parameters()
    sdk, runs, replacement, advice = parameters.sdk, True, None, None
    with snapshot(connection):
        widget_id, found = widget_queries.find_widget(connection, scope, name)
        number = find_number(connection, found, version, sdk)
        if number != version:
            return redirect(url_for("pages.version", scope=scope, name=name, version=number))
        entry = widget_queries.load_numbered(connection, found, number)
        if entry is None:
            page = render_template("version_missing.html", widget=found, number=number)
            return page_response(page, 404)
        older, newer = (
            widget_queries.find_neighbour(connection, statement, widget_id, number)
            for statement in (widget_queries.OLDER, widget_queries.NEWER)
        )
        latest = widget_queries.load_version(connection, found, LATEST)
        if sdk and not satisfies(sdk, entry["sdkVersion"]):
            runs = False
            replacement = widget_queries.load_version(connection, found, LATEST, sdk)
        if entry["yanked"] or entry["deprecationMessage"] is not None:
            advice = find_advice(connection, Installed(scope, name, number), sdk or None)
    connection.check_deadline()
    page = render_template(
        "version.html",
        widget=found,
        parameters=parameters,
        sdk=sdk,
        entry=entry,
        runs=runs,
        replacement=replacement,
        advice=advice,
        older=older,
        newer=newer,
        latest=latest,
    )
    return page_response(page, parameters.status)


def find_number(connection: Connection, found: Json, text: str, sdk: str) -> str:
    """Return the number that a person means: latest and v1.0.0 stand for one."""
    if text == LATEST:
        latest = widget_queries.load_version(connection, found, LATEST, sdk)
        return str(latest["version"]) if latest else text
    return text[1:] if text.startswith("v") and is_version(text[1:]) else text
