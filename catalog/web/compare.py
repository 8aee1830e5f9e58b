"""The page of two versions compared: what changed, and the release notes of all in between."""

from typing import NamedTuple

from flask import Response, render_template, request

from ..documents import Json
from ..store.connection.sqlite import snapshot
from ..text import quoted
from . import widget_queries
from .formatting import format_bytes, format_day, format_number
from .pages import page_response, pages, reader
from .parameters import read_parameters
from .widget_queries import MAX_NOTES, load_notes

# The most versions that the form lists.
MAX_OPTIONS = 100


class PermissionChanges(NamedTuple):
    """The permissions that only one of two versions has, and those of both."""

    added: list[str]
    removed: list[str]
    kept: list[str]


class Difference(NamedTuple):
    """A property of two versions, in words; note says by how much it differs."""

    title: str
    before: str
    after: str
    note: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether the property differs."""
        return self.before != self.after or bool(self.note)


@pages.get("/widgets/<scope>/<name>/compare")
def compare(scope: str, name: str) -> Response:
    connection, parameters = reader(), read_parameters()
    chosen = {field: request.args.get(field, "").strip() for field in ("from", "to")}
    notes: list[Json] = []
    with snapshot(connection):
        widget_id, found = widget_queries.find_widget(connection, scope, name)
        before, after = (
            widget_queries.load_numbered(connection, found, each) for each in chosen.values()
        )
        options = widget_queries.load_numbers(connection, widget_id, MAX_OPTIONS)
        if before and after:
            # If the first is the newer one, what is between them is found the other way round.
            notes = load_notes(connection, widget_id, *chosen.values()) or load_notes(
                connection, widget_id, *reversed(chosen.values())
            )
    errors = {
        field: f"There is no version {quoted(chosen[field])}." if chosen[field] else "Choose one."
        for field, entry in (("from", before), ("to", after))
        # Without any field, it is an empty form.
        if entry is None and any(chosen.values())
    }
    connection.check_deadline()
    page = render_template(
        "compare.html",
        widget=found,
        parameters=parameters,
        chosen=chosen,
        numbers=options,
        errors=errors,
        before=before,
        after=after,
        permissions=permission_changes(before, after) if before and after else None,
        differences=compare_versions(before, after) if before and after else [],
        notes=notes[:MAX_NOTES],
        has_more_notes=len(notes) > MAX_NOTES,
    )
    return page_response(page, 400 if errors else parameters.status)


def permission_changes(before: Json, after: Json) -> PermissionChanges:
    """Return what the second version may do and the first may not, and the reverse."""
    old, new = set(before["permissions"]), set(after["permissions"])
    # A version may list a permission twice.
    in_order = dict.fromkeys([*after["permissions"], *before["permissions"]])
    return PermissionChanges(
        added=[each for each in in_order if each not in old],
        removed=[each for each in in_order if each not in new],
        kept=[each for each in in_order if each in old and each in new],
    )


def compare_versions(before: Json, after: Json) -> list[Difference]:
    """Return the properties of both versions, except for permissions."""
    growth = _describe_growth(before["bundleSize"], after["bundleSize"])
    sizes = format_bytes(before["bundleSize"]), format_bytes(after["bundleSize"])
    numbers = before["configVersion"], after["configVersion"]
    configs = ("none" if number is None else str(number) for number in numbers)
    dates = format_day(before["publishedAt"]), format_day(after["publishedAt"])
    return [
        Difference("SDK", before["sdkVersion"] or "any", after["sdkVersion"] or "any"),
        Difference("Bundle", *sizes, growth),
        Difference("Minimum size", _cells(before["minSize"]), _cells(after["minSize"])),
        Difference("Maximum size", _cells(before["maxSize"]), _cells(after["maxSize"])),
        Difference("Config version", *configs),
        Difference("Licence", before["license"] or "not stated", after["license"] or "not stated"),
        Difference("Published", *dates),
        Difference("State", _state(before), _state(after)),
    ]


def _describe_growth(before: int, after: int) -> str:
    """Return by how much a size grew or shrank, such as +1.2 kB (+6 %); empty if it did not."""
    if before == after:
        return ""
    sign = "+" if after > before else "−"
    size = f"{sign}{format_bytes(abs(after - before))}"
    percent = round(abs(after - before) * 100 / before) if before else 0
    return f"{size} ({sign}{format_number(percent)} %)" if percent else size


def _cells(size: Json) -> str:
    return f"{format_number(size['w'])} × {format_number(size['h'])}"


def _state(entry: Json) -> str:
    states = ["yanked"] if entry["yanked"] else []
    states += ["deprecated"] if entry["deprecationMessage"] is not None else []
    return ", ".join(states) or "available"
