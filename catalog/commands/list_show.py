"""The commands list and show: the catalog as the operator sees it, with unlisted widgets."""

import json
import sqlite3

import click

from ..documents import Json
from ..semver_ranges import MAX_SAFE_INTEGER
from ..store.connection.sqlite import today
from ..store.read import json_sql
from ..store.read.export import read_document
from ..store.read.installs import find_installs
from ..store.write.lookup import WidgetName
from ..text import fold, plural
from .base import (
    TEXT,
    WIDGET_OR_VERSION,
    command,
    database,
    print_status,
)
from .lookup import get_versions, get_widget, resolve_name
from .terminal import format_json, format_table, replace_unprintable

LIST = f"""
SELECT widget.*, {json_sql.WIDGET} AS json,
    (SELECT count(*) FROM version WHERE widget_id = widget.id) AS versions,
    latest.version AS latest_version, latest.deprecation_message,
    coalesce((SELECT max(published_at) FROM version WHERE widget_id = widget.id), widget.created_at)
        AS updated_at,
    count(*) OVER () AS total
FROM widget LEFT JOIN version AS latest ON latest.id = (
    SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT 1)
WHERE (:scope IS NULL OR scope = :scope) AND (NOT :unlisted OR NOT listed)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(:words)
    WHERE instr(folded_text, value) = 0 AND instr(fold(scope || '/' || name), value) = 0)
ORDER BY
    CASE :sort
        WHEN 'installs' THEN download_count
        WHEN 'updated' THEN updated_at
        WHEN 'created' THEN widget.created_at
    END DESC,
    scope, name
LIMIT coalesce(:limit, -1)
"""


@command("list")
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
@click.option("--json", "json_output", is_flag=True, help="Print a JSON array instead of a table.")
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
    accents are ignored.
    """
    values = {
        "scope": scope,
        "unlisted": unlisted,
        "words": json.dumps(fold(" ".join(words)).split()),
        "sort": sort,
        "limit": limit and min(limit, MAX_SAFE_INTEGER),
    }
    with database().read() as connection:
        connection.create_function("fold", 1, fold, deterministic=True)
        rows = connection.execute(LIST, values).fetchall()
    if json_output:
        click.echo(format_json([widget_json(row) for row in rows]))
        return
    if rows:
        click.echo("\n".join(format_widgets(rows, sort)))
    total = rows[0]["total"] if rows else 0
    shown = f"{len(rows)} of " if len(rows) < total else ""
    print_status(f"{shown}{plural(total, 'widget')}.")


def format_widgets(rows: list[sqlite3.Row], sort: str) -> list[str]:
    """Return the lines of the table of widgets, with the date that it is sorted by."""
    dates = [sort] if sort in ("updated", "created") else []
    headings = ["WIDGET", "DISPLAY NAME", "LATEST", "VERSIONS", "INSTALLS"]
    cells = [
        [
            f"{row['scope']}/{row['name']}",
            row["display_name"],
            row["latest_version"] or "none",
            str(row["versions"]),
            "unknown" if row["download_count"] is None else str(row["download_count"]),
            *(row[f"{date}_at"].partition("T")[0] for date in dates),
            widget_marks(row),
        ]
        for row in rows
    ]
    return format_table([*headings, *map(str.upper, dates), "MARKS"], cells, shrink_first=1)


def widget_json(row: sqlite3.Row) -> Json:
    """Return a row of the list as widget-catalog list --json prints it."""
    return {
        **json.loads(row["json"]),
        "listed": bool(row["listed"]),
        "versions": row["versions"],
        "latestVersion": row["latest_version"],
    }


def widget_marks(row: sqlite3.Row) -> str:
    """Return what the last column of the list says about a widget."""
    marks = {
        "unlisted": not row["listed"],
        "yanked": row["versions"] and row["latest_version"] is None,
        "deprecated": row["deprecation_message"] is not None,
        "official": row["is_official"],
    }
    return ", ".join(mark for mark, is_set in marks.items() if is_set)


@command("show")
@click.argument("target", metavar="WIDGET|VERSION", type=WIDGET_OR_VERSION)
@click.option("--long", "long_output", is_flag=True, help="Print all fields of each version.")
@click.option("--json", "json_output", is_flag=True, help="Print the widget document.")
def show(target: WidgetName, long_output: bool, json_output: bool) -> None:
    """Show a widget with its versions.

    For a version, or an npm range of them such as acme/clock@1.x, and with --long, also the URL,
    hash, license and permissions of each version.
    """
    target = resolve_name(target)
    row = get_widget(target)
    with database().read() as connection:
        shown = read_document(connection, row)
        installs = read_installs(connection, target)
    latest = json_sql.latest_version(shown["versions"])
    if target.version is not None:
        numbers = {version["version"] for version in get_versions(target)}
        shown["versions"] = [entry for entry in shown["versions"] if entry["version"] in numbers]
    if json_output:
        click.echo(format_json(shown))
        return
    by_version = {each["version"]: each["installs"] for each in installs["versions"]}
    for entry in shown["versions"]:
        entry["installs"] = by_version.get(entry["version"], 0)
    fields = shown["widget"]
    path = f"{target.scope}/{target.name}"
    click.echo(f"{replace_unprintable(fields['displayName'])} ({path})")
    print_fields(
        description=fields["description"],
        icon=fields["icon"],
        official={True: "yes", False: "no", None: "unknown"}[fields["isOfficial"]],
        listed="yes" if fields["listed"] else "no: unlisted",
        installs=format_installs(fields["downloadCount"], installs["days"]),
        created=fields["createdAt"],
    )
    if target.version is not None or long_output:
        for entry in shown["versions"]:
            click.echo(f"\n{path}@{entry['version']}")
            print_version(entry, fields, latest)
    elif shown["versions"]:
        click.echo()
        click.echo("\n".join(format_versions(shown["versions"], latest)))


def read_installs(connection: sqlite3.Connection, target: WidgetName) -> Json:
    """Return the installs of a widget in the last 7 days and by version, as the API does."""
    names = target.scope, target.name
    found = find_installs(connection, *names, days=7, today=today(), unlisted=True)
    installs: Json = json.loads(found[1]) if found else {"days": [], "versions": []}
    return installs


def format_installs(count: int | None, days: list[Json]) -> str:
    """Return the installs of a widget, and those of the last days."""
    if count is None:
        return "unknown"
    return f"{count}, {sum(each['installs'] for each in days)} in the last 7 days"


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
