"""Copies the widgets of an upstream catalog through its public API, and refreshes the copies.

MirrorRun.run() makes a plan from the changes of the upstream since the last run, if it lists them,
and the list of its widgets. A copy that did not change gets its download count from the list; every
other widget is fetched, a copy with its ETag. All of it is written in batches. Then comes what is
said about the copies that the changes name. Copies that are gone from the upstream are unlisted.
Bundles come afterwards: see bundles.download_bundles().
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..changes import TooLargeError, WidgetName
from ..documents import Document, Row
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.transaction import Transaction, now
from ..store.read.selection import Selection
from ..store.write.audit import local_actor
from ..store.write.imports import OPTIMIZE_AFTER, OPTIMIZE_SEARCH_INDEX, PutResult
from ..store.write.mirrored import (
    MirroredWidget,
    put_upstream_counts,
    put_upstream_documents,
    release_excluded,
    unlist_gone,
)
from .about import AboutRun
from .connections import UpstreamError
from .fetch import (
    FetchResult,
    OnProgress,
    UpstreamChanges,
    batched,
    fetch_widget,
    list_widgets,
    read_changes,
    thread_pool,
)
from .plan import LocalWidget, MirrorReport, Plan, find_local
from .remembered import (
    MirrorOptions,
    Remembered,
    find_remembered,
    find_source,
    forget_without_copies,
    put_remembered,
)
from .upstream import Upstream
from .version_choice import choose_newest, hold_back_new

MAX_FAILURES_IN_A_ROW = 25


@dataclass
class MirrorRun:
    """One refresh of the copies of an upstream.

    Each batch is one transaction, so an interrupted run loses at most one batch.
    """

    database: Database
    upstream: Upstream
    options: MirrorOptions
    on_progress: OnProgress
    adopt: bool = False
    dry_run: bool = False
    # Versions that were published later are held back, if this is given.
    published_before: str | None = None
    # The URL by which the copies are known.
    source: str = field(init=False)
    local: dict[WidgetName, LocalWidget] = field(default_factory=dict)
    # Where pictures are stored.
    bundles: Bundles | None = None
    # Whether every copy is compared, even with the ETag of the last run.
    compares_all: bool = False
    not_found: list[WidgetName] = field(default_factory=list)
    report: MirrorReport = field(default_factory=MirrorReport)

    def run(self) -> MirrorReport:
        """Copy every selected widget of the upstream, and unlist copies that are gone there."""
        plan = self.plan()
        self.write_counts(plan.current)
        self.fetch_and_write(plan.fetched, len(plan.current))
        if plan.changes and self.bundles and not self.dry_run:
            self.refresh_about(plan.changes, self.bundles)
        self.finish(plan)
        return self.report

    def plan(self) -> Plan:
        """Read the changes and the list of the upstream; create the catalog if there is none."""
        options = self.options
        self.source = find_source(self.database, self.upstream.base_url)
        known = [each for each in find_remembered(self.database) if each.source == self.source]
        remembered = known[0] if known else Remembered(self.source, options)
        self.upstream.limit_lists()
        # Without bundles, the copies got no pictures.
        has_pictures = remembered.options.bundles or not options.bundles
        changes = read_changes(self.upstream, remembered.token if has_pictures else None)
        # This fails if there is no catalog at the URL, before an empty database is created.
        listed, is_complete = list_widgets(self.upstream, options)
        if not self.database.exists() and not self.dry_run:
            self.database.create()
        if not known or options.json() != remembered.options.json():
            # Already now, so that an interrupted run can be continued without options.
            self.remember(remembered.token, remembered.refreshed_at)
            if known and not self.dry_run:
                self.report.former_options = remembered.options
            self.compares_all = not options.has_versions_of(remembered.options)
        self.local = find_local(self.database)
        self.release_excluded()
        copies = [
            key for key, each in self.local.items() if each.listed and each.source == self.source
        ]
        if copies and not listed and not options.keep_removed:
            self.check_lists_any()
        current = {
            key: listed[key]
            for key in copies
            if changes and key in listed and changes.has_current(key, self.local[key].etag)
        }
        if self.compares_all:
            current = {}
        # The changes name what the list misses, but not if it is official, or for an SDK.
        is_covered = bool(changes and not options.official and not options.sdks)
        changed = changes.changed if changes and is_covered else []
        named = (key for key in changed if options.names(key.scope, key.name))
        keys = dict.fromkeys([*copies, *named, *listed])
        fetched = [key for key in keys if key not in current]
        is_complete = is_covered or is_complete
        return Plan(remembered, changes, listed, is_complete, copies, current, fetched)

    def release_excluded(self) -> None:
        """Make copies that are excluded now widgets of this catalog."""
        released = [
            key
            for key, each in self.local.items()
            if each.source == self.source and str(key) in self.options.excludes
        ]
        self.report.released = released
        self.local |= {key: self.local[key]._replace(source=None) for key in released}
        if released and not self.dry_run:
            self.database.transact(partial(release_excluded, widgets=released), local_actor())

    def check_lists_any(self) -> None:
        """Raise UpstreamError if the upstream lists nothing: that is more often a fault."""
        everything, _ = list_widgets(self.upstream, Selection())
        if not everything:
            reason = "it lists no widget, so all copies would be unlisted"
            raise UpstreamError(f"{reason}; --keep-removed keeps them")

    def remember(self, token: str | None, refreshed_at: str | None) -> None:
        """Store the options, how far the changes were read, and the time."""
        if not self.dry_run:
            upstream = Remembered(self.source, self.options, token, refreshed_at)
            self.database.transact(partial(put_remembered, upstream=upstream))

    def write_counts(self, counts: Mapping[WidgetName, int | None]) -> None:
        """Write the upstream's counts of copies that are current otherwise."""
        changed = [
            MirroredWidget(*key[:2], self.source, self.local[key].etag, count)
            for key, count in counts.items()
            if count != self.local[key].upstream_count
        ]
        self.report.changed += len(changed)
        self.report.unchanged += len(counts) - len(changed)
        if not self.dry_run:
            for batch in batched(changed):
                self.database.transact(partial(put_upstream_counts, widgets=batch))

    def fetch_and_write(self, keys: Sequence[WidgetName], done: int) -> None:
        """Fetch the widgets, and write what changed in batches; done are those before them."""
        total = done + len(keys)
        self.on_progress(done, total)
        failures = 0
        with thread_pool() as threads:
            for batch in batched(keys):
                results: list[FetchResult] = []
                try:
                    for result in threads.map(self.fetch, batch):
                        results.append(result)
                        done += 1
                        self.on_progress(done, total)
                        failures = failures + 1 if result.is_unavailable else 0
                        if failures == MAX_FAILURES_IN_A_ROW:
                            raise UpstreamError(
                                f"{failures} requests in a row failed, the last one because "
                                f"{result.failure}"
                            )
                finally:
                    self.write_batch(results)

    def fetch(self, key: WidgetName) -> FetchResult:
        """Fetch and validate one widget. Runs in the thread pool."""
        local = self.local.get(key)
        etag = None
        if local and local.source == self.source:
            # An unlisted copy is listed again by writing it, so it must not get a 304.
            etag = local.etag if local.listed and not self.compares_all else None
        elif local and not self.adopt:
            origin = (
                f"is a copy from {local.source}"
                if local.source
                else "was published or imported here"
            )
            return FetchResult(key, failure=f"{origin}; --adopt replaces it, --exclude leaves it")
        return fetch_widget(self.upstream, key, etag)

    def write_batch(self, results: list[FetchResult]) -> None:
        """Write the results in one transaction, and count them in the report."""
        widgets: list[tuple[Document, MirroredWidget]] = []
        # All versions at the upstream.
        shown: set[WidgetName] = set()
        for key, document, etag, is_not_found, failure, _ in results:
            if failure is not None:
                self.report.failures[str(key)] = failure
            elif is_not_found:
                self.not_found.append(key)
            elif document is None:
                self.report.unchanged += 1
            else:
                rows, is_final = self.choose_versions(key, document)
                if document.versions and not rows and key not in self.local:
                    continue
                # Without an ETag, the next run compares the versions again.
                etag = etag if is_final else None
                upstream_count = document.widget["download_count"]
                mirrored = MirroredWidget(*key[:2], self.source, etag, upstream_count)
                widgets.append((document._replace(versions=rows), mirrored))
                shown |= {key._replace(version=row["version"]) for row in document.versions}

        def put(transaction: Transaction) -> PutResult:
            removes_versions = not self.options.keep_removed
            result = put_upstream_documents(transaction, widgets, removes_versions=removes_versions)
            added, changed = len(result.added), len(result.changed)
            if added or changed:
                after = {"source": self.source, "added": added, "changed": changed}
                transaction.record("mirror", after=after)
            return result

        # A dry run without a catalog adds all.
        result = PutResult({document.path for document, _ in widgets}, set())
        while widgets and self.database.exists():
            try:
                result = self.database.transact(put, local_actor(), dry_run=self.dry_run)
                break
            except TooLargeError as error:
                self.report.failures[error.path] = error.reason
                widgets = [each for each in widgets if each[0].path != error.path]
                result = PutResult(set(), set())
        added, changed = len(result.added), len(result.changed)
        self.report.added += added
        self.report.changed += changed
        self.report.unchanged += len(widgets) - added - changed
        self.report.gone += [each for each in result.others if each not in shown]
        self.report.outdated += [each for each in result.others if each in shown]

    def refresh_about(self, changes: UpstreamChanges, bundles: Bundles) -> None:
        """Copy what is said about the copies that the changes name."""
        local = find_local(self.database)
        copies = {key for key, each in local.items() if each.source == self.source}
        keys = [key for key in changes.changed if key in copies]
        run = AboutRun(self.database, self.upstream, bundles, self.options.bundles)
        self.report.failures |= run.refresh(keys)

    def choose_versions(self, key: WidgetName, document: Document) -> tuple[list[Row], bool]:
        """Return the versions to copy, and whether only a change at the upstream adds others."""
        rows, is_final = document.versions, True
        if self.published_before is not None:
            rows, held_back, replaced = hold_back_new(
                self.database, key, rows, self.published_before
            )
            self.report.held_back |= held_back
            self.report.replaced += replaced
            is_final = not held_back and not replaced
        if self.options.newest:
            rows = choose_newest(rows, self.options.sdks, self.options.newest)
        return rows, is_final

    def finish(self, plan: Plan) -> None:
        """Unlist the copies that are gone, optimize the search, and remember this run."""
        gone = [key for key in self.not_found if key in plan.copies and key not in plan.listed]
        self.report.gone += gone
        self.report.listed = {str(key) for key in plan.listed}
        for key in {*self.not_found} & {*plan.listed}:
            self.report.failures[str(key)] = "is listed, but its detail is not found"
        if not plan.is_complete:
            self.report.failures["The list"] = "changed while it was read, or repeats itself"
        if self.dry_run:
            return
        if gone and not self.options.keep_removed:
            self.database.transact(partial(unlist_gone, widgets=gone), local_actor())
        if self.report.added + self.report.changed >= OPTIMIZE_AFTER:
            self.database.transact(lambda transaction: transaction.execute(OPTIMIZE_SEARCH_INDEX))
        if not self.report.failures:
            # Last: everything before the token must have been written.
            token = plan.changes.token if plan.changes else plan.remembered.token
            self.remember(token, now())
        if self.adopt:
            forget = partial(forget_without_copies, source=self.source)
            self.report.forgotten = self.database.transact(forget)
