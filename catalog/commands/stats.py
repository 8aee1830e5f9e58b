"""The command stats: the widgets whose installs changed most."""

import click

from ..store.connection.sqlite import today
from ..store.read.installs import MAX_DAYS, find_trends
from ..text import plural
from .base import command, database, print_status
from .terminal import format_json, format_table


@command("stats")
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS // 2),
    default=7,
    metavar="N",
    help="Compare the last N days with the N days before, by default 7.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="By default 20.")
@click.option("--json", "json_output", is_flag=True, help="Print a JSON array instead of a table.")
def stats(days: int, limit: int, json_output: bool) -> None:
    """List the widgets whose installs changed most.

    Days are in UTC, with today. Only installs that were counted here are compared, with those of
    unlisted widgets.
    """
    found = find_trends(database().reader(), days, today())
    rows = [{**dict(row), "change": row["recent"] - row["before"]} for row in found]
    if json_output:
        click.echo(format_json(rows[:limit]))
        return
    if rows:
        cells = [
            [
                f"{row['scope']}/{row['name']}",
                str(row["recent"]),
                str(row["before"]),
                f"{row['change']:+}",
            ]
            for row in rows[:limit]
        ]
        headings = ("WIDGET", "INSTALLS", "BEFORE", "CHANGE")
        click.echo("\n".join(format_table(headings, cells, shrink_first=0)))
    recent, before = (sum(row[key] for row in rows) for key in ("recent", "before"))
    period = plural(days, "day")
    print_status(
        f"{plural(recent, 'install')} in the last {period}, {before} in the {period} before."
    )
