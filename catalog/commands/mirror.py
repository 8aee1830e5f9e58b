"""flask mirror: a copy of another catalog, made and refreshed through its public API."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import click
from flask import current_app

from catalog.commands.base import CommandError, bundles, command, database, is_interactive, say
from catalog.commands.terminal import plain
from catalog.documents import MAX_PROBLEMS, identifier
from catalog.mirror.bundles import BundleReport, download_bundles
from catalog.mirror.sync import MirrorError, MirrorOptions, MirrorReport, mirror
from catalog.mirror.upstream import Upstream, UpstreamError, upstream_url
from catalog.mirror.workers import OnProgress
from catalog.text import plural, quoted

# As shells report a process that SIGINT ended.
INTERRUPTED_EXIT_CODE = 130


class ValidatedType(click.ParamType):  # type: ignore[type-arg]
    """A parameter that a function validates; its ValueError states what is allowed."""

    def __init__(self, name: str, validate: Callable[[str], str]) -> None:
        self.name = name
        self.validate = validate

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> str:
        try:
            return self.validate(value)
        except ValueError as rule:
            self.fail(f"{quoted(value)} is not {rule}.", parameter, context)


@command("mirror")
@click.argument("url", type=ValidatedType("url", upstream_url))
@click.option(
    "--scope",
    "scopes",
    type=ValidatedType("scope", identifier),
    multiple=True,
    help="Only widgets of this scope; may be repeated.",
)
@click.option(
    "--bundles", "with_bundles", is_flag=True, help="Download the bundles too, to serve them."
)
@click.option(
    "--prune", is_flag=True, help="Unlist copies of widgets that are gone from the upstream."
)
@click.option(
    "--adopt", is_flag=True, help="Also replace widgets that are not copies from this upstream."
)
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
def mirror_command(
    url: str,
    scopes: tuple[str, ...],
    with_bundles: bool,
    prune: bool,
    adopt: bool,
    dry_run: bool,
) -> None:
    """Copy another catalog, or refresh a copy.

    URL is the address of its service, such as https://widgets.example.com. Only what changed since
    the last run is transferred. Installs counted here are added to those of the upstream.
    """
    if database().exists():
        database().check()
    options = MirrorOptions(tuple(dict.fromkeys(scopes)), adopt, prune, dry_run)
    bundle_report = None
    try:
        with closing(Upstream(url, current_app.config["MIRROR_WORKERS"])) as upstream:
            with progress_bar("Widgets") as on_progress:
                report = mirror(database(), upstream, options, on_progress)
            if with_bundles:
                with progress_bar("Bundles") as on_progress:
                    bundle_report = download_bundles(
                        database(), upstream, bundles(), options, on_progress, report.unwritten
                    )
    except (UpstreamError, MirrorError) as error:
        raise CommandError(f"{url} cannot be mirrored: {plain(str(error))}.") from error
    except KeyboardInterrupt:
        say("Interrupted; the next run continues from here.")
        # A normal exit would join the threads that wait for responses.
        os._exit(INTERRUPTED_EXIT_CODE)
    print_report(url, options, report, bundle_report)


@contextmanager
def progress_bar(label: str) -> Iterator[OnProgress]:
    """Show a bar with counts and the remaining time, if a person watches."""
    with click.progressbar(
        length=0, label=label, show_pos=True, file=sys.stderr, hidden=not is_interactive()
    ) as bar:

        def on_progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield on_progress


def print_report(
    url: str, options: MirrorOptions, report: MirrorReport, bundle_report: BundleReport | None
) -> None:
    """Print the results; raise CommandError if anything failed."""
    print_failures(report.failures)
    effect = "it stays listed here without --prune"
    if options.prune:
        effect = "it would be unlisted here" if options.dry_run else "it is unlisted here"
    for key in report.gone[:MAX_PROBLEMS]:
        say(f"{plain(str(key))} is gone from the upstream; {effect}.")
    say(
        f"{'Would mirror' if options.dry_run else 'Mirrored'} {url}: {report.added} added, "
        f"{report.changed} changed, {report.unchanged} unchanged, {len(report.failures)} failed, "
        f"{len(report.gone)} gone."
    )
    failed = [plural(len(report.failures), "widget")] if report.failures else []
    if bundle_report:
        print_failures(bundle_report.failures)
        say(
            f"Bundles: {bundle_report.fetched} {'to fetch' if options.dry_run else 'fetched'}, "
            f"{bundle_report.already_here} here already, {len(bundle_report.failures)} failed."
        )
        failed += [plural(len(bundle_report.failures), "bundle")] if bundle_report.failures else []
    if failed:
        raise CommandError(f"{' and '.join(failed)} failed; the rest is done.")


def print_failures(failures: Mapping[str, str]) -> None:
    """Print what failed and why, also with --quiet."""
    for name, reason in list(failures.items())[:MAX_PROBLEMS]:
        click.echo(plain(f"{name}: {reason}."), err=True)
    if len(failures) > MAX_PROBLEMS:
        click.echo(f"There are {len(failures) - MAX_PROBLEMS} more failures.", err=True)
