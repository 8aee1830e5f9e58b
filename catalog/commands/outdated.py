"""The command outdated: the updates of installed versions, here or at another service."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlencode

import click

from .. import V1_PREFIX
from ..documents import Json
from ..serving.health_client import ca_option
from ..store.read.search_params import ParameterError
from ..store.read.updates import Installed, UpdatesQuery, find_updates, parse_installed
from ..text import plural, quoted
from .base import (
    SDK,
    SERVICE_URL,
    CommandError,
    command,
    database,
    file_name,
    print_status,
)
from .terminal import format_json, format_table, replace_unprintable

# Only --url needs urllib3, so the functions for it import what needs it.
if TYPE_CHECKING:
    from ..mirror.upstream import Upstream

# The longest names of so many widgets fit into the request line that a service accepts.
BATCH = 20

FindUpdates = Callable[[UpdatesQuery], list[Json]]


@command("outdated")
@click.argument("file", type=click.File("rb"))
@click.option("--sdk", type=SDK, required=True, help="The SDK version of the dashboard.")
@click.option("--url", type=SERVICE_URL, help="Ask the service at this address.")
@ca_option
@click.option("--json", "json_output", is_flag=True, help="Print a JSON array instead of a table.")
def outdated(file: BinaryIO, sdk: str, url: str | None, ca: str | None, json_output: bool) -> None:
    """List the updates of installed versions.

    FILE has one scope/name@version per line, or is - for standard input. Empty lines and lines
    that begin with # are ignored. The table omits versions that are current, --json does not.
    """
    installed = read_installed(file)
    items: list[Json] = []
    with updates_from(url, ca) as find:
        for start in range(0, len(installed), BATCH):
            items += find(UpdatesQuery(sdk, tuple(installed[start : start + BATCH])))
    if json_output:
        click.echo(format_json(items))
        return
    rows = [format_row(item) for item in items if item["status"] != "current" or item["yanked"]]
    if rows:
        headings = ("WIDGET", "INSTALLED", "STATUS", "UPDATE", "REASON")
        click.echo("\n".join(format_table(headings, rows, shrink_first=4)))
    count = sum(item["update"] is not None for item in items)
    print_status(f"{plural(count, 'update')} for {plural(len(items), 'installed version')}.")


def read_installed(file: BinaryIO) -> list[Installed]:
    """Return the versions that the file names, each once; raise CommandError if one is invalid."""
    installed: dict[Installed, None] = {}
    for number, line in enumerate(file, start=1):
        text = line.decode("utf-8-sig", errors="replace").strip()
        if not text or text.startswith("#"):
            continue
        try:
            installed[parse_installed(text)] = None
        except ParameterError:
            form = f"{quoted(text)} is not of the form scope/name@version"
            raise CommandError(f"{file_name(file)} line {number}: {form}.") from None
    return list(installed)


@contextmanager
def updates_from(url: str | None, ca: str | None) -> Iterator[FindUpdates]:
    """Yield a function that returns the updates of a query."""
    if url is None:
        yield find_local_updates
        return
    from ..mirror.connections import UpstreamError
    from ..mirror.upstream import Upstream

    try:
        with closing(Upstream(url, ca)) as upstream:
            yield lambda query: request_updates(upstream, query)
    except UpstreamError as error:
        raise CommandError(f"{url} has no updates: {replace_unprintable(str(error))}.") from error


def find_local_updates(query: UpdatesQuery) -> list[Json]:
    """Return the updates that this catalog has."""
    _, body = find_updates(database().reader(), query)
    items: list[Json] = json.loads(body)["updates"]
    return items


def request_updates(upstream: "Upstream", query: UpdatesQuery) -> list[Json]:
    """Return the updates that the service has; raise UpstreamError."""
    from ..mirror.connections import UpstreamError

    parameters = [("compatSdk", query.sdk), *(("installed", str(each)) for each in query.installed)]
    response = upstream.get(f"{V1_PREFIX}updates?{urlencode(parameters)}")
    if response.status == 404:
        raise UpstreamError("the response status is 404, so its release is older than 1.1.0")
    content = response.json()
    try:
        items = content["updates"]
        # Each key that is used must be there.
        for item in items:
            format_row(item)
    except (KeyError, TypeError, AttributeError) as error:
        raise UpstreamError("the response is not a list of updates") from error
    checked: list[Json] = items
    return checked


def format_row(item: Json) -> Sequence[str]:
    """Return the cells of an installed version."""
    update = item["update"]
    return (
        f"{item['scope']}/{item['name']}",
        str(item["installed"]),
        "yanked" if item["yanked"] else str(item["status"]),
        "none" if update is None else str(update["version"]),
        str(item["reason"]),
    )
