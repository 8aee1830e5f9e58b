"""The command outdated: the updates of installed versions, here or at another service."""

import json
from typing import BinaryIO
from urllib.parse import urlencode

import click

from .. import V1_PREFIX
from ..documents import Json
from ..store.read.installed_list import read_installed_list
from ..store.read.updates import CURRENT, UpdatesQuery, find_updates
from ..text import plural
from .base import (
    SDK,
    SERVICE_URL,
    CommandError,
    command,
    database,
    file_name,
    json_option,
    print_status,
)
from .terminal import format_json, format_table

# The longest names of so many widgets fit into the request line that a service accepts.
BATCH = 20


@command("outdated")
@click.argument("file", type=click.File("rb"))
@click.option("--sdk", type=SDK, required=True, help="The SDK version of the dashboard.")
@click.option("--url", type=SERVICE_URL, help="Ask the service at this address.")
@json_option
def outdated(file: BinaryIO, sdk: str, url: str | None, json_output: bool) -> None:
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
    items: list[Json] = []
    for start in range(0, len(installed), BATCH):
        query = UpdatesQuery(sdk, tuple(installed[start : start + BATCH]))
        items += request_updates(url, query) if url else find_local_updates(query)
    if json_output:
        click.echo(format_json(items))
        return
    rows = [format_row(item) for item in items if item["status"] != CURRENT or item["yanked"]]
    if rows:
        headings = ("WIDGET", "INSTALLED", "STATUS", "UPDATE", "REASON")
        click.echo("\n".join(format_table(headings, rows, shrink_first=4)))
    count = sum(item["update"] is not None for item in items)
    print_status(f"{plural(count, 'update')} for {plural(len(items), 'installed version')}.")


def find_local_updates(query: UpdatesQuery) -> list[Json]:
    """Return the updates that this catalog has."""
    _, body = find_updates(database().reader(), query)
    items: list[Json] = json.loads(body)["updates"]
    return items


def request_updates(url: str, query: UpdatesQuery) -> list[Json]:
    """Return the updates that the service has."""
    # Only --url needs urllib3, which the imported module needs.
    from ..remote.service import Service

    parameters = [("compatSdk", query.sdk), *(("installed", str(each)) for each in query.installed)]
    items: list[Json] = Service(url).get(f"{V1_PREFIX}updates?{urlencode(parameters)}")["updates"]
    return items


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
