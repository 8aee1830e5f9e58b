"""Copies the widgets of an upstream catalog through its public API, and refreshes the copies.

mirror() is the whole run. It refreshes the copies that are here, each with its ETag, then fetches
the other widgets that the upstream lists, writes both in batches, and unlists what is gone if asked
to. Bundles come afterwards: see bundles.download_bundles().
"""

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from catalog import V1_PREFIX
from catalog.documents import Document, DocumentError, check_document, parse_json
from catalog.mirror.upstream import UnexpectedStatusError, Upstream, UpstreamError
from catalog.mirror.widget_list import WidgetKey, count_widgets, list_widgets
from catalog.mirror.workers import OnProgress, batched, prefetch, report_progress, thread_pool
from catalog.store import mirror_writes, writes
from catalog.store.database import Database
from catalog.store.mirror_writes import MirroredWidget
from catalog.store.search_params import MAX_LIMIT
from catalog.store.sqlite import Statement
from catalog.text import quoted
from catalog.validators import check_identifier

MAX_LIST_READS = 5
MAX_FAILURES_IN_A_ROW = 25


class MirrorError(Exception):
    """The run cannot continue; the message says why, without a full stop."""


class MirrorOptions(NamedTuple):
    """The options of flask mirror."""

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


class FetchResult(NamedTuple):
    """The outcome of fetching one widget: a document, not found, a failure, or else unchanged."""

    key: WidgetKey
    document: Document | None = None
    etag: str | None = None
    is_not_found: bool = False
    failure: str | None = None
    # The request failed without a response that could be used.
    is_unavailable: bool = False


LOCAL_WIDGETS = """
SELECT scope, name, id, listed, source, etag FROM widget LEFT JOIN mirrored ON widget_id = id
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
        sync.fetch_and_write(copies)
        # If the upstream lists just as many widgets as there are copies of, it has no others.
        if len(copies) - len(sync.not_found) != count_widgets(upstream, options.scopes):
            sync.fetch_listed()
    sync.finish(copies)
    return sync.report


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
        done = len(self.processed)
        results = stop_if_unavailable(prefetch(self.threads, self.fetch, new))
        total = max(self.total, done + len(new))
        for batch in batched(report_progress(results, self.on_progress, done, total)):
            self.write_batch(batch)
        self.processed.update(new)

    def fetch_listed(self) -> None:
        """Fetch what the upstream lists, and read the list again until it does not change."""
        # A total that has grown beyond this since the run began is not trusted.
        max_total = 2 * self.total + MAX_LIMIT
        for _ in range(MAX_LIST_READS):
            listed, is_complete = list_widgets(self.upstream, self.options.scopes, max_total)
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
        added: list[list[Statement]] = []
        existing: list[list[Statement]] = []
        mirrored = []
        for key, document, etag, is_not_found, failure, _ in results:
            if failure is not None:
                self.report.failures[str(key)] = failure
            elif is_not_found:
                self.not_found.add(key)
            elif document is None:
                self.report.unchanged += 1
            else:
                local = self.local.get(key)
                replaces = local is not None and local.source is None
                # These also add the upstream's new installs to the local counter.
                statements = mirror_writes.put_upstream_document(document, replaces=replaces)
                (existing if local else added).append(statements)
                upstream_count = document.widget["download_count"]
                mirrored.append(MirroredWidget(*key, self.upstream.base_url, etag, upstream_count))
                if self.options.dry_run:
                    self.report.unwritten.append(document)
        changed = self.find_changes(existing)
        self.report.added += len(added)
        self.report.changed += len(changed)
        self.report.unchanged += len(existing) - len(changed)
        if mirrored and not self.options.dry_run:
            statements = [statement for widget in added + changed for statement in widget]
            self.database.write([*statements, *mirror_writes.put_mirrored(mirrored)])

    def find_changes(self, widgets: list[list[Statement]]) -> list[list[Statement]]:
        """Return those lists of statements that would change a row.

        The others are not run: an INSERT that only meets a conflict still advances
        AUTOINCREMENT, which writes to the file.
        """
        if not widgets:
            return []
        counts = iter(self.database.dry_run([each for widget in widgets for each in widget]))
        return [widget for widget in widgets if sum([next(counts) for _ in widget])]

    def finish(self, copies: list[WidgetKey]) -> None:
        """Report the copies that are gone, unlist them with --prune, and optimize the search."""
        gone = [key for key in copies if key in self.not_found]
        self.report.gone = [key for key in gone if str(key) not in self.report.failures]
        if self.options.dry_run:
            return
        if self.report.added + self.report.changed >= writes.OPTIMIZE_AFTER:
            self.database.write(writes.optimize_search_index())
        if self.options.prune:
            ids = [self.local[key].id for key in self.report.gone]
            self.database.write([each for id in ids for each in writes.set_listed(id, False)])


def fetch_widget(upstream: Upstream, key: WidgetKey, etag: str | None) -> FetchResult:
    """Fetch the detail of a widget, unless it still has this ETag, and validate it."""
    try:
        path = "/".join(quote(check_identifier(part), safe="") for part in key)
    except ValueError as rule:
        return FetchResult(key, failure=f"scope and name must be {rule}")
    try:
        response = upstream.get(f"{V1_PREFIX}{path}", etag)
        if response.status == 404:
            return FetchResult(key, is_not_found=True)
        if response.status == 304:
            return FetchResult(key)
        document = check_document(parse_json(response.body))
    except UpstreamError as error:
        is_unavailable = not isinstance(error, UnexpectedStatusError)
        return FetchResult(key, failure=str(error), is_unavailable=is_unavailable)
    except DocumentError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return FetchResult(key, failure=f"{error.problems[0]}{more}")
    except RecursionError:
        return FetchResult(key, failure="the response is nested too deeply")
    except ValueError as error:
        return FetchResult(key, failure=f"the response is not JSON in UTF-8 ({error})")
    if document.path != str(key):
        return FetchResult(key, failure=f"the response is about {quoted(document.path)}")
    return FetchResult(key, document, response.etag)


def stop_if_unavailable(results: Iterable[FetchResult]) -> Iterator[FetchResult]:
    """Yield the results; raise MirrorError after too many requests in a row without a response."""
    failures = 0
    for result in results:
        failures = failures + 1 if result.is_unavailable else 0
        if failures == MAX_FAILURES_IN_A_ROW:
            raise MirrorError(
                f"{failures} requests in a row failed, the last one because {result.failure}"
            )
        yield result
