"""Downloads the bundles of mirrored versions, so that this service holds and serves them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ..store.bundles import BundleError, Bundles
from ..store.connection.database import Database
from ..store.connection.transaction import Transaction
from ..store.write.audit import local_actor
from ..store.write.held_bundles import HeldBundle, hold_bundles, release_bundles
from .connections import UpstreamError
from .fetch import OnProgress, batched, thread_pool
from .sync import MirrorRun
from .upstream import Upstream


class MirroredVersion(NamedTuple):
    """A version of a mirrored widget, with its bundle, where to download it, and if it is held."""

    bundle: HeldBundle
    url: str
    is_held: bool

    def __str__(self) -> str:
        return f"{self.bundle.scope}/{self.bundle.name}@{self.bundle.version}"


# The versions that share one bundle.
Group = list[MirroredVersion]


@dataclass
class BundleReport:
    """Results of a run: numbers of bundles, and reasons for failures by version."""

    fetched: int = 0
    already_here: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def download_bundles(run: MirrorRun, bundles: Bundles, on_progress: OnProgress) -> BundleReport:
    """Download the bundles of all that is refreshed, and have its versions loaded from here."""
    groups: dict[str, Group] = {}
    for row in run.database.reader().execute(MIRRORED_VERSIONS, {"source": run.source}):
        version = MirroredVersion(HeldBundle(*row[:5]), row[5], bool(row[6]))
        groups.setdefault(version.bundle.sha256, []).append(version)
    present = [group for sha256, group in groups.items() if bundles.holds(sha256)]
    absent = [group for sha256, group in groups.items() if not bundles.holds(sha256)]
    report = BundleReport(already_here=len(present))
    with bundles.incoming() as incoming, thread_pool() as threads:
        _update_versions(run.database, bundles, incoming, present, {}, report)
        done = 0
        for batch in batched(absent):
            failures: dict[str, str] = {}
            results = threads.map(partial(_download_group, run.upstream, incoming), batch)
            for group, failure in zip(batch, results, strict=True):
                if failure is not None:
                    failures[group[0].bundle.sha256] = failure
                done += 1
                on_progress(done, len(absent))
            report.fetched += len(batch) - len(failures)
            _update_versions(run.database, bundles, incoming, batch, failures, report)
    return report


MIRRORED_VERSIONS = """
SELECT scope, name, version, sha256_hash, bundle_size, bundle_url, bundle_path IS NOT NULL
FROM version JOIN widget ON widget.id = version.widget_id
JOIN mirrored ON mirrored.widget_id = widget.id
WHERE source = :source AND listed
ORDER BY scope, name, version
"""


def _download_group(upstream: Upstream, incoming: Bundles, group: Group) -> str | None:
    """Download the bundle that these versions share; return the reason if that failed.

    Versions may name different URLs and sizes for the same hash. Each is tried until one is right.
    """
    sha256, failure = group[0].bundle.sha256, None
    candidates = dict.fromkeys((version.url, version.bundle.size) for version in group)
    for url, size in candidates:
        try:
            upstream.download(url, size, partial(incoming.add, sha256, size))
            return None
        except (UpstreamError, BundleError) as error:
            failure = f"stays at {url}: {error}"
    return failure


def _update_versions(
    database: Database,
    bundles: Bundles,
    incoming: Bundles,
    groups: Sequence[Group],
    failures: dict[str, str],
    report: BundleReport,
) -> None:
    """Name the downloads, and mark versions whose bundles are here as held, others as not held.

    Only this locks the directory of bundles: a publication does not wait for downloads.
    """
    new, lost = [], []
    with bundles.writing():
        for version in (version for group in groups for version in group):
            bundle = version.bundle
            if incoming.holds(bundle.sha256):
                bundles.accept(incoming, bundle.sha256)
            if not bundles.holds(bundle.sha256, bundle.size):
                wrong_size = f"stays at {version.url}: its size is not {bundle.size} bytes"
                report.failures[str(version)] = failures.get(bundle.sha256, wrong_size)
                lost += [bundle.sha256] if version.is_held else []
            elif not version.is_held:
                new.append(bundle)
        if not new and not lost:
            return

        def update(transaction: Transaction) -> None:
            released = release_bundles(transaction, lost, "mirror")
            hold_bundles(transaction, new)
            after = {"bundlesStored": len(new), "bundlesReleased": released}
            transaction.record("mirror", after=after)

        bundles.sync()
        database.transact(update, local_actor())
