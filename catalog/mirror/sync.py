"""Copies the widgets of an upstream catalog through its public API, and refreshes the copies.

mirror() is the whole run. If the upstream lists its changes, it fetches the widgets that changed
since the last run, and takes the download counts of the others from the list of widgets. Otherwise
it refreshes each copy that is here with its ETag. Then it fetches the other widgets that the
upstream lists, and unlists what is gone if asked to. All of it is written in batches. Bundles come
afterwards: see bundles.download_bundles().
"""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeGuard

from catalog.documents import Document
from catalog.mirror.fetch import (
    FetchResult,
    OnProgress,
    UpstreamChanges,
    WidgetKey,
    batched,
    count_widgets,
    fetch_widget,
    list_widgets,
    read_changes,
    thread_pool,
)
from catalog.mirror.upstream import Upstream
from catalog.semver_ranges import MAX_SAFE_INTEGER
from catalog.store.connection.database import Database
from catalog.store.connection.transaction import Transaction
from catalog.store.read.search_params import MAX_LIMIT
from catalog.store.write import mirrored as mirror_writes
from catalog.store.write.audit import local_actor
from catalog.store.write.imports import OPTIMIZE_AFTER, OPTIMIZE_SEARCH_INDEX, PutResult
from catalog.store.write.lookup import WidgetName
from catalog.store.write.mirrored import (
    MirroredWidget,
    UpstreamWidget,
    put_mirrored,
    put_upstream_counts,
    put_upstream_documents,
)
from catalog.store.write.moderation import edit_widget

MAX_LIST_READS = 5
MAX_FAILURES_IN_A_ROW = 25


class MirrorError(Exception):
    """The run cannot continue; the message says why, without a full stop."""


class MirrorOptions(NamedTuple):
    """The options of widget-catalog mirror."""

    # Empty: all scopes.
    scopes: Collection[str] = ()
    adopt: bool = False
    prune: bool = False
    dry_run: bool = False

    def includes(self, scope: str) -> bool:
        """Return whether widgets of this scope are to be mirrored."""
        return not self.scopes or scope in self.scopes


