"""flask mirror: a copy of another catalog, made through its public API and brought up to date."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import click
from flask import current_app

from catalog.commands.base import CommandError, bundles, command, database, is_interactive, say
from catalog.commands.terminal import plain
from catalog.documents import MAX_PROBLEMS
from catalog.mirror.bundles import BundleReport, bring_bundles
from catalog.mirror.sync import MirrorError, Report, Wish, mirror
from catalog.mirror.upstream import Upstream, UpstreamError, base_address
from catalog.mirror.workers import OnProgress
from catalog.text import plural, quoted
from catalog.validators import check_identifier

INTERRUPTED = 130  # what shells make of SIGINT


class CheckedType(click.ParamType):  # type: ignore[type-arg]
    """An argument that a function takes or refuses with what is allowed."""

    def __init__(self, name: str, check: Callable[[str], str]) -> None:
        self.name = name
        self.check = check

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> str:
        try:
            return self.check(value)
        except ValueError as allowed:
            self.fail(f"{quoted(value)} is not {allowed}.", parameter, context)


@command("mirror")
@click.argument("url", type=CheckedType("url", base_address))
@click.option(
    "--scope",
    "scopes",
    type=CheckedType("scope", check_identifier),
    multiple=True,
    help="Only widgets of this scope; can be given several times.",
)
@click.option(
    "--bundles", "with_bundles", is_flag=True, help="Hold the bundles too, to serve them."
)
@click.option("--prune", is_flag=True, help="Unlist copies of widgets that are gone there.")
@click.option("--adopt", is_flag=True, help="Also replace widgets that are here from elsewhere.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
def mirror_(
    url: str,
    scopes: tuple[str, ...],
    with_bundles: bool,
    prune: bool,
    adopt: bool,
    dry_run: bool,
) -> None:
    """Copy another catalog, or refresh a copy.

    URL is where its service is, such as https://widgets.example.com. Only what changed since the
    last time is transferred. Installs that are count_text here are added to those count_text there.
    """
    if database().exists():
        database().check()
    wish = Wish(tuple(dict.fromkeys(scopes)), adopt, prune, dry_run)
    workers = current_app.config["MIRROR_WORKERS"]
    brought = None
    try:
        with closing(Upstream(url, workers)) as upstream:
            with progress("Widgets") as on_progress:
                report = mirror(database(), upstream, wish, workers, on_progress)
            if with_bundles:
                with progress("Bundles") as on_progress:
                    brought = bring_bundles(
                        *(database(), upstream, bundles(), wish, workers, on_progress),
                        report.unwritten,
                    )
    except (UpstreamError, MirrorError) as error:
        raise CommandError(f"{url} cannot be mirrored: {plain(str(error))}.") from error
    except KeyboardInterrupt:
        say("Interrupted; the next run goes on from here.")
        os._exit(INTERRUPTED)  # at once: Python would wait for threads that wait for answers
    tell(url, wish, report, brought)


@contextmanager
def progress(label: str) -> Iterator[OnProgress]:
    """A bar with counts and the time left, where a person watches."""
    with click.progressbar(
        length=0, label=label, show_pos=True, file=sys.stderr, hidden=not is_interactive()
    ) as bar:

        def on_progress(done: int, of: int) -> None:
            bar.length = of
            bar.update(done - bar.pos)

        yield on_progress


def tell(url: str, wish: Wish, report: Report, brought: BundleReport | None) -> None:
    """Say what became of everything; refuses where anything failed."""
    list_problems(report.failures)
    here = "here it stays, unless with --prune"
    if wish.prune:
        here = "it would be unlisted here" if wish.dry_run else "it is unlisted here"
    for name in report.gone[:MAX_PROBLEMS]:
        say(f"{plain(str(name))} is gone there; {here}.")
    say(
        f"{'Would mirror' if wish.dry_run else 'Mirrored'} {url}: {report.added} added, "
        f"{report.changed} changed, {report.unchanged} unchanged, {len(report.failures)} failed, "
        f"{len(report.gone)} gone."
    )
    failed = [plural(len(report.failures), "widget")] if report.failures else []
    if brought:
        list_problems(brought.failures)
        say(
            f"Bundles: {brought.fetched} {'to fetch' if wish.dry_run else 'fetched'}, "
            f"{brought.held} here already, {len(brought.failures)} failed."
        )
        failed += [plural(len(brought.failures), "bundle")] if brought.failures else []
    if failed:
        raise CommandError(f"{' and '.join(failed)} failed; all else is done.")


def list_problems(failures: Mapping[str, str]) -> None:
    """Name what failed and why, even where nothing but errors is to be said."""
    for path, reason in list(failures.items())[:MAX_PROBLEMS]:
        click.echo(plain(f"{path}: {reason}."), err=True)
    if len(failures) > MAX_PROBLEMS:
        click.echo(f"There are {len(failures) - MAX_PROBLEMS} more such.", err=True)
