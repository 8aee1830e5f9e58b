"""widget-catalog log: the record of changes."""

import json

import click

from ..changes import WidgetName
from ..documents import Json
from ..semver_ranges import MAX_SAFE_INTEGER
from ..validators import check_timestamp
from .base import WIDGET, command, json_option, print_status
from .catalogs import open_catalog
from .names import ValidatedType
from .terminal import format_json, replace_unprintable

SINCE = ValidatedType("time", check_timestamp)


@command("log", remote=True)
@click.argument("widget", type=WIDGET, required=False)
@click.option("--since", type=SINCE, help="Only changes from this time on, ISO 8601.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N changes.")
@json_option
def log(widget: WidgetName | None, since: str | None, limit: int | None, json_output: bool) -> None:
    """Print who changed what, the newest change last.

    Without WIDGET, all changes of the catalog and its tokens; with --server, those in the scopes of
    your token. Installs are not recorded.
    """
    entries = open_catalog().read_log(widget, since, limit and min(limit, MAX_SAFE_INTEGER))
    entries.reverse()
    if json_output:
        click.echo(format_json(entries))
        return
    if not entries:
        print_status(f"No change{f' of {widget}' if widget else ''} is recorded.")
    for entry in entries:
        click.echo(replace_unprintable(format_entry(entry)))


def format_entry(entry: Json) -> str:
    """Return the line of a change: time, actor, action, target, and values before and after."""
    actor = entry["actor"] if entry["kind"] == "local" else f"token {entry['actor']}"
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
