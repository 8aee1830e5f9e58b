"""widget-catalog mirror: a copy of another catalog, made and refreshed through its public API."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..changes import WidgetName
from ..server_option import CA_OPTION, named_ca
from ..store.write.audit import local_actor
from ..text import format_elapsed, plural
from ..validators import check_base_url, format_timestamp
from .base import (
    WIDGET,
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

# As shells report a process that SIGINT ended.
INTERRUPTED_EXIT_CODE = 130
# In place of a URL, which they are not.
STATUS, FORGET = "status", "forget"

URL = ValidatedType("url", check_base_url)


@command("mirror")
@click.argument("words", metavar="[URL | status | forget URL]", nargs=-1)
@selection_options
@click.option(
    "--exclude",
    "excludes",
    type=WIDGET,
    multiple=True,
    callback=lambda _, option, widgets: tuple(map(str, widgets)),
    help="Not this widget; may be repeated.",
)
@click.option(
    "--newest",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the newest N versions of a widget, of those for each --sdk.",
)
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
@click.option("--delete", is_flag=True, help="With forget: also delete its copies.")
@click.option("--ca", **CA_OPTION)
@click.option("--dry-run", is_flag=True, help="Only print which widgets would change.")
def mirror_command(
    words: Sequence[str],
    adopt: bool,
    delete: bool,
    dry_run: bool,
    **remembered_options: Any,
) -> None:
    """Copy another catalog, or refresh a copy.

    URL is the address of its service, such as https://widgets.example.com. It is remembered with
    the options that select what is copied: without a URL, all upstreams are refreshed as the last
    time. `mirror status` shows them. `mirror forget URL` removes one; its copies become widgets of
    this catalog.

    Only what changed since the last run is transferred. Widgets that the upstream has unlisted or
    deleted are unlisted here, and deleted versions removed. Installs counted here are added to
    those of the upstream.
    """
    from ..mirror.remembered import MirrorOptions, find_remembered

    if database().exists():
        database().check()
    context = click.get_current_context()
    options = MirrorOptions(**remembered_options, ca=context.meta.get("ca"))
    remembered = find_remembered(database())
    action = words[0] if words and words[0] in (STATUS, FORGET) else None
    urls = [URL.convert(word, None, context) for word in (words[1:] if action else words)]
    if len(urls) > 1 or (action == STATUS and urls) or (action == FORGET and not urls):
        raise click.UsageError("Name one URL, status, or forget with one URL.")
    if (action or not urls) and options != MirrorOptions():
        raise click.UsageError(
            f"{' '.join(options.arguments())} needs a URL; without one, the last options apply."
        )
    if (action and adopt) or (action == STATUS and dry_run) or (action != FORGET and delete):
        raise click.UsageError("--adopt and --dry-run are for a refresh, --delete is for forget.")
    if not remembered and (action or not urls):
        raise CommandError("There is no upstream yet; name its URL.")
    if not urls and adopt and len(remembered) > 1:
        raise click.UsageError("--adopt needs a URL, since there are several upstreams.")
    if action == STATUS:
        print_upstreams(remembered)
    elif action == FORGET:
        forget_upstream(urls[0], [each.source for each in remembered], delete, dry_run)
    else:
        refresh_all(
            [(urls[0], options)] if urls else [each[:2] for each in remembered], adopt, dry_run
        )


def refresh_all(
    upstreams: "Sequence[tuple[str, MirrorOptions]]", adopt: bool, dry_run: bool
) -> None:
    """Mirror all upstreams; raise CommandError at the end if anything failed."""
    errors = []
    for source, options in upstreams:
        try:
            refresh(source, options, adopt, dry_run)
        except CommandError as error:
            errors.append(error.message)
    if errors:
        raise CommandError("\n".join(errors))


def forget_upstream(url: str, known: Sequence[str], delete: bool, dry_run: bool) -> None:
    """Forget an upstream, and print what becomes of its copies."""
    from ..mirror.remembered import find_source, forget

    source = find_source(database(), url)
    if source not in known:
        raise CommandError(f"{url} is not an upstream; the upstreams are {', '.join(known)}.")
    count = database().transact(
        partial(forget, source=source, delete=delete), local_actor(), dry_run=dry_run
    )
    fate = "are deleted" if delete else "stay here, as widgets of this catalog"
    print_status(
        f"{'Would forget' if dry_run else 'Forgot'} {source}; copies that {fate}: {count}."
    )


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
                run.bundles = bundles()
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
            format_elapsed(each.refreshed_at),
            *map(str, (each.widgets, each.versions, each.bundles, each.gone)),
        ]
        for each in remembered
    ]
    click.echo("\n".join(format_table(headings, rows, shrink_first=1)))


def print_report(url: str, run: "MirrorRun", bundle_report: "BundleReport | None") -> None:
    """Print the results; raise CommandError if anything failed."""
    report = run.report
    if report.former_options:
        former, new = (each.arguments() for each in (report.former_options, run.options))
        print_status(
            f"Remembered options changed from {' '.join(former) or 'none'} to "
            f"{' '.join(new) or 'none'}."
        )
    warn_of_unmatched(run.options, report.listed)
    print_failures(report.failures)
    becomes = "would become" if run.dry_run else "is now"
    print_first([f"{key} {becomes} a widget of this catalog." for key in report.released])
    print_first([describe_gone(key, run) for key in report.gone])
    reason = f"it is held back until it is {run.options.min_age} old"
    print_first(
        [f"{key} was published at {time}; {reason}." for key, time in report.held_back.items()]
    )
    print_first(
        [
            f"{key} has other bytes at the upstream now; with --min-age it stays as it is here."
            for key in report.replaced
        ]
    )
    print_first([describe_outdated(key, run) for key in report.outdated])
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


def describe_outdated(key: "WidgetName", run: "MirrorRun") -> str:
    """Return what happens here to a version that is no longer among the newest ones."""
    effect = "would be removed" if run.dry_run else "is removed"
    if run.options.keep_removed:
        effect = "stays"
    return f"{key} is not among the newest {run.options.newest or ''} to copy; it {effect} here."


def print_failures(failures: Mapping[str, str]) -> None:
    """Print what failed and why."""
    print_first([f"{name}: {reason}." for name, reason in failures.items()], is_error=True)
