"""widget-catalog list and show: print widgets in the catalog, or a service's public widgets."""

from collections.abc import Callable
from typing import Any

import click

from ..domain.changes import WidgetName, is_version_or_range
from ..domain.documents import Json
from ..domain.folding import fold, folded_words
from ..domain.manifests import LINK_KEYS
from ..domain.messages import plural, quoted
from ..store.read import json_sql
from ..store.read.lookup import match_versions
from .base import command
from .catalogs import DatabaseCatalog, open_catalog, resolve_name
from .options import SCOPE, TEXT, WIDGET_OR_VERSION, json_option, list_option
from .output import print_json, print_lines, print_status
from .terminal import format_table, replace_unprintable


@command("list", remote=True)
@click.argument("words", nargs=-1, type=TEXT)
@list_option("--scope", "scopes", type=SCOPE, help="List only widgets of this scope.")
@click.option("--unlisted", is_flag=True, help="List only unlisted widgets.")
@click.option(
    "--sort",
    type=click.Choice(["name", "installs", "updated", "created"]),
    default="name",
    show_default=True,
    help="Sort by scope/name, by installs (most first) or by a date (newest first).",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="List at most N widgets.")
@json_option
def list_(
    words: tuple[str, ...],
    scopes: tuple[str, ...],
    unlisted: bool,
    sort: str,
    limit: int | None,
    json_output: bool,
) -> None:
    """List widgets, or find them by words.

    Each of the WORDS must occur in the display name, the description or scope/name. Case and
    accents are ignored. With --server, the command lists the public widgets of the service.
    """
    folded = folded_words(" ".join(words))
    catalog = open_catalog()
    scope = scopes[0] if len(scopes) == 1 else None
    total = None
    if isinstance(catalog, DatabaseCatalog):
        listed = catalog.read_list(scope, sort, unlisted=unlisted)
    elif unlisted:
        raise click.UsageError("A service shows only listed widgets; omit --unlisted.")
    elif folded or len(scopes) > 1:
        # Read all widgets, because a service's search does not find words in scope/name.
        listed, _ = catalog.read_list(scope, sort)
    else:
        listed, total = catalog.read_list(scope, sort, limit)
    found = [
        each
        for each in listed
        if has_words(each, folded) and (not scopes or each["scope"] in scopes)
    ]
    # read_list() has already sorted by creation time, which a service does not report.
    if sort != "created":
        found.sort(key=lambda each: (each["scope"], each["name"]))
        found.sort(key=SORT_KEYS[sort], reverse=True)
    widgets = found[:limit]
    total = len(found) if total is None else total
    if json_output:
        print_json(widgets)
        return
    if widgets:
        print_lines(*format_widgets(widgets))
    shown = f"{len(widgets)} of " if len(widgets) < total else ""
    print_status(f"{shown}{plural(total, 'widget')}.")


def has_words(widget: Json, words: list[str]) -> bool:
    """Return whether each word is in the display name, the description or scope/name."""
    path = f"{widget['scope']}/{widget['name']}"
    text = fold("\n".join((widget["displayName"], widget["description"] or "", path)))
    return all(word in text for word in words)


def install_sort_key(widget: Json) -> int:
    """Return a widget's install count as a sort key; an unknown count sorts below 0."""
    return -1 if widget["downloadCount"] is None else int(widget["downloadCount"])


SORT_KEYS: dict[str, Callable[[Json], Any]] = {
    "name": lambda widget: 0,
    "installs": install_sort_key,
    "updated": lambda widget: widget["updatedAt"] or "",
}


def format_widgets(widgets: list[Json]) -> list[str]:
    """Return the widget table as lines."""
    rows = [
        [
            f"{each['scope']}/{each['name']}",
            each["displayName"],
            each["latestVersion"] or "none",
            "unknown" if each["downloadCount"] is None else str(each["downloadCount"]),
            widget_marks(each),
        ]
        for each in widgets
    ]
    headings = ("WIDGET", "DISPLAY NAME", "LATEST", "INSTALLS", "MARKS")
    return format_table(headings, rows, shrink_first=1)


def widget_marks(widget: Json) -> str:
    """Return a widget's entry in the MARKS column."""
    marks = {
        "unlisted": not widget["listed"],
        "deprecated": widget["deprecationMessage"] is not None,
        "official": widget["isOfficial"],
    }
    return ", ".join(mark for mark, is_set in marks.items() if is_set)


