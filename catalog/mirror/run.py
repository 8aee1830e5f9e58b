"""A run that refreshes the copies from one upstream, step by step; see MirrorRun.

Only the last step stores the options and the position, so a run that fails or is killed changes
neither for the next run. Widgets are written in parts, each in one transaction; the next
run uses ETags to recognise the widgets that were already written.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from ..domain.changes import TooLargeError, WidgetName
from ..domain.documents import Document, Row
from ..domain.timestamps import now
from ..store.bundles.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.transaction import Transaction
from ..store.read.audit import local_actor
from ..store.read.mirrors import (
    find_local_widgets,
    find_source,
    find_upstreams,
    find_versions,
)
from ..store.write.about import store_files
from ..store.write.documents import PutResult
from ..store.write.mirrored import (
    MirroredWidget,
    RememberedRun,
    forget_without_copies,
    put_mirrored,
    put_upstream_about,
    put_upstream_documents,
    release_excluded,
    remember_error,
    remember_run,
    unlist_gone,
)
from ..store.write.search_index import MERGE_AFTER, merge_search_index
from .documents import BATCH_SIZE, Fetched, Fetcher, in_batches
from .lists import Lists, read_lists
from .options import MirrorOptions, check_memory
from .plan import Memory, Plan, is_complete, plan
from .report import MirrorReport
from .upstream import Upstream, UpstreamError
from .versions import choose_versions

MAX_FAILURES_IN_A_ROW = 25

# A callback that takes the number of finished items and the total.
OnProgress = Callable[[int, int], None]
Results = Sequence[tuple[WidgetName, Fetched]]


@dataclass
class MirrorRun:
    """One run for an upstream: call read(), then write(), then remember()."""

    database: Database
    bundles: Bundles
    upstream: Upstream
    options: MirrorOptions
    adopt: bool = False
    dry_run: bool = False
    # If this time is given, versions that were published after it are held back.
    published_before: str | None = None
    memory: Memory = field(init=False)
    lists: Lists = field(init=False)
    plan: Plan = field(init=False)
    report: MirrorReport = field(default_factory=MirrorReport)

    def read(self, *, is_new: bool) -> None:
        """Read the local state and the upstream's lists, and make the plan; write nothing.

        If is_new is false, the options come from the last run, which must not have used --official.
        """
        self.memory = read_memory(self.database, self.upstream.base_url, is_new=is_new)
        has_copies = any(copy.listed for copy in self.memory.copies.values())
        self.lists = read_lists(
            self.upstream,
            self.options,
            self.memory.position,
            needs_widgets=has_copies and not self.options.keep_removed,
        )
        self.plan = plan(self.lists, self.memory, self.options, adopt=self.adopt)
        self.report.failures |= {str(key): why for key, why in self.plan.refused.items()}
        if not is_complete(self.lists, self.options):
            self.report.failures["The list"] = "changed while it was being read, or repeats entries"

    def write(self, on_progress: OnProgress) -> None:
        """Fetch the widgets in the plan, and write them in parts."""
        if not self.dry_run and not self.database.exists():
            self.database.create()
        if self.plan.released:
            self._transact(partial(release_excluded, widgets=self.plan.released))
        self._write_counts()
        self._fetch_and_write(on_progress)
        is_large = len(self.report.added) + len(self.report.changed) >= MERGE_AFTER
        if is_large and not self.dry_run:
            merge_search_index(self.database)

    def remember(self, error: str | None) -> None:
        """Store the options, the error and, unless a widget failed, the position of this run."""
        if self.dry_run:
            return
        # Without the changes, a run may miss a change to about, so the next run reads all changes.
        position = self.lists.changes.position if self.lists.changes else None
        has_failures = bool(self.report.failures)
        run = RememberedRun(
            self.memory.source,
            self.options.json(),
            self.memory.position if has_failures else position,
            None if has_failures else now(),
            error,
            self.report.held_back,
        )
        self._transact(partial(remember_run, run=run))
        if self.adopt:
            forget = partial(forget_without_copies, source=self.memory.source)
            self.report.forgotten = self.database.transact(forget)

    def remember_error(self, error: str) -> None:
        """Store why this run ended early, but neither its options nor its position."""
        if self.database.exists() and not self.dry_run:
            source = find_source(self.database, self.upstream.base_url)
            self._transact(partial(remember_error, source=source, error=error))

    def _transact(self, write: Callable[[Transaction], object]) -> None:
        if self.database.exists():
            self.database.transact(write, local_actor(), dry_run=self.dry_run)

    def _write_counts(self) -> None:
        """Write the upstream's download counts for copies that are otherwise up to date."""
        local = self.memory.local
        changed = [
            MirroredWidget(key.scope, key.name, self.memory.source, local[key].etag, count)
            for key, count in self.plan.current.items()
            if count != local[key].upstream_count
        ]
        for start in range(0, len(changed), BATCH_SIZE):
            part = changed[start : start + BATCH_SIZE]
            self._transact(partial(put_mirrored, widgets=part))
        self.report.changed |= {f"{each.scope}/{each.name}" for each in changed}
        self.report.unchanged |= set(map(str, self.plan.current)) - self.report.changed

    def _fetch_and_write(self, on_progress: OnProgress) -> None:
        """Fetch the widgets that the plan names, and write them as they arrive."""
        described = [key for key in self.plan.current if key in self.plan.described]
        total = len(self.plan.fetched) + len(described)
        done, failures_in_a_row = 0, 0
        on_progress(0, total)
        fetcher = Fetcher(
            self.upstream,
            self.bundles,
            lists_changes=self.lists.changes is not None,
            with_pictures=self.options.bundles and not self.dry_run,
        )

        copies = self.memory.copies

        def fetch(key: WidgetName) -> Fetched:
            if key in self.plan.current:
                return fetcher.fetch_about(key)
            copy = copies.get(key)
            # Writing an unlisted copy lists it again, so its request must not get a 304.
            etag = self.options.valid_etag(copy.etag) if copy and copy.listed else None
            return fetcher.fetch(key, etag, with_about=key in self.plan.described)

        for results in in_batches(fetch, [*self.plan.fetched, *described]):
            self._write_part(results)
            for _, fetched in results:
                failures_in_a_row = failures_in_a_row + 1 if fetched.is_unavailable else 0
                if failures_in_a_row == MAX_FAILURES_IN_A_ROW:
                    raise UpstreamError(
                        f"{failures_in_a_row} requests in a row failed, the last one because "
                        f"{fetched.failure}"
                    )
            done += len(results)
            on_progress(done, total)

    def _write_part(self, results: Results) -> None:
        """Write the results in one transaction, and count them in the report."""
        documents: list[tuple[Document, MirroredWidget]] = []
        abouts: dict[WidgetName, Row] = {}
        gone: list[WidgetName] = []
        # All versions that the upstream shows, even if they are not copied.
        shown: set[WidgetName] = set()
        for key, fetched in results:
            if fetched.failure is not None:
                self.report.failures[str(key)] = fetched.failure
            if fetched.is_not_found:
                self._add_gone(key, gone)
            elif fetched.document:
                documents += self._prepare_document(key, fetched, fetched.document)
                versions = (row["version"] for row in fetched.document.versions)
                shown |= {key._replace(version=version) for version in versions}
            elif fetched.failure is None:
                self.report.unchanged.add(str(key))
            if fetched.about and not fetched.document:
                abouts[key] = fetched.about
        if gone and not self.options.keep_removed:
            self._transact(partial(unlist_gone, widgets=gone))
        files = [file for _, fetched in results for file in fetched.files]
        with store_files(self.bundles, files) if files and not self.dry_run else nullcontext():
            if documents:
                self._put_documents(documents, shown)
            if abouts and self.database.exists():
                put = partial(put_upstream_about, abouts=abouts)
                changed = self.database.transact(put, local_actor(), dry_run=self.dry_run)
                self.report.changed |= changed
        self.report.unchanged -= self.report.changed | self.report.failures.keys()

    def _add_gone(self, key: WidgetName, gone: list[WidgetName]) -> None:
        """Record a missing widget as gone, or as a failure."""
        if key in self.lists.listed:
            self.report.failures[str(key)] = "is listed, but its document was not found"
        elif key in self.plan.missing:
            gone.append(key)
            self.report.gone.append(key)

    def _prepare_document(
        self, key: WidgetName, fetched: Fetched, document: Document
    ) -> list[tuple[Document, MirroredWidget]]:
        """Return the document with the versions to copy; return [] if a new widget has none."""
        stored = find_versions(self.database, key) if self.published_before else {}
        chosen = choose_versions(document.versions, stored, self.options, self.published_before)
        for kept, versions in (
            (self.report.held_back, chosen.held_back),
            (self.report.urgent, chosen.urgent),
        ):
            kept |= {f"{key}@{version}": value for version, value in versions.items()}
        self.report.replaced += [f"{key}@{version}" for version in chosen.replaced]
        if document.versions and not chosen.rows and key not in self.memory.local:
            return []
        # Without an ETag, the next run compares the versions again.
        etag = self.options.mark_etag(fetched.etag) if chosen.is_final else None
        count = document.widget["download_count"]
        mirrored = MirroredWidget(key.scope, key.name, self.memory.source, etag, count)
        return [(document._replace(versions=chosen.rows, about=fetched.about), mirrored)]

    def _put_documents(
        self, documents: list[tuple[Document, MirroredWidget]], shown: set[WidgetName]
    ) -> None:
        def put(transaction: Transaction) -> PutResult:
            removes_versions = not self.options.keep_removed
            result = put_upstream_documents(
                transaction, documents, removes_versions=removes_versions
            )
            added, changed = len(result.added), len(result.changed)
            if added or changed:
                after = {"source": self.memory.source, "added": added, "changed": changed}
                transaction.record("mirror", after=after)
            return result

        # Without a local catalog, a dry run reports that all widgets would be added.
        result = PutResult({document.path for document, _ in documents}, set(), [])
        while documents and self.database.exists():
            try:
                result = self.database.transact(put, local_actor(), dry_run=self.dry_run)
                break
            except TooLargeError as error:
                self.report.failures[error.path] = error.reason
                documents = [each for each in documents if each[0].path != error.path]
                result = PutResult(set(), set(), [])
        self.report.added |= result.added
        self.report.changed |= result.changed
        paths = {document.path for document, _ in documents}
        self.report.unchanged |= paths - result.added - result.changed
        self.report.gone += [each for each in result.others if each not in shown]
        self.report.outdated += [each for each in result.others if each in shown]


def read_memory(database: Database, url: str, *, is_new: bool) -> Memory:
    """Return the local widgets, and the stored state of an upstream's last run."""
    source = find_source(database, url)
    known = next((each for each in find_upstreams(database) if each.source == source), None)
    local = find_local_widgets(database)
    if known is None:
        return Memory(source, None, None, {}, local)
    if not is_new:
        check_memory(url, known.options)
    options = MirrorOptions.from_memory(known.options)
    return Memory(source, options, known.position, known.held_back, local)
