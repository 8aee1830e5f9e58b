"""Downloads the bundles of mirrored versions, so that this service holds and serves them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from catalog.documents import Document
from catalog.mirror.sync import MirrorOptions
from catalog.mirror.upstream import Upstream, UpstreamError
from catalog.mirror.workers import OnProgress, batched, prefetch, report_progress, thread_pool
from catalog.store.bundles import BundleError, Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.transaction import Transaction
from catalog.store.write.audit import local_actor
from catalog.store.write.held_bundles import HeldBundle, hold_bundles, release_bundles


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


def download_bundles(
    database: Database,
    upstream: Upstream,
    bundles: Bundles,
    options: MirrorOptions,
    on_progress: OnProgress,
    unwritten: Iterable[Document] = (),
) -> BundleReport:
    """Download the bundles of all mirrored versions, and have those versions loaded from here.

    A dry run also counts the versions of the documents that it did not write.
    """
    groups: dict[str, Group] = {}
    for version in [*_mirrored_versions(database, upstream), *_unwritten_versions(unwritten)]:
        if options.includes(version.bundle.scope):
            groups.setdefault(version.bundle.sha256, []).append(version)
    if options.dry_run:
        present, absent = _split_by_presence(bundles, groups)
        return BundleReport(fetched=len(absent), already_here=len(present))
    with bundles.writing(), thread_pool(upstream.connections) as threads:
        present, absent = _split_by_presence(bundles, groups)
        report = BundleReport(already_here=len(present))
        _update_versions(database, bundles, present, {}, report)
        results = prefetch(
            threads, lambda group: (group, _download_group(upstream, bundles, group)), absent
        )
        for batch in batched(report_progress(results, on_progress, 0, len(absent))):
            failures = {
                group[0].bundle.sha256: failure for group, failure in batch if failure is not None
            }
            report.fetched += len(batch) - len(failures)
            _update_versions(database, bundles, [group for group, _ in batch], failures, report)
    return report


MIRRORED_VERSIONS = """
SELECT scope, name, version, sha256_hash, bundle_size, bundle_url, bundle_path IS NOT NULL
FROM version JOIN widget ON widget.id = version.widget_id
JOIN mirrored ON mirrored.widget_id = widget.id
WHERE source = :source AND listed
ORDER BY scope, name, version
"""


def _mirrored_versions(database: Database, upstream: Upstream) -> Iterator[MirroredVersion]:
    if database.exists():
        parameters = {"source": upstream.base_url}
        for row in database.reader().execute(MIRRORED_VERSIONS, parameters):
            yield MirroredVersion(HeldBundle(*row[:5]), row[5], bool(row[6]))


def _unwritten_versions(documents: Iterable[Document]) -> Iterator[MirroredVersion]:
    for document in documents:
        scope, name = document.widget["scope"], document.widget["name"]
        for row in document.versions:
            bundle = HeldBundle(scope, name, row["version"], row["sha256_hash"], row["bundle_size"])
            yield MirroredVersion(bundle, row["bundle_url"], is_held=False)


def _split_by_presence(
    bundles: Bundles, groups: dict[str, Group]
) -> tuple[list[Group], list[Group]]:
    present: list[Group] = []
    absent: list[Group] = []
    for sha256, group in groups.items():
        (present if bundles.holds(sha256) else absent).append(group)
    return present, absent


def _download_group(upstream: Upstream, bundles: Bundles, group: Group) -> str | None:
    """Download the bundle that these versions share; return the reason if that failed.

    Versions may name different URLs and sizes for the same hash. Each is tried until one is right.
    """
    sha256, failure = group[0].bundle.sha256, None
    candidates = dict.fromkeys((version.url, version.bundle.size) for version in group)
    for url, size in candidates:
        try:
            _download_bundle(upstream, bundles, sha256, url, size)
            return None
        except (UpstreamError, BundleError) as error:
            failure = f"stays at {url}: {error}"
            if len(candidates) > 1:
                # Another URL must not continue the partial file of this one.
                bundles.partial(sha256).unlink(missing_ok=True)
    return failure


def _download_bundle(
    upstream: Upstream, bundles: Bundles, sha256: str, url: str, size: int
) -> None:
    is_continued = bundles.partial(sha256).exists()
    upstream.download(url, bundles.partial(sha256), size)
    try:
        bundles.accept(sha256, size)
    except BundleError:
        if not is_continued:
            raise
        # The part from an earlier run may be wrong. accept() has removed the file: start again.
        upstream.download(url, bundles.partial(sha256), size)
        bundles.accept(sha256, size)


def _update_versions(
    database: Database,
    bundles: Bundles,
    groups: list[Group],
    failures: dict[str, str],
    report: BundleReport,
) -> None:
    """Mark the versions whose bundles are here as held, and the others as not held."""
    new, lost = [], []
    for version in (version for group in groups for version in group):
        bundle = version.bundle
        if bundles.holds(bundle.sha256, bundle.size):
            if not version.is_held:
                new.append(bundle)
            continue
        wrong_size = f"stays at {version.url}: its size is not {bundle.size} bytes"
        report.failures[str(version)] = failures.get(bundle.sha256, wrong_size)
        if version.is_held:
            lost.append(bundle.sha256)
    if not new and not lost:
        return

    def update(transaction: Transaction) -> None:
        released = release_bundles(transaction, lost, "mirror")
        hold_bundles(transaction, new)
        after = {"bundlesStored": len(new), "bundlesReleased": released}
        transaction.record("mirror", after=after)

    bundles.sync()
    database.transact(update, local_actor())
