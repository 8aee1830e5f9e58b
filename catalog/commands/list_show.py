"""The commands list and show: the catalog as the operator or, with --server, everybody sees it."""

import click

from ..changes import WidgetName
from ..documents import Json
from ..manifests import LINK_KEYS
from ..store.read import json_sql
from ..store.write.lookup import match_versions
from ..text import fold, plural
from .base import TEXT, WIDGET_OR_VERSION, command, json_option, print_status
from .catalogs import open_catalog, resolve_name
from .terminal import format_json, format_table, replace_unprintable


@command("list", remote=True)
@click.argument("words", nargs=-1, type=TEXT)
@click.option("--scope", type=TEXT, help="Only widgets of this scope.")
@click.option("--unlisted", is_flag=True, help="Only unlisted widgets.")
@click.option(
    "--sort",
    type=click.Choice(["name", "installs", "updated", "created"]),
    default="name",
    help="The order, by default of the names; installs and dates begin with the greatest.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N widgets.")
@json_option
def list_(
    words: tuple[str, ...],
    scope: str | None,
    unlisted: bool,
    sort: str,
    limit: int | None,
    json_output: bool,
) -> None:
    """List widgets, or find them by words.

    Each of the WORDS must occur in the display name, the description or scope/name; case and
    accents are ignored. A service shows its listed widgets only.
    """
    folded = fold(" ".join(words)).split()
    # All are read: the search of a service finds no words in scope/name.
    listed = open_catalog().read_list(scope, unlisted, sort)
    found = [each for each in listed if has_words(each, folded)] if folded else listed
    if sort in ("name", "installs"):
        found.sort(key=lambda each: (each["scope"], each["name"]))
    if sort == "installs":
        found.sort(key=installs_or_less, reverse=True)
    widgets, total = found[:limit], len(found)
    if json_output:
        click.echo(format_json(widgets))
        return
    if widgets:
        click.echo("\n".join(format_widgets(widgets)))
    shown = f"{len(widgets)} of " if len(widgets) < total else ""
    print_status(f"{shown}{plural(total, 'widget')}.")


def has_words(widget: Json, words: list[str]) -> bool:
    """Return whether each word is in the display name, the description or scope/name."""
    path = f"{widget['scope']}/{widget['name']}"
    text = fold("\n".join((widget["displayName"], widget["description"] or "", path)))
    return all(word in text for word in words)


def installs_or_less(widget: Json) -> int:
    """Return the installs of a widget; if they are unknown, fewer than those of any other."""
    return -1 if widget["downloadCount"] is None else int(widget["downloadCount"])


def format_widgets(widgets: list[Json]) -> list[str]:
    """Return the lines of the table of widgets."""
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
    """Return what the last column of the list says about a widget."""
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

    For a version, or an npm range of them such as acme/clock@1.x, and with --long, also the URL,
    hash, license and permissions of each version.
    """
    catalog = open_catalog()
    target = resolve_name(catalog, target)
    shown = catalog.read_document(target)
    latest = json_sql.latest_version(shown["versions"])
    if target.version is not None:
        shown["versions"] = match_versions(shown["versions"], target)
    if json_output:
        click.echo(format_json(shown))
        return
    installs = catalog.read_installs(target, days=7)
    by_version = (
        {each["version"]: each["installs"] for each in installs["versions"]} if installs else {}
    )
    for entry in shown["versions"]:
        entry["installs"] = by_version.get(entry["version"], 0 if installs else "unknown")
    fields, about = shown["widget"], shown.get("about", {})
    path = f"{target.scope}/{target.name}"
    click.echo(f"{replace_unprintable(fields['displayName'])} ({path})")
    print_fields(
        description=fields["description"],
        icon=fields["icon"],
        official={True: "yes", False: "no", None: "unknown"}[fields["isOfficial"]],
        listed="yes" if fields["listed"] else "no: unlisted",
        installs=format_installs(fields["downloadCount"], installs),
        created=fields["createdAt"],
        **catalog.read_origin(target),
        **{key: about[key] for key in LINK_KEYS if about.get(key)},
    )
    if target.version is not None or long_output:
        for entry in shown["versions"]:
            click.echo(f"\n{path}@{entry['version']}")
            print_version(entry, fields, latest)
    elif shown["versions"]:
        click.echo()
        click.echo("\n".join(format_versions(shown["versions"], latest)))


def format_installs(count: int | None, installs: Json | None) -> str:
    """Return the installs of a widget, and those of the last days if they are known."""
    if count is None:
        return "unknown"
    if installs is None:
        return str(count)
    return f"{count}, {sum(each['installs'] for each in installs['days'])} in the last 7 days"


def print_fields(**values: object) -> None:
    """Print each value on a line with its label; null is printed as none."""
    for label, value in values.items():
        text = "none" if value is None else replace_unprintable(str(value))
        click.echo(f"  {label + ':':13}{text}")


def print_version(entry: Json, widget: Json, latest: str | None) -> None:
    """Print all fields of a version, except optional ones that are null or as in the widget."""
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
    """Return the lines of the table of versions."""
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
    """Return what the last column says about a version."""
    marks = []
    if entry["version"] == latest:
        marks.append("latest")
    if entry["yanked"]:
        reason = entry["yankedReason"]
        marks.append(f"yanked: {reason}" if reason else "yanked")
    if entry["deprecationMessage"] is not None:
        marks.append(f"deprecated: {entry['deprecationMessage']}")
    return ", ".join(marks)
