"""The pages of a widget, of one of its versions, and of two versions compared.

A page reads only the versions that it shows: a widget can have thousands of them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from flask import Response, abort, render_template, request, url_for

from ..documents import Json
from ..routing import public_url
from ..semver_ranges import is_version
from ..store.connection.sqlite import Connection, snapshot
from ..store.read.detail import LATEST
from ..store.read.updates import Installed, find_advice
from ..text import quoted
from . import widget_queries
from .browse import field_errors
from .caching import page_response
from .charts import releases_chart
from .formatting import page_numbers
from .forms import SdkField, read_sdk
from .install_chart import load_install_chart
from .pages import pages, reader
from .version_differences import compare_versions, permission_changes
from .widget_queries import VersionsFilter

VERSIONS_PER_PAGE = 100
# The most versions that the form for a comparison lists.
MAX_OPTIONS = 100


class WidgetForm(NamedTuple):
    """The fields of a widget's page: the SDK, the filter and the page of the versions."""

    sdk_input: str
    sdk: SdkField
    shown: VersionsFilter
    page: int
    errors: Mapping[str, str]


def read_form() -> WidgetForm:
    """Return the fields in the query string; an invalid one is an error and not used."""
    values = {name: request.args.get(name, "") for name in ("compatSdk", "page", *CHECKBOXES)}
    sdk = read_sdk(values["compatSdk"])
    errors = field_errors({"page": values["page"]} if values["page"] else {})
    if sdk.error:
        errors["compatSdk"] = sdk.error
    for name in CHECKBOXES:
        if values[name] not in ("", "true", "false"):
            errors[name] = f"{name} must be true or false, not {quoted(values[name])}."
    checked = [values[name] == "true" for name in CHECKBOXES]
    return WidgetForm(
        sdk_input=values["compatSdk"].strip(),
        sdk=sdk,
        shown=VersionsFilter(sdk.sdk, *checked),
        page=1 if "page" in errors else int(values["page"] or 1),
        errors=errors,
    )


# The parameters of the last two fields of VersionsFilter, in their order.
CHECKBOXES = ("compatible", "stable")


@pages.get("/widgets/<scope>/<name>")
def widget(scope: str, name: str) -> Response:
    return page_response(render_widget(scope, name))


def render_widget(scope: str, name: str) -> tuple[str, int]:
    connection, form = reader(), read_form()
    # Every statement must see the same versions.
    with snapshot(connection):
        widget_id, found = find_widget(connection, scope, name)
        selection = select_version(connection, widget_id, found, form.sdk.sdk)
        table = load_table(connection, widget_id, found, form)
        months, majors = widget_queries.load_release_months(connection, widget_id)
        numbers = widget_queries.load_numbers(connection, widget_id, MAX_OPTIONS)
        installs = load_install_chart(connection, found)
    connection.check_deadline()
    page = render_template(
        "widget.html",
        widget=found,
        form=form,
        errors=form.errors,
        sdk=form.sdk.sdk,
        **selection,
        **table,
        chart=releases_chart(months, majors),
        numbers=numbers,
        installs=installs,
    )
    return page, 400 if form.errors else 200


def find_widget(connection: Connection, scope: str, name: str) -> tuple[int, Json]:
    """Return the id and the JSON of a listed widget; 404 if there is none."""
    found = widget_queries.find_widget(connection, scope, name)
    if found is None:
        abort(404, f"There is no widget {quoted(f'{scope}/{name}')}.")
    return found


def select_version(connection: Connection, widget_id: int, found: Json, sdk: str) -> Json:
    """Return the latest version, the one to install, and what its permissions changed."""
    url = public_url()
    latest = widget_queries.load_version(connection, found, LATEST, url)
    compatible = widget_queries.load_version(connection, found, LATEST, url, sdk) if sdk else latest
    selected = compatible or latest
    older, changes = None, None
    if selected:
        older = widget_queries.find_neighbour(
            connection, widget_queries.OLDER_AVAILABLE, widget_id, selected["version"]
        )
        changes = permission_changes(older, selected) if older else None
    return {
        "latest": latest,
        "latest_compatible": compatible if sdk else None,
        # Shown in the facts; it can be installed only if it runs on the SDK.
        "selected": selected,
        "older": older,
        "permission_changes": changes,
    }


