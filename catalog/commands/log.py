"""widget-catalog log: prints the audit log."""

import json

import click

from ..domain.changes import WidgetName
from ..domain.documents import Json
from ..domain.semver_ranges import MAX_SAFE_INTEGER
from ..domain.validators import check_timestamp
from .base import command
from .catalogs import open_catalog
from .options import WIDGET, ValidatedType, json_option
from .output import print_json, print_lines, print_status
from .terminal import replace_unprintable

SINCE = ValidatedType("time", check_timestamp)


@command("log", remote=True)
@click.argument("widget", type=WIDGET, required=False)
@click.option("--since", type=SINCE, help="Print only changes since this time (ISO 8601).")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print only the newest N changes.",
)
@json_option
def log(widget: WidgetName | None, since: str | None, limit: int | None, json_output: bool) -> None:
    """Print who changed what, the newest change last.

    The audit log records every change to the catalog and its tokens, but no installs. With WIDGET,
    the command prints only the changes to that widget. With --server, it prints the changes to
    widgets that your token may access.
    """
    entries = open_catalog().read_log(widget, since, limit and min(limit, MAX_SAFE_INTEGER))
    entries.reverse()
    if json_output:
        print_json(entries)
        return
    if not entries:
        print_status(f"The audit log has no entries{f' for {widget}' if widget else ''}.")
    for entry in entries:
        print_lines(replace_unprintable(format_entry(entry)))


def format_entry(entry: Json) -> str:
    """Return a change as one line: time, actor, action, target, and the values before and after."""
    actor = entry["actor"] if entry["kind"] == "local" else f"{entry['kind']} {entry['actor']}"
    words = [entry["at"], actor, entry["action"]]
    if entry["scope"] is not None:
        words.append(str(WidgetName(entry["scope"], entry["name"], entry["version"])))
    before, after = entry["before"] or {}, entry["after"] or {}
    changes = []
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            states = [state[key] for state in (before, after) if key in state]
            values = [json.dumps(value, ensure_ascii=False) for value in states]
            changes.append(f"{key}: {' -> '.join(values)}")
    return "  ".join([*words, "; ".join(changes)] if changes else words)
