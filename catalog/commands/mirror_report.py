"""The output of widget-catalog mirror: a run's results, and a table of upstreams."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..domain.documents import Json
from ..domain.messages import plural
from ..domain.timestamps import format_elapsed
from ..store.read.mirrors import KnownUpstream
from .options import warn_of_unmatched
from .output import print_first, print_lines, print_status
from .terminal import format_table

# Only mirror needs urllib3, so these modules are imported only for type checks.
if TYPE_CHECKING:
    from ..domain.changes import WidgetName
    from ..mirror.bundles import BundleReport
    from ..mirror.report import MirrorReport
    from ..mirror.run import MirrorRun


def print_upstreams(known: Sequence[KnownUpstream]) -> None:
    """Print a table of the upstreams."""
    headings = ["UPSTREAM", "OPTIONS", "REFRESHED", "WIDGETS", "VERSIONS", "BUNDLES", "GONE"]
    rows = [
        [
            each.source,
            " ".join(_options(each)) or "none",
            format_elapsed(each.refreshed_at),
            *map(str, (each.widgets, each.versions, each.bundles, each.gone)),
        ]
        for each in known
    ]
    print_lines(*format_table(headings, rows, shrink_first=1))
    for each in known:
        if each.last_error:
            print_lines(f"The last run of {each.source} failed: {each.last_error}.")


def describe_upstream(known: KnownUpstream) -> Json:
    """Return the fields that `mirror status --json` prints for an upstream."""
    held_back = [
        {"version": version, "publishedAt": time} for version, time in known.held_back.items()
    ]
    return {
        "url": known.source,
        "options": _options(known),
        "refreshedAt": known.refreshed_at,
        "lastError": known.last_error,
        "widgets": known.widgets,
        "versions": known.versions,
        "bundles": known.bundles,
        "gone": known.gone,
        "heldBack": held_back,
    }


def _options(known: KnownUpstream) -> list[str]:
    from ..mirror.options import MirrorOptions

    return MirrorOptions.from_memory(known.options).arguments()


def describe_failures(report: "MirrorReport", bundles: "BundleReport | None") -> str | None:
    """Return how many widgets and bundles failed, without a full stop; None if none did."""
    counts = {"widget": len(report.failures), "bundle": len(bundles.failures) if bundles else 0}
    failed = [plural(count, noun) for noun, count in counts.items() if count]
    return f"{' and '.join(failed)} failed" if failed else None


def describe_first_failure(report: "MirrorReport", bundles: "BundleReport | None") -> str:
    """Return what failed first and why, without a full stop."""
    failures = {**report.failures, **(bundles.failures if bundles else {})}
    return next(f"{name}: {reason}" for name, reason in failures.items())


def print_report(url: str, run: "MirrorRun") -> None:
    """Print the results of a run."""
    report, plan, options = run.report, run.plan, run.options
    _print_options(run)
    listed, local = ({str(key) for key in keys} for keys in (run.lists.listed, run.memory.local))
    warn_of_unmatched(options.unmatched(listed, run.lists.others | local))
    _print_failures(report.failures)
    becomes = "would become" if run.dry_run else "is now"
    print_first([f"{key} {becomes} a local widget." for key in plan.released])
    print_first([_describe_gone(key, run) for key in sorted(report.gone, key=str)])
    print_first(
        [
            f"{key} is copied although it is new: it is the only replacement for {yanked}, which "
            "was yanked."
            for key, yanked in report.urgent.items()
        ]
    )
    _print_held_back(run)
    print_first(
        [
            f"The bundle of {key} has changed at the upstream; because of --min-age, the copy "
            "stays unchanged."
            for key in report.replaced
        ]
    )
    print_first([_describe_outdated(key, run) for key in report.outdated])
    print_first([f"Removed upstream {each}: it has no copies left." for each in report.forgotten])
    gone = [key for key in report.gone if key.version is None]
    print_status(
        f"{'Would mirror' if run.dry_run else 'Mirrored'} {url}: {len(report.added)} added, "
        f"{len(report.changed)} changed, {len(report.unchanged)} unchanged, "
        f"{len(report.failures)} failed, {len(gone)} gone."
    )


def print_bundles(report: "BundleReport") -> None:
    """Print the results of the downloads."""
    _print_failures(report.failures)
    print_status(
        f"Bundles: {report.fetched} fetched, {report.already_here} already stored, "
        f"{len(report.failures)} failed."
    )


def _print_options(run: "MirrorRun") -> None:
    before = run.memory.options
    if before is not None and not run.dry_run and run.options.json() != before.json():
        former, new = (" ".join(each.arguments()) or "none" for each in (before, run.options))
        print_status(f"Remembered options changed from {former} to {new}.")


def _print_held_back(run: "MirrorRun") -> None:
    """Print the versions that are held back for the first time, and count the others."""
    held_back, former = run.report.held_back, run.memory.held_back
    print_first(
        [
            f"{key} was published at {time}; it is held back until it is {run.options.min_age} old."
            for key, time in held_back.items()
            if key not in former
        ]
    )
    if others := len(held_back.keys() & former.keys()):
        verb = "is" if others == 1 else "are"
        print_status(
            f"{plural(others, 'version')} {verb} still held back; mirror status --json lists them."
        )


def _describe_gone(key: "WidgetName", run: "MirrorRun") -> str:
    """Return a sentence about a copy that the upstream no longer shows."""
    cause, effect = ("deleted", "removed") if key.version else ("unlisted or deleted", "unlisted")
    effect = f"would be {effect}" if run.dry_run else f"is {effect}"
    if run.options.keep_removed:
        effect = "stays"
    return f"{key} was {cause} at the upstream; it {effect} here."


def _describe_outdated(key: "WidgetName", run: "MirrorRun") -> str:
    """Return a sentence about a version that is no longer among the newest ones to copy."""
    effect = "would be removed" if run.dry_run else "is removed"
    if run.options.keep_removed:
        effect = "stays"
    count = run.options.newest or ""
    return f"{key} is no longer among the newest {count} versions to copy; it {effect} here."


def _print_failures(failures: Mapping[str, str]) -> None:
    print_first([f"{name}: {reason}." for name, reason in failures.items()], is_error=True)
