"""Brings the bundles that copied versions name, so that they are loaded from here."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from catalog.documents import Document
from catalog.mirror.sync import Wish
from catalog.mirror.upstream import Upstream, UpstreamError
from catalog.mirror.workers import OnProgress, ahead, batches, counted, pool
from catalog.store import mirror_writes
from catalog.store.bundles import BundleError, Bundles
from catalog.store.database import Database
from catalog.store.mirror_writes import HeldBundle


class Wanted(NamedTuple):
    """A version with the bundle that it names, and whether it is loaded from here already."""

    version: HeldBundle
    url: str
    is_offered: bool

    def __str__(self) -> str:
        return f"{self.version.scope}/{self.version.name}@{self.version.version}"


@dataclass
class BundleReport:
    """What became of the bundles of a run; failures are by version."""

    fetched: int = 0
    held: int = 0
    failures: dict[str, str] = field(default_factory=dict)


COPIED = """
SELECT scope, name, version, sha256_hash, bundle_size, bundle_url, bundle_path IS NOT NULL
FROM version JOIN widget ON widget.id = version.widget_id
JOIN mirrored ON mirrored.widget_id = widget.id
WHERE source = :source AND listed
ORDER BY scope, name, version
"""


def bring_bundles(
    database: Database,
    upstream: Upstream,
    bundles: Bundles,
    wish: Wish,
    workers: int,
    on_progress: OnProgress,
    unwritten: Iterable[Document] = (),
) -> BundleReport:
    """Hold the bundle of every copied version, and have the versions loaded from here."""
    copied = {"source": upstream.base}
    rows = database.reader().execute(COPIED, copied) if database.exists() else []
    versions = [Wanted(HeldBundle(*row[:5]), row[5], bool(row[6])) for row in rows]
    by_hash: dict[str, list[Wanted]] = {}
    for wanted in [*versions, *_named_in(unwritten)]:
        if not wish.scopes or wanted.version.scope in wish.scopes:
            by_hash.setdefault(wanted.version.sha256, []).append(wanted)
    if wish.dry_run:
        present, absent = _divided(bundles, by_hash)
        return BundleReport(fetched=len(absent), held=len(present))
    with bundles.writing(), pool(workers) as threads:
        present, absent = _divided(bundles, by_hash)
        report = BundleReport(held=len(present))
        offer(database, bundles, present, {}, report)
        results = ahead(threads, lambda group: (group, fetch(upstream, bundles, group)), absent)
        for batch in batches(counted(results, on_progress, 0, len(absent))):
            failures = {group[0].version.sha256: why for group, why in batch if why is not None}
            report.fetched += len(batch) - len(failures)
            offer(database, bundles, [group for group, _ in batch], failures, report)
    return report


Groups = list[list[Wanted]]  # those of one bundle together


def _divided(bundles: Bundles, by_hash: dict[str, list[Wanted]]) -> tuple[Groups, Groups]:
    present: Groups = []
    absent: Groups = []
    for sha256, group in by_hash.items():
        (present if bundles.holds(sha256) else absent).append(group)
    return present, absent


def _named_in(documents: Iterable[Document]) -> Iterator[Wanted]:
    for document in documents:
        scope, name = document.widget["scope"], document.widget["name"]
        for row in document.versions:
            held = HeldBundle(scope, name, row["version"], row["sha256_hash"], row["bundle_size"])
            yield Wanted(held, row["bundle_url"], False)


def fetch(upstream: Upstream, bundles: Bundles, group: list[Wanted]) -> str | None:
    """Hold the one bundle that all of these versions name; answers why not, if not."""
    sha256, failure = group[0].version.sha256, None
    candidates = dict.fromkeys((wanted.url, wanted.version.size) for wanted in group)
    for url, size in candidates:
        try:
            _bring(upstream, bundles, sha256, url, size)
            return None
        except (UpstreamError, BundleError) as error:
            failure = f"stays at {url}: {error}"
            if len(candidates) > 1:  # what one gave is nothing for another to go on from
                bundles.partial(sha256).unlink(missing_ok=True)
    return failure


def _bring(upstream: Upstream, bundles: Bundles, sha256: str, url: str, size: int) -> None:
    had_begun = bundles.partial(sha256).exists()
    upstream.download(url, bundles.partial(sha256), size)
    try:
        bundles.accept(sha256, size)
    except BundleError:
        if not had_begun:
            raise
        # What an earlier run left may be the wrong part of it; by now it is removed.
        upstream.download(url, bundles.partial(sha256), size)
        bundles.accept(sha256, size)


def offer(
    database: Database,
    bundles: Bundles,
    groups: Groups,
    failures: dict[str, str],
    report: BundleReport,
) -> None:
    """Have those versions loaded from here whose bundles are here, and only those."""
    ready, lost = [], []
    for wanted in (wanted for group in groups for wanted in group):
        version = wanted.version
        if bundles.holds(version.sha256, version.size):
            if not wanted.is_offered:
                ready.append(version)
            continue
        wrong_size = f"stays at {wanted.url}: {version.size} bytes are not what that bundle has"
        report.failures[str(wanted)] = failures.get(version.sha256, wrong_size)
        if wanted.is_offered:
            lost.append(version.sha256)
    statements = [*mirror_writes.hold_bundles(ready), *mirror_writes.release_bundles(lost)]
    if statements:
        bundles.sync()
        database.write(statements)
