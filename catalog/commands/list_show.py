"""flask list and flask show: the catalog as the operator sees it, unlisted widgets included."""

import json
import sqlite3

import click

from catalog.commands.base import TEXT, WIDGET, WidgetName, command, database, say
from catalog.commands.lookup import find_widget
from catalog.commands.terminal import json_text, plain, table
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
@click.option("--unlisted", is_flag=True, help="Only widgets that the public does not see.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of a table.")
def list_(words: tuple[str, ...], scope: str | None, unlisted: bool, as_json: bool) -> None:
    """List widgets, or find them by words.

    Each of the WORDS must be in the display name, in the description or in scope/name, without
    regard to case and accents.
    """
    sought = json.dumps(fold(" ".join(words)).split())
    with database().read() as connection:
        connection.create_function("fold", 1, fold, deterministic=True)
        values = {"scope": scope, "unlisted": unlisted, "words": sought}
        rows = connection.execute(LIST, values).fetchall()
    if as_json:
        click.echo(json_text([listed_widget(row) for row in rows]))
        return
    if rows:
        lines = [
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
        click.echo("\n".join(table(headings, lines, first=1)))
    say(plural(len(rows), "widget") + ".")


def listed_widget(row: sqlite3.Row) -> Json:
    return {
        **json.loads(row["json"]),
        "listed": bool(row["listed"]),
        "versions": row["versions"],
        "latestVersion": row["latest_version"],
    }


def widget_marks(row: sqlite3.Row) -> str:
    marks = {
        "unlisted": not row["listed"],
        "yanked": row["versions"] and row["latest_version"] is None,
        "deprecated": row["deprecation_message"] is not None,
        "official": row["is_official"],
    }
    return ", ".join(mark for mark, holds in marks.items() if holds)


@command("show")
@click.argument("widget", type=WIDGET)
@click.option("--json", "as_json", is_flag=True, help="Print the widget document.")
def show(widget: WidgetName, as_json: bool) -> None:
    """Show a widget with all its versions."""
    row = find_widget(widget)
    with database().read() as connection:
        shown = read_document(connection, row)
    if as_json:
        click.echo(json_text(shown))
        return
    facts = shown["widget"]
    click.echo(f"{plain(facts['displayName'])} ({widget})")
    for label, value in (
        ("description", facts["description"]),
        ("icon", facts["icon"]),
        ("official", {True: "yes", False: "no", None: "not said"}[facts["isOfficial"]]),
        ("listed", "yes" if facts["listed"] else "no: unlisted"),
        ("installs", "unknown" if facts["downloadCount"] is None else facts["downloadCount"]),
        ("created", facts["createdAt"]),
    ):
        click.echo(f"  {label + ':':13}{'none' if value is None else plain(str(value))}")
    if shown["versions"]:
        latest = json_sql.latest_version(shown["versions"])
        lines = [
            [
                entry["version"],
                entry["publishedAt"],
                str(entry["bundleSize"]),
                entry["sdkVersion"] or '""',
                version_marks(entry, latest),
            ]
            for entry in shown["versions"]
        ]
        click.echo()
        headings = ("VERSION", "PUBLISHED", "BYTES", "SDK", "MARKS")
        click.echo("\n".join(table(headings, lines, first=3)))


def version_marks(entry: Json, latest: str | None) -> str:
    marks = []
    if entry["version"] == latest:
        marks.append("latest")
    if entry["yanked"]:
        reason = entry["yankedReason"]
        marks.append(f"yanked: {reason}" if reason else "yanked")
    if entry["deprecationMessage"] is not None:
        marks.append(f"deprecated: {entry['deprecationMessage']}")
    return ", ".join(marks)
