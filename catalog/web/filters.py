"""The browse page's filters: the options in its fields, and the heading that names the filters."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..store.read.facets import Facets
from ..store.read.search_params import NONE, WITHOUT, filter_text
from .parameters import Parameters
from .permission_words import permission_words

# The filters that a user can remove from a search, each with a phrase for the wider search.
FILTERS = {
    "compatible": "for any SDK",
    "scope": "in any scope",
    "official": "made by anyone",
    "permission": "with any permissions",
    "license": "with any licence",
    "keyword": "with any keywords",
}
DEFAULTS = {"compatible": "false"}
SORTS = {
    "installs": "Most installed",
    "updated": "Recently updated",
    "created": "Newest",
    "name": "Name",
}
USES, DOES_NOT_USE = "Uses", "Does not use"


class Option(NamedTuple):
    """An option in a select element, with its group and, if shown, the number of widgets."""

    value: str
    label: str
    widgets: int | None = None
    group: str = ""


def count_filters(parameters: Parameters) -> int:
    """Return how many filters are set; the sort order is not a filter."""
    sent = parameters.sent
    return sum(sent[name] not in ("", DEFAULTS.get(name)) for name in FILTERS)


def filter_options(
    form: Mapping[str, str], facets: Facets, errors: Mapping[str, str]
) -> dict[str, list[Option]]:
    """Return the options for each select element, which always include the selected one."""
    # Without search words, there is no best match, and results are sorted by installs.
    sorts = [("", "Best match"), *SORTS.items()] if form["q"].strip() else [*SORTS.items()]
    options = {
        "scope": [
            Option("", "All scopes"),
            *(Option(scope, scope, count) for scope, count in sorted(facets.scopes)),
        ],
        "official": [
            Option("", "Anyone"),
            Option("true", "Official only", facets.official),
            Option("false", "Not official", facets.not_official),
        ],
        "permission": [Option("", "All permissions"), *_permission_options(facets)],
        "license": [Option("", "Any licence"), *_license_options(facets.licenses)],
        "sort": [Option(value, label) for value, label in sorts],
    }
    if not form["q"].strip() and not form["sort"]:
        options["sort"][0] = Option("", SORTS["installs"])
    for name, choices in options.items():
        if form[name] not in {choice.value for choice in choices}:
            choices.append(Option(form[name], form[name], None if name in errors else 0))
    return options


def _permission_options(facets: Facets) -> Iterable[Option]:
    unused = [(WITHOUT + name, name, count) for name, count in facets.lacking]
    nothing = [
        (NONE, "any permission", count) for name, count in facets.permissions if name == NONE
    ]
    for value, name, count in [*nothing, *unused]:
        yield Option(value, f"{DOES_NOT_USE}: {filter_text(name)}", count, DOES_NOT_USE)
    for value, count in facets.permissions:
        if value != NONE:
            name = filter_text(value)
            words = permission_words(name)
            yield Option(value, f"{name}: {words}" if words else name, count, USES)


def _license_options(counts: Iterable[tuple[str, int]]) -> list[Option]:
    """Return the options for licences; the first one selects widgets without a stated licence."""
    options = [
        Option(value, "Not stated" if value == NONE else filter_text(value), count)
        for value, count in counts
    ]
    return sorted(options, key=lambda option: option.value != NONE)


def search_heading(parameters: Parameters) -> list[tuple[str, str]]:
    """Return the heading for a search as pairs of fixed words and user input."""
    if "compatSdk" in parameters.errors:
        return [("Invalid SDK", parameters.sent["compatSdk"])]
    valid = parameters.valid
    official = valid.get("official")
    parts = [("Official widgets" if official == "true" else "Widgets", "")]
    if q := valid.get("q", "").strip():
        parts.append(("matching", f"“{q}”"))
    if keyword := valid.get("keyword", "").strip():
        parts.append(("about", keyword))
    if scope := valid.get("scope"):
        parts.append(("by", scope))
    if official == "false":
        parts.append(("that are not official", ""))
    if parameters.is_true("compatible"):
        parts.append(("for SDK", parameters.sdk))
    if permission := valid.get("permission"):
        parts.append(_permission_heading(permission))
    if license_ := valid.get("license"):
        without = ("without a stated licence", "")
        parts.append(without if license_ == NONE else ("under", filter_text(license_)))
    return parts


def _permission_heading(permission: str) -> tuple[str, str]:
    name = permission.removeprefix(WITHOUT)
    is_excluded = name != permission
    if name == NONE:
        return ("that use permissions" if is_excluded else "that use no permissions"), ""
    return ("that do not use" if is_excluded else "that use"), filter_text(name)
