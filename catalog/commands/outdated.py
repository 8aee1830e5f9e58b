"""The command outdated: the updates of installed versions, here or at another service."""

from typing import BinaryIO

import click

from ..documents import Json
from ..installed_list import read_installed_list
from ..store.read.updates import CURRENT
from ..text import plural
from .base import SDK, CommandError, command, file_name, json_option, print_status
from .catalogs import open_catalog
from .terminal import format_json, format_table

# The longest names of so many widgets fit into the request line that a service accepts.
BATCH = 20


@command("outdated", remote=True)
@click.argument("file", type=click.File("rb"))
@click.option("--sdk", type=SDK, required=True, help="The SDK version of the dashboard.")
@click.option("--exit-code", is_flag=True, help="End with exit code 1 if the table has a line.")
@json_option
def outdated(file: BinaryIO, sdk: str, exit_code: bool, json_output: bool) -> None:
    """List the updates of installed versions.

    FILE has one scope/name@version per line, or is a JSON lockfile; - is standard input. Empty
    lines and lines that begin with # are ignored. The table omits versions that are current and
    neither yanked nor deprecated, --json does not.
    """
    installed, notice, error = read_installed_list(file.read().decode(errors="replace"))
    if error:
        raise CommandError(f"{file_name(file)}: {error}")
    if notice:
        print_status(notice)
    catalog = open_catalog()
    items: list[Json] = []
    for start in range(0, len(installed), BATCH):
        items += catalog.find_updates(sdk, installed[start : start + BATCH])
    rows = [format_row(item) for item in items if find_status(item) != CURRENT]
    if json_output:
        click.echo(format_json(items))
    elif rows:
        headings = ("WIDGET", "INSTALLED", "STATUS", "UPDATE", "REASON")
        click.echo("\n".join(format_table(headings, rows, shrink_first=4)))
    if not json_output:
        count = sum(item["update"] is not None for item in items)
        print_status(f"{plural(count, 'update')} for {plural(len(items), 'installed version')}.")
    if exit_code and rows:
        click.get_current_context().exit(1)


def find_status(item: Json) -> str:
    """Return in a word what the table says about an installed version."""
    if item["yanked"]:
        return "yanked"
    is_deprecated = item["status"] == CURRENT and item["deprecationMessage"] is not None
    return "deprecated" if is_deprecated else str(item["status"])


def format_row(item: Json) -> list[str]:
    """Return the cells of an installed version."""
    update = item["update"]
    return [
        f"{item['scope']}/{item['name']}",
        item["installed"],
        find_status(item),
        "none" if update is None else update["version"],
        explain(item),
    ]


def explain(item: Json) -> str:
    """Return the reason of the service, after that of a yank or a warning that it does not name."""
    yanked, reason = f"{item['installed']} was yanked", str(item["reason"])
    if item["yanked"] and not reason.startswith(yanked):
        why = item["yankedReason"]
        return f"{yanked}: {why.rstrip('.')}; {reason}" if why else f"{yanked}; {reason}"
    if find_status(item) == "deprecated":
        return f"{item['installed']} is deprecated: {item['deprecationMessage']}"
    return reason
