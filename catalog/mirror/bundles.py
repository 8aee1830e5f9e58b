"""Downloads the bundles of copies, so that this service stores and serves them."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..domain.messages import plural
from ..store.bundles.bundles import BundleError, Bundles
from ..store.bundles.compressed import compress_bundle
from ..store.connection.database import Database
from ..store.connection.transaction import Transaction
from ..store.read.audit import local_actor
from ..store.read.mirrors import CopiedVersion, find_copied_versions
from ..store.write.stored_bundles import register_bundles, release_bundles
from .documents import in_batches
from .upstream import MAX_BUNDLE_BYTES, Upstream, UpstreamError

# Downloads leave a tenth of the disk free, and at least this many bytes.
MIN_FREE_BYTES = 256 * 1024 * 1024
NO_SPACE = "at least 256 MB and a tenth of the disk must stay free"

# The versions that share one bundle.
Group = list[CopiedVersion]


@dataclass
class BundleReport:
    """How many bundles a run fetched or already had, and why any versions failed."""

    fetched: int = 0
    already_here: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def download_bundles(
    database: Database,
    upstream: Upstream,
    bundles: Bundles,
    source: str,
    on_progress: Callable[[int, int], None],
) -> BundleReport:
    """Download the bundles of all listed copies, and register each bundle as it arrives."""
    groups: dict[str, Group] = {}
    for version in find_copied_versions(database, source):
        groups.setdefault(version.sha256, []).append(version)
    present = [group for sha256, group in groups.items() if bundles.has(sha256)]
    absent = [group for sha256, group in groups.items() if not bundles.has(sha256)]
    report = BundleReport(already_here=len(present))
    done = 0
    with bundles.incoming() as incoming:
        register = partial(_register, database, bundles, incoming, report=report)
        register(present, failures={})
        download = partial(_download_group, upstream, incoming)
        for results in in_batches(download, absent):
            arrived = [(group, why) for group, why in results if why != NO_SPACE]
            failures = {group[0].sha256: why for group, why in arrived if why is not None}
            register([group for group, _ in arrived], failures=failures)
            report.fetched += len(arrived) - len(failures)
            done += len(arrived)
            on_progress(done, len(absent))
            if len(arrived) < len(results):
                left = plural(len(absent) - done, "bundle")
                report.failures["Bundles"] = f"the download stopped with {left} left: {NO_SPACE}"
                break
    return report


def _download_group(upstream: Upstream, incoming: Bundles, group: Group) -> str | None:
    """Download the bundle that these versions share; if this fails, return the reason.

    Versions may name different URLs and sizes for the same hash; try them until one succeeds.
    """
    failure = None
    for url, size in dict.fromkeys((version.url, version.size) for version in group):
        if not _has_space(incoming, min(size, MAX_BUNDLE_BYTES)):
            return NO_SPACE
        try:
            upstream.download(url, size, partial(incoming.add, group[0].sha256, size))
            compress_bundle(incoming, group[0].sha256)
            return None
        except (UpstreamError, BundleError) as error:
            failure = f"its bundle stays at {url}: {error}{_explain_scheme(upstream, url)}"
    return failure


def _has_space(incoming: Bundles, size: int) -> bool:
    """Return whether enough disk space stays free after storing a bundle of this size."""
    total, _, free = shutil.disk_usage(incoming.directory)
    return free - size >= max(total // 10, MIN_FREE_BYTES)


def _explain_scheme(upstream: Upstream, url: str) -> str:
    """Return a hint if an https upstream names an http URL; otherwise return an empty string."""
    if not upstream.base_url.startswith("https:") or not url.startswith("http:"):
        return ""
    return (
        "; the upstream is at an https URL, but names http URLs for its bundles: its operator "
        "should set CATALOG_PUBLIC_URL"
    )


def _register(
    database: Database,
    bundles: Bundles,
    incoming: Bundles,
    groups: Sequence[Group],
    failures: dict[str, str],
    report: BundleReport,
) -> None:
    """Store the downloaded bundles, and register the versions whose bundle is stored here.

    Only this step locks the bundle directory, so publishing does not wait for downloads.
    """
    new, lost = list[CopiedVersion](), list[str]()
    with bundles.writing():
        for version in (version for group in groups for version in group):
            if incoming.has(version.sha256):
                bundles.accept(incoming, version.sha256)
            if not bundles.has(version.sha256, version.size):
                wrong_size = f"its bundle stays at {version.url}: it is not {version.size} bytes"
                report.failures[str(version)] = failures.get(version.sha256, wrong_size)
                lost += [version.sha256] if version.is_stored else []
            elif not version.has_hash:
                new.append(version)
        if not new and not lost:
            return

        def update(transaction: Transaction) -> None:
            released = release_bundles(transaction, lost, "mirror")
            register_bundles(transaction, new)
            after = {"bundlesStored": len(new), "bundlesReleased": released}
            transaction.record("mirror", after=after)

        bundles.sync()
        database.transact(update, local_actor())
