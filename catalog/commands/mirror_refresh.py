"""Refreshes copies for widget-catalog mirror, and asks for confirmation if needed."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ..domain.messages import plural
from ..domain.timestamps import format_timestamp
from ..store.read.mirrors import KnownUpstream, find_upstreams
from ..system.lock_file import lock_file
from .context import bundles, database
from .mirror_report import (
    describe_failures,
    describe_first_failure,
    print_bundles,
    print_report,
)
from .options import lifetime
from .output import CommandError, confirm, print_status, progress_bar
from .server_option import named_ca
from .terminal import replace_unprintable

# Only mirror needs urllib3, so modules that depend on urllib3 are imported inside functions.
if TYPE_CHECKING:
    from ..mirror.options import MirrorOptions
    from ..mirror.run import MirrorRun
    from ..mirror.upstream import Upstream

# The exit code that shells report for a process ended by SIGINT.
INTERRUPTED_EXIT_CODE = 130


def known_upstreams() -> list[KnownUpstream]:
    """Return the catalog's upstreams; [] if there is no catalog yet."""
    if database().exists():
        database().check()
    return find_upstreams(database())


def refresh_all(
    upstreams: "Sequence[tuple[str, MirrorOptions]]",
    adopt: bool,
    dry_run: bool,
    yes: bool,
    *,
    is_new: bool,
) -> None:
    """Refresh the copies from all upstreams; raise CommandError at the end if anything failed."""
    errors = []
    with one_run():
        for source, options in upstreams:
            try:
                refresh(source, options, adopt, dry_run, yes, is_new=is_new)
            except CommandError as error:
                errors += error.message.splitlines()
    if errors:
        raise CommandError(*errors)


@contextmanager
def one_run() -> Iterator[None]:
    """Hold the lock for a refresh; raise CommandError if another process holds it."""
    lock = database().scratch_parent / f"{database().path.name}-mirror.lock"
    try:
        with lock_file(lock):
            yield
    except BlockingIOError:
        raise CommandError(
            f"Another run of mirror is refreshing {database().name}. Nothing was done."
        ) from None


def open_upstream(url: str, options: "MirrorOptions") -> "Upstream":
    """Return the upstream at a URL; raise CommandError if its credentials cannot be read."""
    from ..mirror.upstream import Upstream
    from ..system.netrc_file import NetrcError, find_credentials

    try:
        credentials = find_credentials(url)
    except NetrcError as error:
        raise CommandError(f"Cannot mirror {url}: {error}.") from error
    if credentials.is_exposed:
        path = credentials.path
        print_status(f"Warning: other users can read {path}; make it private: chmod 600 {path}")
    ca = options.ca or named_ca(click.get_current_context())
    return Upstream(url, credentials, ca)


def refresh(
    url: str, options: "MirrorOptions", adopt: bool, dry_run: bool, yes: bool, *, is_new: bool
) -> None:
    """Refresh the copies from one upstream and print the results; raise CommandError on failure."""
    from ..mirror.bundles import download_bundles
    from ..mirror.run import MirrorRun
    from ..mirror.upstream import UpstreamError

    age = lifetime(options.min_age) if options.min_age else None
    limit = format_timestamp(datetime.now(UTC) - age) if age else None
    bundle_report = None
    with closing(open_upstream(url, options)) as upstream:
        run = MirrorRun(database(), bundles(), upstream, options, adopt, dry_run, limit)
        try:
            run.read(is_new=is_new)
            if not dry_run:
                ask(run, yes)
            with progress_bar("Widgets", show_count=True) as on_progress:
                run.write(on_progress)
            if options.bundles and not dry_run:
                with progress_bar("Bundles", show_count=True) as on_progress:
                    bundle_report = download_bundles(
                        database(), upstream, bundles(), run.memory.source, on_progress
                    )
            failures = describe_failures(run.report, bundle_report)
            first = (
                f"; first {describe_first_failure(run.report, bundle_report)}" if failures else ""
            )
            run.remember(failures and f"{failures}{first}")
        except UpstreamError as error:
            reason = replace_unprintable(str(error))
            run.remember_error(reason)
            raise CommandError(f"Cannot mirror {url}: {reason}.") from error
        except KeyboardInterrupt:
            print_status("Interrupted. Run the same command again to continue.")
            # A normal exit would join the threads that wait for responses.
            os._exit(INTERRUPTED_EXIT_CODE)
    print_report(url, run)
    if bundle_report:
        print_bundles(bundle_report)
    if failures:
        raise CommandError(f"{failures}; everything else succeeded.")


def ask(run: "MirrorRun", yes: bool) -> None:
    """Ask before a run drops options or replaces widgets; raise CommandError if declined."""
    former = run.memory.options
    if former and (dropped := run.options.dropped_from(former)):
        added = plural(len(run.plan.added), "widget")
        print_status(
            f"Compared with the last run, this one drops {' '.join(dropped)} and adds {added}."
        )
        # Scripts are not asked, because a run with a URL has always replaced the options.
        confirm("Continue without these options?", yes or not sys.stdin.isatty())
    if run.plan.adopted:
        for key in run.plan.adopted:
            source = run.memory.local[key].source
            origin = f"a copy from {source}" if source else "a local widget"
            print_status(f"{key} is {origin}.")
        replaced = plural(len(run.plan.adopted), "widget")
        confirm(f"Replace {replaced} with copies from the upstream?", yes)
