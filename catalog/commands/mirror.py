"""widget-catalog mirror: a copy of another catalog, made and refreshed through its public API."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ..server_option import CA_OPTION, named_ca
from ..text import plural
from ..validators import check_base_url, format_timestamp
from .base import (
    CommandError,
    bundles,
    command,
    database,
    print_first,
    print_status,
    progress_bar,
)
from .durations import lifetime, parse_age
from .names import ValidatedType
from .selection import selection_options, warn_of_unmatched
from .terminal import format_table, replace_unprintable

# Only this command needs urllib3, so its functions import what needs it.
if TYPE_CHECKING:
    from ..mirror.bundles import BundleReport
    from ..mirror.remembered import MirrorOptions, Remembered
    from ..mirror.sync import MirrorRun
    from ..store.write.lookup import WidgetName

# As shells report a process that SIGINT ended.
INTERRUPTED_EXIT_CODE = 130
# In place of a URL, which it is not.
STATUS = "status"


URL_OR_STATUS = ValidatedType("url", lambda text: text if text == STATUS else check_base_url(text))


@command("mirror")
@click.argument("url", metavar="[URL | status]", type=URL_OR_STATUS, required=False)
@selection_options
@click.option("--bundles", is_flag=True, help="Download the bundles too, to serve them.")
@click.option(
    "--keep-removed",
    is_flag=True,
    help="Keep widgets and versions that the upstream has unlisted or deleted, as an archive.",
)
@click.option(
    "--min-age",
    type=ValidatedType("age", parse_age),
    metavar="7d|12h",
    help="Hold new versions back until they are this old.",
)
@click.option(
    "--adopt", is_flag=True, help="Also replace widgets that are not copies from this upstream."
)
@click.option("--ca", **CA_OPTION)
@click.option("--dry-run", is_flag=True, help="Only print which widgets would change.")
def mirror_command(
    url: str | None,
    adopt: bool,
    dry_run: bool,
    **remembered_options: Any,
) -> None:
    """Copy another catalog, or refresh a copy.

    URL is the address of its service, such as https://widgets.example.com. It is remembered with
    the options that select what is copied: without a URL, all upstreams are refreshed as the last
    time. `mirror status` shows them.

    Only what changed since the last run is transferred. Widgets that the upstream has unlisted or
    deleted are unlisted here, and deleted versions removed. Installs counted here are added to
    those of the upstream.
    """
    from ..mirror.remembered import MirrorOptions, find_remembered

    if url == STATUS and (adopt or dry_run):
        raise click.UsageError("--adopt and --dry-run are not for mirror status.")
    if database().exists():
        database().check()
    options = MirrorOptions(**remembered_options, ca=click.get_current_context().meta.get("ca"))
    remembered = find_remembered(database())
    if url in (None, STATUS) and options != MirrorOptions():
        raise click.UsageError(
            f"{' '.join(options.arguments())} needs a URL; without one, the last options apply."
        )
    if url in (None, STATUS) and not remembered:
        raise CommandError("There is no upstream yet; name its URL.")
    if url is None and adopt and len(remembered) > 1:
        raise click.UsageError("--adopt needs a URL, since there are several upstreams.")
    if url == STATUS:
        print_upstreams(remembered)
        return
    errors = []
    for source, known, *_ in [(url, options)] if url else remembered:
        try:
            refresh(source, known, adopt, dry_run)
        except CommandError as error:
            errors.append(error.message)
    if errors:
        raise CommandError("\n".join(errors))


def refresh(url: str, options: "MirrorOptions", adopt: bool, dry_run: bool) -> None:
    """Mirror one upstream, and print the results; raise CommandError if anything failed."""
    from ..mirror.bundles import download_bundles
    from ..mirror.connections import UpstreamError
    from ..mirror.sync import MirrorRun
    from ..mirror.upstream import Upstream

    bundle_report = None
    age = lifetime(options.min_age) if options.min_age else None
    limit = format_timestamp(datetime.now(UTC) - age) if age else None
    try:
        ca = options.ca or named_ca(click.get_current_context())
        with closing(Upstream(url, ca)) as upstream:
            with progress_bar("Widgets", show_count=True) as on_progress:
                run = MirrorRun(database(), upstream, options, on_progress, adopt, dry_run, limit)
                run.run()
            if options.bundles and not dry_run:
                with progress_bar("Bundles", show_count=True) as on_progress:
                    bundle_report = download_bundles(run, bundles(), on_progress)
    except UpstreamError as error:
        raise CommandError(
            f"{url} cannot be mirrored: {replace_unprintable(str(error))}."
        ) from error
    except KeyboardInterrupt:
        print_status("Interrupted; the next run continues from here.")
        # A normal exit would join the threads that wait for responses.
        os._exit(INTERRUPTED_EXIT_CODE)
    print_report(url, run, bundle_report)


def print_upstreams(remembered: "Sequence[Remembered]") -> None:
    """Print a table of the upstreams."""
    headings = ["UPSTREAM", "OPTIONS", "REFRESHED", "WIDGETS", "VERSIONS", "BUNDLES", "GONE"]
    rows = [
        [
            each.source,
            " ".join(each.options.arguments()) or "none",
            format_age(each.refreshed_at),
            *map(str, (each.widgets, each.versions, each.bundles, each.gone)),
        ]
        for each in remembered
    ]
    click.echo("\n".join(format_table(headings, rows, shrink_first=1)))


def format_age(time: str | None) -> str:
    """Return how long ago the time was, in words."""
    if time is None:
        return "never"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{plural(int(seconds // length), unit)} ago"
    return "just now"


def print_report(url: str, run: "MirrorRun", bundle_report: "BundleReport | None") -> None:
    """Print the results; raise CommandError if anything failed."""
    report = run.report
    warn_of_unmatched(run.options, report.listed)
    print_failures(report.failures)
    print_first([describe_gone(key, run) for key in report.gone])
    reason = f"it is held back until it is {run.options.min_age} old"
    print_first(
        [f"{key} was published at {time}; {reason}." for key, time in report.held_back.items()]
    )
    print_first([f"No copy from {each} is left; it is forgotten." for each in report.forgotten])
    gone = [key for key in report.gone if key.version is None]
    print_status(
        f"{'Would mirror' if run.dry_run else 'Mirrored'} {url}: {report.added} added, "
        f"{report.changed} changed, {report.unchanged} unchanged, {len(report.failures)} failed, "
        f"{len(gone)} gone."
    )
    failed = [plural(len(report.failures), "widget")] if report.failures else []
    if bundle_report:
        print_failures(bundle_report.failures)
        print_status(
            f"Bundles: {bundle_report.fetched} fetched, {bundle_report.already_here} here "
            f"already, {len(bundle_report.failures)} failed."
        )
        failed += [plural(len(bundle_report.failures), "bundle")] if bundle_report.failures else []
    if failed:
        raise CommandError(f"{' and '.join(failed)} failed; the rest is done.")


def describe_gone(key: "WidgetName", run: "MirrorRun") -> str:
    """Return what happens here to a widget or version that the upstream no longer shows."""
    cause, effect = ("deleted", "removed") if key.version else ("unlisted or deleted", "unlisted")
    effect = f"would be {effect}" if run.dry_run else f"is {effect}"
    if run.options.keep_removed:
        effect = "stays"
    return f"{key} was {cause} at the upstream; it {effect} here."


def print_failures(failures: Mapping[str, str]) -> None:
    """Print what failed and why."""
    print_first([f"{name}: {reason}." for name, reason in failures.items()], is_error=True)