@command("show", remote=True)
@click.argument("target", metavar="WIDGET|VERSION", type=WIDGET_OR_VERSION)
@click.option("--long", "long_output", is_flag=True, help="Print all fields of each version.")
@json_option
def show(target: WidgetName, long_output: bool, json_output: bool) -> None:
    """Show a widget with its versions.

    Given a version or an npm range such as acme/clock@1.x, or with --long, the command also shows
    the URL, hash, license and permissions of each version.
    """
    catalog = open_catalog()
    target = resolve_name(catalog, target)
    if target.version is not None and not is_version_or_range(target.version):
        raise click.UsageError(
            f"{quoted(target.version)} is neither a version nor a range of versions."
        )
    shown = catalog.read_document(target)
    latest = json_sql.latest_version(shown["versions"])
    if target.version is not None:
        shown["versions"] = match_versions(shown["versions"], target)
    if json_output:
        print_json(shown)
        return
    installs = catalog.read_installs(target, days=7)
    by_version = (
        {each["version"]: each["installs"] for each in installs["versions"]} if installs else {}
    )
    for entry in shown["versions"]:
        entry["installs"] = by_version.get(entry["version"], 0 if installs else "unknown")
    fields, about = shown["widget"], shown.get("about", {})
    path = f"{target.scope}/{target.name}"
    print_lines(f"{replace_unprintable(fields['displayName'])} ({path})")
    print_fields(
        description=fields["description"],
        icon=fields["icon"],
        official={True: "yes", False: "no", None: "unknown"}[fields["isOfficial"]],
        listed="yes" if fields["listed"] else "no: unlisted",
        installs=format_installs(fields["downloadCount"], installs),
        created=fields["createdAt"],
        **catalog.read_origin(target),
        **{key: about[key] for key in LINK_KEYS if about.get(key)},
        **({"keywords": ", ".join(about["keywords"])} if about.get("keywords") else {}),
    )
    if target.version is not None or long_output:
        for entry in shown["versions"]:
            print_lines("", f"{path}@{entry['version']}")
            print_version(entry, fields, latest)
    elif shown["versions"]:
        print_lines("", *format_versions(shown["versions"], latest))


def format_installs(count: int | None, installs: Json | None) -> str:
    """Return a widget's install count, and the count for the last 7 days if it is known."""
    if count is None:
        return "unknown"
    if installs is None:
        return str(count)
    return f"{count}, {sum(each['installs'] for each in installs['days'])} in the last 7 days"


def print_fields(**values: object) -> None:
    """Print each value on its own line after its label; print None as "none"."""
    for label, value in values.items():
        text = "none" if value is None else replace_unprintable(str(value))
        print_lines(f"  {label + ':':13}{text}")


def print_version(entry: Json, widget: Json, latest: str | None) -> None:
    """Print the fields of a version; omit optional fields that are null or equal the widget's."""
    sizes = ("{w} by {h}".format(**entry[key]) for key in ("minSize", "maxSize"))
    optional = {
        "config": "configVersion",
        "name": "displayName",
        "description": "description",
        "icon": "icon",
        "notes": "releaseNotes",
    }
    print_fields(
        marks=version_marks(entry, latest) or None,
        published=entry["publishedAt"],
        installs=entry["installs"],
        sdk=entry["sdkVersion"] or '""',
        url=entry["bundleUrl"],
        bytes=entry["bundleSize"],
        sha256=entry["sha256Hash"],
        license=entry["license"],
        permissions=", ".join(entry["permissions"]) or None,
        size=" to ".join(sizes),
        **{
            label: entry[key]
            for label, key in optional.items()
            if entry[key] not in (None, widget.get(key))
        },
    )


def format_versions(versions: list[Json], latest: str | None) -> list[str]:
    """Return the version table as lines."""
    cells = [
        [
            entry["version"],
            entry["publishedAt"],
            str(entry["installs"]),
            str(entry["bundleSize"]),
            entry["sdkVersion"] or '""',
            version_marks(entry, latest),
        ]
        for entry in versions
    ]
    headings = ("VERSION", "PUBLISHED", "INSTALLS", "BYTES", "SDK", "MARKS")
    return format_table(headings, cells, shrink_first=4)


def version_marks(entry: Json, latest: str | None) -> str:
    """Return a version's entry in the MARKS column."""
    marks = []
    if entry["version"] == latest:
        marks.append("latest")
    if entry["yanked"]:
        reason = entry["yankedReason"]
        marks.append(f"yanked: {reason}" if reason else "yanked")
    if entry["deprecationMessage"] is not None:
        marks.append(f"deprecated: {entry['deprecationMessage']}")
    return ", ".join(marks)
