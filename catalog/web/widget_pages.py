"""The pages for a widget and its versions.

A page reads only the versions that it shows: a widget can have thousands of versions.
"""

from dataclasses import replace
from itertools import pairwise

from flask import Response, current_app, redirect, render_template, url_for
from werkzeug import Response as BaseResponse

from ..domain.documents import Json
from ..domain.installed_list import Installed
from ..domain.semver_ranges import is_prerelease, is_version, satisfies
from ..domain.update_rule import Advice
from ..store.connection.sqlite import Connection, snapshot
from ..store.read import widget_versions
from ..store.read.about import find_about, find_origin
from ..store.read.candidates import AVAILABLE, Candidates
from ..store.read.detail import LATEST
from ..store.read.listed_widgets import find_similar_widgets
from ..store.read.updates import find_advice
from . import widget_queries
from .browse import pager_links, parse_query, search_widgets
from .compare import permission_changes
from .install_chart import load_install_chart
from .pages import page_response, pages, reader
from .parameters import Parameters, read_parameters
from .sdk_support import support_table

VERSIONS_PER_PAGE = 100
# A narrow screen first shows this many versions, or more to include the selected version.
UNFOLDED_VERSIONS = 4
# The maximum number of links to widgets in the same scope, and to similar widgets.
MAX_OTHERS = 3


@pages.get("/widgets/<scope>/<name>")
def widget(scope: str, name: str) -> Response:
    connection, parameters = reader(), read_parameters("compatible", "stable", "page")
    # Every statement must see the same versions.
    with snapshot(connection):
        widget_id, found = widget_queries.load_widget(connection, scope, name)
        history = widget_versions.read_history(connection, widget_id)
        selection = select_version(connection, widget_id, found, parameters.sdk)
        table = load_table(connection, widget_id, selection, parameters)
        installs = load_install_chart(connection, found)
        about = find_about(connection, current_app.extensions["bundles"], scope, name)
        origin = find_origin(connection, scope, name)
        others = {
            "more": find_more_in_scope(connection, found),
            "similar": find_similar_widgets(connection, widget_id, MAX_OTHERS),
        }
    connection.check_deadline()
    page = render_template(
        "widget.html",
        about=about[1] if about else {},
        origin=origin,
        parameters=parameters,
        sdk=parameters.sdk,
        history=history,
        is_deprecated=selection["latest"] is not None and not history["is_supported"],
        support=support_table(table["versions"] if parameters.page == 1 else []),
        **others,
        **selection,
        **table,
        installs=installs,
    )
    return page_response(page, parameters.status)


def find_more_in_scope(connection: Connection, found: Json) -> list[Json]:
    """Return the most installed other widgets in the same scope."""
    query = replace(parse_query({}), scope=found["scope"], limit=MAX_OTHERS + 1)
    widgets = search_widgets(connection, query)["widgets"]
    return [each for each in widgets if each["name"] != found["name"]][:MAX_OTHERS]


def select_version(connection: Connection, widget_id: int, found: Json, sdk: str) -> Json:
    """Return the latest version, the version to install, and how its permissions changed.

    The version to install is the newest stable one that runs on the SDK, or else a prerelease.
    """
    latest = widget_queries.load_version(connection, found, LATEST)
    stable = latest
    if latest and is_prerelease(latest["version"]):
        stable = widget_queries.load_version(connection, found, LATEST, stable=True) or latest
    compatible = stable
    if sdk:
        compatible = widget_queries.load_version(
            connection, found, LATEST, sdk, stable=True
        ) or widget_queries.load_version(connection, found, LATEST, sdk)
    selected = compatible or stable
    older, changes, prerelease = None, None, None
    if selected:
        prerelease = widget_versions.find_newer_prerelease(
            connection, widget_id, selected["version"], sdk or None
        )
        older = widget_versions.find_neighbour(
            connection, widget_versions.OLDER_AVAILABLE, widget_id, selected["version"]
        )
        changes = permission_changes(older, selected) if older else None
    return {
        "widget": found,
        "latest": latest,
        "withdrawn": find_withdrawn(connection, widget_id, latest, sdk) if latest else None,
        # The details of a version are shown even if it does not run on the SDK.
        "selected": selected,
        "runs": compatible is not None,
        "stable": stable,
        "prerelease": prerelease,
        "older": older,
        "permission_changes": changes,
    }


def find_withdrawn(
    connection: Connection, widget_id: int, latest: Json, sdk: str
) -> tuple[Json | None, Advice | None] | None:
    """Return the newest version if it is yanked, and what to do about it; else None."""
    _, (newest,) = widget_versions.list_versions(connection, widget_id, limit=1)
    if not newest["yanked"]:
        return None
    entry = widget_queries.load_numbered(connection, latest, newest["version"])
    installed = Installed(latest["scope"], latest["name"], newest["version"])
    return entry, find_advice(connection, installed, sdk or None)


def load_table(
    connection: Connection, widget_id: int, selection: Json, parameters: Parameters
) -> Json:
    """Return the versions on one page of the table, their total, and links to the other pages."""
    found, selected = selection["widget"], selection["selected"]
    page, sdk = parameters.page, parameters.sdk or None
    shown = Candidates(
        sdk if parameters.is_true("compatible") else None, parameters.is_true("stable")
    )
    matching, versions = widget_versions.list_versions(
        connection,
        widget_id,
        sdk,
        None if shown == AVAILABLE else shown,
        # Read one more version: the last version on the page links to a comparison with it.
        limit=VERSIONS_PER_PAGE + 1,
        offset=(page - 1) * VERSIONS_PER_PAGE,
    )
    for entry, previous in pairwise(versions):
        entry["previous"] = previous["version"]
    numbers = [entry["version"] for entry in versions]
    place = numbers.index(selected["version"]) if selected and selected["version"] in numbers else 0
    valid = {name: value for name, value in parameters.valid.items() if value != "false"}
    # Arguments for links that keep these filters or change one of them.
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
        widget_id, found = widget_queries.load_widget(connection, scope, name)
        number = find_number(connection, found, version, sdk)
        if number != version:
            return redirect(url_for("pages.version", scope=scope, name=name, version=number))
        entry = widget_queries.load_numbered(connection, found, number)
        if entry is None:
            page = render_template("version_missing.html", widget=found, number=number, sdk=sdk)
            return page_response(page, 404)
        older, newer = (
            widget_versions.find_neighbour(connection, statement, widget_id, number)
            for statement in (widget_versions.OLDER, widget_versions.NEWER)
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
    """Return the version number for a URL segment such as "latest" or "v1.0.0"."""
    if text == LATEST:
        latest = widget_queries.load_version(connection, found, LATEST, sdk)
        return str(latest["version"]) if latest else text
    return text[1:] if text.startswith("v") and is_version(text[1:]) else text
