"""The import of widget documents, in transactions so short that installs hardly wait."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from operator import add
from typing import NamedTuple, Protocol

from ...domain.changes import ConflictError, TooLargeError
from ...domain.documents import MAX_DOCUMENT_BYTES, MAX_PROBLEMS, MAX_VERSIONS, Document
from ..bundles.bundles import Bundles
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from .bundle_files import BundleFiles
from .documents import put_documents
from .pruning import Others, remove_others
from .search_index import MERGE_AFTER, merge_search_index
from .stored_bundles import StoredBundle, find_unregistered, register_bundles


class DocumentSize(NamedTuple):
    """The sizes of a document, which limit how large the JSON of its widget can become."""

    versions: int
    # The number of bytes in the document's line.
    size: int
    # The maximum number of bytes that the JSON of each version adds to the line.
    added_size: int


class CheckedDocuments(Protocol):
    """Valid documents of different widgets, in batches; each batch is one transaction."""

    # The key is scope/name.
    sizes: dict[str, DocumentSize]

    def batches(self, paths: Iterable[str]) -> Iterable[Sequence[Document]]:
        """Return the documents of these widgets in batches."""


class TooLargeWidgetsError(ConflictError):
    """Widgets would become too large; problems has a sentence for each of the first widgets."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class ImportReport:
    """How many widgets and versions an import writes, and how many widgets it adds and changes."""

    widgets: int = 0
    versions: int = 0
    added: int = 0
    changed: int = 0

    def __add__(self, other: "ImportReport") -> "ImportReport":
        return ImportReport(*map(add, astuple(self), astuple(other)))


def import_documents(
    database: Database,
    bundles: Bundles,
    actor: Actor,
    documents: CheckedDocuments,
    on_progress: Callable[[int, int], None],
    *,
    others: Others | None = None,
    sets_counts: bool = False,
    dry_run: bool = False,
) -> ImportReport:
    """Add and update the widgets of the documents in one transaction per batch; record the import.

    The service serves bundles that it already stores. Finally, remove the given other widgets and
    versions. Raise TooLargeWidgetsError before anything is written if widgets would become too
    large. on_progress gets how many widgets are written, and how many there are in total.
    """
    others = others or Others([], {})
    put = partial(_put_batch, others=others, sets_counts=sets_counts)
    _check_sizes(database, actor, documents, put)
    totals = {
        "widgets": len(documents.sizes),
        "versions": sum(each.versions for each in documents.sizes.values()),
    }
    report, files = ImportReport(), BundleFiles(database, bundles)
    for batch in documents.batches(documents.sizes):
        # The first change is recorded with the totals, so that the audit log has an entry even if
        # the import is killed later.
        is_recorded = report.added or report.changed
        with files.locked(batch) as stored:
            write = partial(
                put, documents=batch, stored=stored, totals=None if is_recorded else totals
            )
            report += database.transact(write, actor, dry_run=dry_run)
        on_progress(report.widgets, len(documents.sizes))
    if dry_run:
        return report
    is_recorded = report.added or report.changed
    remove_others(database, actor, others, totals=None if is_recorded else totals)
    if report.added + report.changed >= MERGE_AFTER:
        merge_search_index(database)
    return report


# The columns of a version that can hold long texts.
VERSION_TEXTS = (
    *("version", "bundle_url", "yanked_reason", "deprecation_message", "release_notes"),
    *("display_name", "description", "icon", "sdk_version", "permissions", "license"),
)

# The JSON of a text takes at most six bytes per character. The names and numbers of a version take
# at most 1024 bytes.
STORED_SIZES = f"""
SELECT scope || '/' || widget.name AS path, count(*) AS versions,
    sum(1024 + 6 * ({
    " + ".join(f"coalesce(length(version.{column}), 0)" for column in VERSION_TEXTS)
})) AS size
FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN version ON widget_id = widget.id GROUP BY widget.id
"""


def _find_stored_sizes(database: Database, paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return how many versions each widget has, and an upper bound for the size of their JSON."""
    names = json.dumps([path.split("/") for path in paths])
    rows = database.fetch(STORED_SIZES, {"names": names})
    return {row["path"]: (row["versions"], row["size"]) for row in rows}


def _check_sizes(
    database: Database, actor: Actor, documents: CheckedDocuments, put: "partial[ImportReport]"
) -> None:
    """Raise TooLargeWidgetsError if widgets would become too large.

    Only widgets that might become too large are written, each in a transaction that is rolled back.
    """
    stored = _find_stored_sizes(database, documents.sizes)
    suspects = []
    for path, new in documents.sizes.items():
        stored_versions, stored_size = stored.get(path, (0, 0))
        versions = new.versions + stored_versions
        size = new.size + stored_size + versions * new.added_size
        if versions > MAX_VERSIONS or size > MAX_DOCUMENT_BYTES:
            suspects.append(path)
    problems: list[str] = []
    for batch in documents.batches(suspects):
        for document in batch:
            try:
                database.transact(partial(put, documents=[document]), actor, dry_run=True)
            except TooLargeError as error:
                problems.append(str(error))
    if problems:
        raise TooLargeWidgetsError(problems[:MAX_PROBLEMS])


def _put_batch(
    transaction: Transaction,
    documents: Sequence[Document],
    *,
    others: Others,
    sets_counts: bool,
    stored: Sequence[StoredBundle] = (),
    totals: dict[str, int] | None = None,
) -> ImportReport:
    unregistered = find_unregistered(transaction, stored) if stored else []
    result = put_documents(transaction, documents, "import", sets_counts=sets_counts)
    register_bundles(transaction, unregistered)
    # Widgets also count as changed if they get another bundleUrl, or lose versions later.
    changed = {f"{each.scope}/{each.name}" for each in unregistered} - result.added
    changed |= result.changed
    changed |= {each.path for each in documents if each.path in others.versions}
    if totals and (result.added or changed):
        transaction.record("import", after=totals)
    return ImportReport(
        len(documents),
        sum(len(document.versions) for document in documents),
        len(result.added),
        len(changed),
    )