@dataclass
class MirrorReport:
    """Results of a run."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    # Reasons, by what failed.
    failures: dict[str, str] = field(default_factory=dict)
    # Copies of widgets that the upstream no longer has.
    gone: list[WidgetKey] = field(default_factory=list)
    # In a dry run, the documents that would be written.
    unwritten: list[Document] = field(default_factory=list)


class LocalWidget(NamedTuple):
    """A widget in the local catalog; the source is the upstream of a copy, else None."""

    id: int
    listed: bool
    source: str | None
    etag: str | None
    upstream_count: int | None


LOCAL_WIDGETS = """
SELECT scope, name, id, listed, source, etag, upstream_count
FROM widget LEFT JOIN mirrored ON widget_id = id
ORDER BY scope, name
"""


def mirror(
    database: Database, upstream: Upstream, options: MirrorOptions, on_progress: OnProgress
) -> MirrorReport:
    """Copy every widget that the upstream lists, and report or unlist copies that are gone there.

    Each batch is one transaction, so an interrupted run loses at most one batch.
    """
    # This fails if there is no catalog at the URL, before an empty database is created.
    total = count_widgets(upstream, options.scopes)
    if not database.exists() and not options.dry_run:
        database.create()
    rows = database.reader().execute(LOCAL_WIDGETS) if database.exists() else []
    local = {WidgetKey(*row[:2]): LocalWidget(*row[2:]) for row in rows}
    copies = [
        key
        for key, widget in local.items()
        if widget.listed and widget.source == upstream.base_url and options.includes(key.scope)
    ]
    if options.prune and copies and not total:
        raise MirrorError(
            f"{upstream.base_url} lists no widget; --prune would unlist all copies of it"
        )
    with thread_pool(upstream.connections) as threads:
        sync = WidgetSync(database, upstream, options, threads, on_progress, local, total)
        token = find_token(database, upstream, options)
        changes = read_changes(upstream, token)
        if changes is None:
            sync.fetch_and_write(copies)
        else:
            sync.fetch_changed(copies, changes)
        # If the upstream lists just as many widgets as were found there, it has no others.
        found = len(sync.processed) - len(sync.not_found)
        if found != count_widgets(upstream, options.scopes):
            sync.fetch_listed()
    sync.finish(copies)
    if changes and changes.token != token and not options.dry_run:
        # Last: everything before the token must have been written.
        values = upstream.base_url, options.scopes, changes.token
        database.transact(lambda transaction: mirror_writes.put_position(transaction, *values))
    return sync.report


POSITION = "SELECT token FROM mirror_position WHERE source = :source AND scopes = :scopes"


def find_token(database: Database, upstream: Upstream, options: MirrorOptions) -> str | None:
    """Return the token after the changes that earlier runs with these options have read."""
    if not database.exists():
        return None
    key = {"source": upstream.base_url, "scopes": mirror_writes.scopes_key(options.scopes)}
    row = database.reader().execute(POSITION, key).fetchone()
    return row["token"] if row else None


@dataclass
class WidgetSync:
    """One run: what it works on, the widgets that are processed, and the report."""

    database: Database
    upstream: Upstream
    options: MirrorOptions
    threads: ThreadPoolExecutor
    on_progress: OnProgress
    local: dict[WidgetKey, LocalWidget]
    total: int
    processed: set[WidgetKey] = field(default_factory=set)
    not_found: set[WidgetKey] = field(default_factory=set)
    report: MirrorReport = field(default_factory=MirrorReport)

    def fetch_and_write(self, keys: Iterable[WidgetKey]) -> None:
        """Fetch the widgets that are not processed yet, and write what changed in batches."""
        new = [
            key for key in keys if key not in self.processed and self.options.includes(key.scope)
        ]
        total = max(self.total, len(self.processed) + len(new))
        failures = 0
        for batch in batched(new):
            results: list[FetchResult] = []
            try:
                for result in self.threads.map(self.fetch, batch):
                    results.append(result)
                    self.on_progress(len(self.processed) + len(results), total)
                    failures = failures + 1 if result.is_unavailable else 0
                    if failures == MAX_FAILURES_IN_A_ROW:
                        raise MirrorError(
                            f"{failures} requests in a row failed, the last one because "
                            f"{result.failure}"
                        )
            finally:
                self.write_batch(results)
            self.processed.update(batch)

    def fetch_changed(self, copies: list[WidgetKey], changes: UpstreamChanges) -> None:
        """Fetch the widgets whose copies are not current, and write the counts of the others."""
        # The first run has no copies, and reads the changes from the beginning.
        listed = list_widgets(self.upstream, *self.list_limits)[0] if copies else {}
        counts: dict[WidgetKey, int | None] = {}
        for key in copies:
            etag, count = self.local[key].etag, listed.get(key)
            # A copy whose last fetch failed has no ETag.
            is_current = etag is not None and changes.has_current(key, etag)
            if key in listed and is_current and is_count(count):
                counts[key] = count
        self.processed.update(counts)
        self.write_counts(counts)
        changed = [key for key, etag in changes.etags.items() if etag is not None]
        self.fetch_and_write(dict.fromkeys([*copies, *changed, *listed]))

    def write_counts(self, counts: Mapping[WidgetKey, int | None]) -> None:
        """Write the upstream's counts of copies that are current otherwise."""
        self.on_progress(len(counts), max(self.total, len(counts)))
        changed = [
            MirroredWidget(*key, self.upstream.base_url, self.local[key].etag, count)
            for key, count in counts.items()
            if count != self.local[key].upstream_count
        ]
        self.report.changed += len(changed)
        self.report.unchanged += len(counts) - len(changed)
        if not self.options.dry_run:
            for batch in batched(changed):
                self.database.transact(partial(put_upstream_counts, widgets=batch))

    @property
    def list_limits(self) -> tuple[Collection[str], int]:
        """The scopes to list, and the highest total to trust: it may have grown since the start."""
        return self.options.scopes, 2 * self.total + MAX_LIMIT

    def fetch_listed(self) -> None:
        """Fetch what the upstream lists, and read the list again until it does not change."""
        for _ in range(MAX_LIST_READS):
            listed, is_complete = list_widgets(self.upstream, *self.list_limits)
            self.fetch_and_write(listed)
            if is_complete:
                break
        else:
            self.report.failures["The list"] = (
                f"changed or repeated itself in each of {MAX_LIST_READS} readings"
            )
        not_found = self.not_found.intersection(listed)
        # With the same total as before, none of them can have been unlisted since.
        if not_found and count_widgets(self.upstream, self.options.scopes) == len(listed):
            for key in not_found:
                self.report.failures[str(key)] = "is listed, but its detail is not found"

    def fetch(self, key: WidgetKey) -> FetchResult:
        """Fetch and validate one widget. Runs in the thread pool."""
        local = self.local.get(key)
        etag = None
        if local and local.source == self.upstream.base_url:
            # An unlisted copy is listed again by writing it, so it must not get a 304.
            etag = local.etag if local.listed else None
        elif local and not self.options.adopt:
            origin = (
                f"is a copy from {local.source}"
                if local.source
                else "was published or imported here"
            )
            return FetchResult(key, failure=f"{origin}; --adopt replaces it")
        return fetch_widget(self.upstream, key, etag)

    def write_batch(self, results: list[FetchResult]) -> None:
        """Write the results in one transaction, and count them in the report."""
        widgets: list[UpstreamWidget] = []
        failed: list[MirroredWidget] = []
        for key, document, etag, is_not_found, failure, _ in results:
            if failure is not None:
                self.report.failures[str(key)] = failure
                failed += self.without_etag(key)
            elif is_not_found:
                self.not_found.add(key)
            elif document is None:
                self.report.unchanged += 1
            else:
                upstream_count = document.widget["download_count"]
                mirrored = MirroredWidget(*key, self.upstream.base_url, etag, upstream_count)
                widgets.append(UpstreamWidget(document, mirrored))

        def put(transaction: Transaction) -> PutResult:
            result = put_upstream_documents(transaction, widgets)
            put_mirrored(transaction, failed)
            added, changed = len(result.added), len(result.changed)
            if added or changed:
                after = {"source": self.upstream.base_url, "added": added, "changed": changed}
                transaction.record("mirror", after=after)
            return result

        if not (widgets or failed):
            return
        if self.database.exists():
            result = self.database.transact(put, local_actor(), dry_run=self.options.dry_run)
        else:
            # A dry run without a catalog.
            result = PutResult([each.document for each in widgets], [], [])
        self.report.added += len(result.added)
        self.report.changed += len(result.changed)
        self.report.unchanged += len(result.unchanged)
        if self.options.dry_run:
            self.report.unwritten += [each.document for each in widgets]

    def without_etag(self, key: WidgetKey) -> list[MirroredWidget]:
        """Return the copy, if it is one, without its ETag, so that the next refresh fetches it."""
        local = self.local.get(key)
        if not local or local.source != self.upstream.base_url or local.etag is None:
            return []
        return [MirroredWidget(*key, local.source, None, local.upstream_count)]

    def finish(self, copies: list[WidgetKey]) -> None:
        """Report the copies that are gone, unlist them with --prune, and optimize the search."""
        gone = [key for key in copies if key in self.not_found]
        self.report.gone = [key for key in gone if str(key) not in self.report.failures]
        if self.options.dry_run:
            return
        if self.options.prune:
            for key in self.report.gone:
                edit_widget(self.database, local_actor(), WidgetName(*key), {"listed": False})
        if self.report.added + self.report.changed >= OPTIMIZE_AFTER:
            self.database.transact(lambda transaction: transaction.execute(OPTIMIZE_SEARCH_INDEX))


def is_count(value: object) -> TypeGuard[int | None]:
    """Return whether the value is a valid download count."""
    return value is None or (type(value) is int and 0 <= value <= MAX_SAFE_INTEGER)
