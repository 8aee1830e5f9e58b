"""Imports widget documents in transactions so short that installs hardly wait."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ...domain.changes import TooLargeError
from ...domain.documents import MAX_PROBLEMS, Document
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from .bundle_files import BundleFiles
from .documents import HasBundle, PutResult, put_documents
from .pruning import Others, remove_others
from .search_index import MERGE_AFTER, merge_search_index


def import_documents(
    database: Database,
    files: BundleFiles,
    actor: Actor,
    batches: Iterable[Sequence[Document]],
    totals: Mapping[str, int],
    on_progress: Callable[[int], None],
    *,
    others: Others | None = None,
    sets_counts: bool = False,
    dry_run: bool = False,
) -> PutResult:
    """Add and update the widgets in the documents in one transaction per batch; record the import.

    If the files contain a version's bundle, clients load it from this service. Finally, remove the
    given other widgets and versions. Raise TooLargeError if a widget would become too large: its
    batch is not written, but earlier batches are. The totals of widgets and versions are for the
    audit log. on_progress() is called with the number of widgets written so far.
    """
    others = others or Others([], {})
    added, changed = set[str](), set[str]()
    written = 0
    for batch in batches:
        with files.storing(batch, dry_run=dry_run) as stored:
            put = partial(
                _put_batch,
                documents=batch,
                has_bundle=files.has,
                stored=stored,
                sets_counts=sets_counts,
                # The totals are recorded with the first change, so that the audit log has an entry
                # even if the import is killed later.
                totals=None if added or changed else totals,
            )
            result = database.transact(put, actor, dry_run=dry_run)
        added |= result.added
        changed |= result.changed
        written += len(batch)
        on_progress(written)
    if not dry_run:
        if any(others) and not added and not changed:
            database.transact(lambda transaction: transaction.record("import", after=totals), actor)
        remove_others(database, actor, others)
        if len(added) + len(changed) >= MERGE_AFTER:
            merge_search_index(database)
    return PutResult(added, changed | {str(version.widget) for version in others.versions}, [])


def find_too_large(database: Database, actor: Actor, documents: Iterable[Document]) -> list[str]:
    """Return a sentence for each document that would make its widget too large.

    Each document is written in a transaction that is rolled back, because the database measures it.
    """
    problems = []
    for document in documents:
        put = partial(put_documents, documents=[document], action="import")
        try:
            database.transact(put, actor, dry_run=True)
        except TooLargeError as error:
            problems.append(str(error))
    return problems[:MAX_PROBLEMS]


def _put_batch(
    transaction: Transaction,
    documents: Sequence[Document],
    *,
    has_bundle: HasBundle,
    stored: int,
    sets_counts: bool,
    totals: Mapping[str, int] | None,
) -> PutResult:
    result = put_documents(
        transaction, documents, "import", sets_counts=sets_counts, has_bundle=has_bundle
    )
    if totals and (result.added or result.changed):
        transaction.record("import", after=totals)
    if stored:
        transaction.record("import", after={"bundlesStored": stored})
    return result