def load_table(connection: Connection, widget_id: int, found: Json, form: WidgetForm) -> Json:
    """Return the versions of one page of the table, with their number and the other pages."""
    shown = form.shown
    total = widget_queries.count_versions(connection, widget_id, VersionsFilter())
    matching = widget_queries.count_versions(connection, widget_id, shown)
    last = max(-(-matching // VERSIONS_PER_PAGE), 1)
    versions = widget_queries.load_versions(
        connection,
        widget_id,
        found["name"],
        shown,
        public_url(),
        limit=VERSIONS_PER_PAGE,
        offset=(form.page - 1) * VERSIONS_PER_PAGE,
    )
    arguments = {
        "scope": found["scope"],
        "name": found["name"],
        "compatSdk": form.sdk_input or None,
        "compatible": "true" if shown.only_compatible else None,
        "stable": "true" if shown.only_stable else None,
        "_anchor": "versions",
    }
    return {
        "total": total,
        "matching": matching,
        "versions": versions,
        "links": pager_links("pages.widget", arguments, form.page, last),
    }


def pager_links(
    endpoint: str, arguments: Mapping[str, Any], page: int, last: int
) -> list[tuple[int, str] | None]:
    """Return the number and URL of each page in a pager; None for a gap."""
    return [
        (number, url_for(endpoint, **{**arguments, "page": number})) if number else None
        for number in page_numbers(min(page, last), last)
    ]


@pages.get("/widgets/<scope>/<name>/<version>")
def version(scope: str, name: str, version: str) -> Response:
    return page_response(render_version(scope, name, version))


def render_version(scope: str, name: str, number: str) -> tuple[str, int]:
    connection, sdk = reader(), read_sdk(request.args.get("compatSdk", ""))
    with snapshot(connection):
        widget_id, found = find_widget(connection, scope, name)
        entry = load_numbered(connection, found, number)
        if entry is None:
            return render_template("version_missing.html", widget=found, number=number), 404
        older, newer = (
            widget_queries.find_neighbour(connection, statement, widget_id, number)
            for statement in (widget_queries.OLDER, widget_queries.NEWER)
        )
        latest = widget_queries.load_version(connection, found, LATEST, public_url())
        better = None
        if entry["yanked"] or entry["deprecationMessage"] is not None:
            better = find_advice(connection, Installed(scope, name, number), sdk.sdk or None)
    connection.check_deadline()
    page = render_template(
        "version.html",
        widget=found,
        entry=entry,
        older=older,
        newer=newer,
        latest=latest,
        advice=better,
        sdk=sdk.sdk,
    )
    return page, 200


def load_numbered(connection: Connection, found: Json, number: str) -> Json | None:
    """Return the version with this number; None if there is none."""
    # LATEST is no number.
    if not is_version(number):
        return None
    return widget_queries.load_version(connection, found, number, public_url())


@pages.get("/widgets/<scope>/<name>/compare")
def compare(scope: str, name: str) -> Response:
    return page_response(render_comparison(scope, name))


def render_comparison(scope: str, name: str) -> tuple[str, int]:
    connection = reader()
    numbers = {field: request.args.get(field, "").strip() for field in ("from", "to")}
    with snapshot(connection):
        widget_id, found = find_widget(connection, scope, name)
        entries = {
            field: load_numbered(connection, found, number) for field, number in numbers.items()
        }
        options = widget_queries.load_numbers(connection, widget_id, MAX_OPTIONS)
    errors = {
        field: f"There is no version {quoted(numbers[field])}." if numbers[field] else "Choose one."
        for field, entry in entries.items()
        # Without any field, it is an empty form.
        if entry is None and any(numbers.values())
    }
    older, newer = entries["from"], entries["to"]
    connection.check_deadline()
    page = render_template(
        "compare.html",
        widget=found,
        chosen=numbers,
        numbers=options,
        errors=errors,
        older=older,
        newer=newer,
        comparison=compare_versions(older, newer) if older and newer else None,
    )
    return page, 400 if errors else 200
