"""The command outdated: the updates of installed versions, here or at another service."""

from typing import BinaryIO

import click

from ..documents import Json
from ..store.read.installed_list import read_installed_list
from ..store.read.updates import CURRENT, UpdatesQuery
from ..text import plural
from .base import SDK, CommandError, command, file_name, json_option, print_status
from .catalogs import open_catalog
from .terminal import format_json, format_table

# The longest names of so many widgets fit into the request line that a service accepts.
BATCH = 20


@command("outdated", remote=True)
@click.argument("file", type=click.File("rb"))
@click.option("--sdk", type=SDK, required=True, help="The SDK version of the dashboard.")
@json_option
def outdated(file: BinaryIO, sdk: str, json_output: bool) -> None:
    """List the updates of installed versions.

    FILE has one scope/name@version per line, or is a JSON lockfile; - is standard input. Empty
    lines and lines that begin with # are ignored. The table omits versions that are current,
    --json does not.
    """
    installed, notice, error = read_installed_list(file.read().decode(errors="replace"))
    if error:
        raise CommandError(f"{file_name(file)}: {error}")
    if notice:
        print_status(notice)
    catalog = open_catalog()
    items: list[Json] = []
    for start in range(0, len(installed), BATCH):
        items += catalog.find_updates(UpdatesQuery(sdk, tuple(installed[start : start + BATCH])))
    if json_output:
        click.echo(format_json(items))
        return
    rows = [format_row(item) for item in items if item["status"] != CURRENT or item["yanked"]]
    if rows:
        headings = ("WIDGET", "INSTALLED", "STATUS", "UPDATE", "REASON")
        click.echo("\n".join(format_table(headings, rows, shrink_first=4)))
    count = sum(item["update"] is not None for item in items)
    print_status(f"{plural(count, 'update')} for {plural(len(items), 'installed version')}.")


def format_row(item: Json) -> list[str]:
    """Return the cells of an installed version."""
    update = item["update"]
    return [
        f"{item['scope']}/{item['name']}",
        item["installed"],
        "yanked" if item["yanked"] else item["status"],
        "none" if update is None else update["version"],
        item["reason"],
    ]
