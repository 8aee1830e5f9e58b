"""What differs between two versions of a widget."""

from typing import NamedTuple

from ..documents import Json
from .formatting import format_bytes, format_day, format_number


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


class Comparison(NamedTuple):
    """The differences between two versions."""

    permissions: PermissionChanges
    properties: list[Difference]


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


def compare_versions(before: Json, after: Json) -> Comparison:
    """Return the differences from the first to the second version."""
    properties = [
        Difference("SDK", before["sdkVersion"] or "any", after["sdkVersion"] or "any"),
        Difference(
            "Bundle",
            format_bytes(before["bundleSize"]),
            format_bytes(after["bundleSize"]),
            _describe_growth(before["bundleSize"], after["bundleSize"]),
        ),
        Difference("Minimum size", _cells(before["minSize"]), _cells(after["minSize"])),
        Difference("Maximum size", _cells(before["maxSize"]), _cells(after["maxSize"])),
        Difference("Config version", _config(before), _config(after)),
        Difference("Licence", before["license"] or "not stated", after["license"] or "not stated"),
        Difference(
            "Published", format_day(before["publishedAt"]), format_day(after["publishedAt"])
        ),
        Difference("State", _state(before), _state(after)),
    ]
    return Comparison(permission_changes(before, after), properties)


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


def _config(entry: Json) -> str:
    return "none" if entry["configVersion"] is None else str(entry["configVersion"])


def _state(entry: Json) -> str:
    states = ["yanked"] if entry["yanked"] else []
    states += ["deprecated"] if entry["deprecationMessage"] is not None else []
    return ", ".join(states) or "available"
