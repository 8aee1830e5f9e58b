"""widget-catalog outdated: lists updates for installed versions, from this catalog or a service."""

from typing import BinaryIO

import click

from ..domain.documents import Json
from ..domain.installed_list import read_installed_list
from ..domain.messages import plural
from ..store.read.updates import CURRENT
from .base import command
from .catalogs import open_catalog
from .options import SDK, ValidatedType, json_option, parse_before
from .output import CommandError, file_name, print_json, print_lines, print_status
from .terminal import format_table

# Even with the longest names, this many widgets fit into the request line that a service accepts.
BATCH = 20


@command("outdated", remote=True)
@click.argument("file", type=click.File("rb"))
@click.option("--sdk", type=SDK, required=True, help="Set the SDK version of the dashboard.")
@click.option(
    "--before",
    type=ValidatedType("age or date", parse_before),
    metavar="7d|DATE",
    help="Ignore versions that are younger than this, or published on or after this date.",
)
@click.option("--exit-code", is_flag=True, help="Exit with status 1 if the table has any row.")
@json_option
def outdated(
    file: BinaryIO, sdk: str, before: str | None, exit_code: bool, json_output: bool
) -> None:
    """List the updates for installed versions.

    FILE has one scope/name@version per line, or is a JSON array of them, or a JSON object that maps
    scope/name to a version; - is standard input. Empty lines and lines that begin with # are
    ignored. The table omits versions that are up to date and neither yanked nor deprecated. With
    --json, the output contains all versions.
    """
    installed, notice, error = read_installed_list(file.read().decode(errors="replace"))
    if error:
        raise CommandError(f"{file_name(file)}: {error}")
    if notice:
        print_status(notice)
    catalog = open_catalog()
    items: list[Json] = []
    for start in range(0, len(installed), BATCH):
        items += catalog.find_updates(sdk, installed[start : start + BATCH], before)
    if before and any(each["update"]["publishedAt"] >= before for each in items if each["update"]):
        raise CommandError("The service ignores --before: its release is older than 1.1.0.")
    rows = [format_row(item) for item in items if find_status(item) != CURRENT]
    if json_output:
        print_json(items)
    elif rows:
        headings = ("WIDGET", "INSTALLED", "STATUS", "UPDATE", "REASON")
        print_lines(*format_table(headings, rows, shrink_first=4))
    if not json_output:
        count = sum(item["update"] is not None for item in items)
        print_status(f"{plural(count, 'update')} for {plural(len(items), 'installed version')}.")
    if exit_code and rows:
        click.get_current_context().exit(1)


def find_status(item: Json) -> str:
    """Return the status of an installed version as one word for the table."""
    if item["yanked"]:
        return "yanked"
    is_deprecated = item["status"] == CURRENT and item["deprecationMessage"] is not None
    return "deprecated" if is_deprecated else str(item["status"])


def format_row(item: Json) -> list[str]:
    """Return the table cells for an installed version."""
    update = item["update"]
    return [
        f"{item['scope']}/{item['name']}",
        item["installed"],
        find_status(item),
        "none" if update is None else update["version"],
        explain(item),
    ]


def explain(item: Json) -> str:
    """Return the entry in the REASON column, which says if a version is yanked or deprecated."""
    yanked, reason = f"{item['installed']} was yanked", str(item["reason"])
    if item["yanked"] and not reason.startswith(yanked):
        why = item["yankedReason"]
        return f"{yanked}: {why.rstrip('.')}; {reason}" if why else f"{yanked}; {reason}"
    if find_status(item) == "deprecated":
        return f"{item['installed']} is deprecated: {item['deprecationMessage']}"
    return reason
