"""flask list and flask show: the catalog as the operator sees it, unlisted widgets included."""

import json
import sqlite3

import click

from catalog.commands.base import TEXT, WIDGET, WidgetName, command, database, print_status
from catalog.commands.lookup import get_widget
from catalog.commands.terminal import format_json, format_table, replace_unprintable
from catalog.documents import Json
from catalog.store import json_sql
from catalog.store.export import read_document
from catalog.text import fold, plural

LIST = f"""
SELECT widget.*, {json_sql.WIDGET} AS json,
    (SELECT count(*) FROM version WHERE widget_id = widget.id) AS versions,
    latest.version AS latest_version, latest.deprecation_message
FROM widget LEFT JOIN version AS latest ON latest.id = (
    SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT 1)
WHERE (:scope IS NULL OR scope = :scope) AND (NOT :unlisted OR NOT listed)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(:words)
    WHERE instr(folded_text, value) = 0 AND instr(fold(scope || '/' || name), value) = 0)
ORDER BY scope, name
"""


@command("list")
@click.argument("words", nargs=-1, type=TEXT)
@click.option("--scope", type=TEXT, help="Only widgets of this scope.")
@click.option("--unlisted", is_flag=True, help="Only unlisted widgets.")
@click.option("--json", "json_output", is_flag=True, help="Print a JSON array instead of a table.")
def list_(words: tuple[str, ...], scope: str | None, unlisted: bool, json_output: bool) -> None:
    """List widgets, or find them by words.

    Each of the WORDS must occur in the display name, the description or scope/name; case and
    accents are ignored.
    """
    folded_words = json.dumps(fold(" ".join(words)).split())
    with database().read() as connection:
        connection.create_function("fold", 1, fold, deterministic=True)
        values = {"scope": scope, "unlisted": unlisted, "words": folded_words}
        rows = connection.execute(LIST, values).fetchall()
    if json_output:
        click.echo(format_json([widget_json(row) for row in rows]))
        return
    if rows:
        cells = [
            [
                f"{row['scope']}/{row['name']}",
                row["display_name"],
                row["latest_version"] or "none",
                str(row["versions"]),
                "unknown" if row["download_count"] is None else str(row["download_count"]),
                widget_marks(row),
            ]
            for row in rows
        ]
        headings = ("WIDGET", "DISPLAY NAME", "LATEST", "VERSIONS", "INSTALLS", "MARKS")
        click.echo("\n".join(format_table(headings, cells, shrink_first=1)))
    print_status(plural(len(rows), "widget") + ".")


def widget_json(row: sqlite3.Row) -> Json:
    """Return a row of the list as flask list --json prints it."""
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
@click.argument("widget", type=WIDGET)
@click.option("--json", "json_output", is_flag=True, help="Print the widget document.")
def show(widget: WidgetName, json_output: bool) -> None:
    """Show a widget with all its versions."""
    row = get_widget(widget)
    with database().read() as connection:
        shown = read_document(connection, row)
    if json_output:
        click.echo(format_json(shown))
        return
    fields = shown["widget"]
    click.echo(f"{replace_unprintable(fields['displayName'])} ({widget})")
    for label, value in (
        ("description", fields["description"]),
        ("icon", fields["icon"]),
        ("official", {True: "yes", False: "no", None: "unknown"}[fields["isOfficial"]]),
        ("listed", "yes" if fields["listed"] else "no: unlisted"),
        ("installs", "unknown" if fields["downloadCount"] is None else fields["downloadCount"]),
        ("created", fields["createdAt"]),
    ):
        text = "none" if value is None else replace_unprintable(str(value))
        click.echo(f"  {label + ':':13}{text}")
    if shown["versions"]:
        click.echo()
        click.echo("\n".join(format_versions(shown["versions"])))


def format_versions(versions: list[Json]) -> list[str]:
    """Return the lines of the table of versions."""
    latest = json_sql.latest_version(versions)
    cells = [
        [
            entry["version"],
            entry["publishedAt"],
            str(entry["bundleSize"]),
            entry["sdkVersion"] or '""',
            version_marks(entry, latest),
        ]
        for entry in versions
    ]
    headings = ("VERSION", "PUBLISHED", "BYTES", "SDK", "MARKS")
    return format_table(headings, cells, shrink_first=3)


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
