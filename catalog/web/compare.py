"""The page that compares two versions: the differences, and the release notes in between."""

from flask import Response, render_template, request

from ..domain.documents import Json
from ..domain.messages import quoted
from ..store.connection.sqlite import snapshot
from ..store.read.widget_versions import MAX_NOTES, list_notes, list_versions
from . import widget_queries
from .formatting import format_bytes, format_day, format_number
from .pages import page_response, pages, reader
from .parameters import read_parameters

# The maximum number of versions in the form.
MAX_OPTIONS = 100


@pages.get("/widgets/<scope>/<name>/compare")
def compare(scope: str, name: str) -> Response:
    connection, parameters = reader(), read_parameters()
    chosen = {field: request.args.get(field, "").strip() for field in ("from", "to")}
    notes: list[Json] = []
    growth = ""
    with snapshot(connection):
        widget_id, found = widget_queries.load_widget(connection, scope, name)
        before, after = (
            widget_queries.load_numbered(connection, found, each) for each in chosen.values()
        )
        _, options = list_versions(connection, widget_id, limit=MAX_OPTIONS)
        if before and after:
            growth = describe_growth(before["bundleSize"], after["bundleSize"])
            # If the first version is the newer one, swap the two to find the notes between them.
            notes = list_notes(connection, widget_id, *chosen.values()) or list_notes(
                connection, widget_id, *reversed(chosen.values())
            )
    errors = {
        field: f"There is no version {quoted(chosen[field])}." if chosen[field] else "Choose one."
        for field, entry in (("from", before), ("to", after))
        # Without parameters, the page shows an empty form and no errors.
        if entry is None and any(chosen.values())
    }
    connection.check_deadline()
    page = render_template(
        "compare.html",
        widget=found,
        parameters=parameters,
        chosen=chosen,
        numbers=[each["version"] for each in options],
        errors=errors,
        before=before,
        after=after,
        permissions=permission_changes(before, after) if before and after else None,
        properties=[describe_version(entry) for entry in (before, after) if entry],
        growth=growth,
        notes=notes[:MAX_NOTES],
        has_more_notes=len(notes) > MAX_NOTES,
    )
    return page_response(page, 400 if errors else parameters.status)


def permission_changes(before: Json, after: Json) -> dict[str, list[str]]:
    """Return the permissions that the second version adds, removes and keeps."""
    old, new = set(before["permissions"]), set(after["permissions"])
    # A version may list a permission twice.
    in_order = dict.fromkeys([*after["permissions"], *before["permissions"]])
    return {
        "added": [each for each in in_order if each not in old],
        "removed": [each for each in in_order if each not in new],
        "kept": [each for each in in_order if each in old and each in new],
    }


def describe_version(entry: Json) -> dict[str, str]:
    """Describe the properties of a version, other than its permissions, in words."""
    states = ["yanked"] if entry["yanked"] else []
    states += ["deprecated"] if entry["deprecationMessage"] is not None else []
    number = entry["configVersion"]
    return {
        "SDK": entry["sdkVersion"] or "any",
        "Bundle": format_bytes(entry["bundleSize"]),
        "Minimum size": "{w:,} × {h:,} cells".format(**entry["minSize"]),
        "Maximum size": "{w:,} × {h:,} cells".format(**entry["maxSize"]),
        "Settings format": "not numbered" if number is None else str(number),
        "Licence": entry["license"] or "not stated",
        "Published": format_day(entry["publishedAt"]),
        "State": ", ".join(states) or "available",
    }


def describe_growth(before: int, after: int) -> str:
    """Return the change in size, such as +1.2 kB (+6%); empty if unchanged."""
    if before == after:
        return ""
    sign = "+" if after > before else "−"
    size = f"{sign}{format_bytes(abs(after - before))}"
    percent = round(abs(after - before) * 100 / before) if before else 0
    return f"{size} ({sign}{format_number(percent)}%)" if percent else size
