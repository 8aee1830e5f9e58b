"""flask init, import, export: creates the catalog, reads catalog files and writes them."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import click

from catalog.atomic_files import atomic_replace
from catalog.commands.base import (
    CommandError,
    bundles,
    command,
    database,
    format_counts,
    print_status,
    progress_bar,
)
from catalog.documents import Document
from catalog.files.demo import create_demo
from catalog.files.jsonl import read_catalog
from catalog.store.connection.sqlite import Statement
from catalog.store.read.export import catalog_lines
from catalog.store.write import import_audit, writes
from catalog.store.write import imports as bulk_writes
from catalog.store.write.audit import local_actor
from catalog.text import plural


@command("init")
@click.option("--demo", is_flag=True, help="Fill a new database with the demo catalog.")
def init(demo: bool) -> None:
    """Create the database.

    An existing database is not changed.
    """
    if database().exists():
        database().check()
        print_status(f"{database().name} exists already.")
        return
    create_database(demo)


def create_database(demo: bool) -> None:
    """Create the database, empty or with the demo catalog."""
    documents = []
    if demo:
        documents = create_demo(database(), bundles())
    else:
        database().create()
    print_status(f"Created {database().name} with {format_counts(documents)}.")


@command("import")
@click.argument("files", metavar="FILE...", type=click.File("rb"), nargs=-1, required=True)
@click.option("--prune", is_flag=True, help="Also remove widgets and versions the files lack.")
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
def import_(files: tuple[BinaryIO, ...], prune: bool, dry_run: bool) -> None:
    """Add and update widgets from catalog files.

    FILE is JSON Lines, one widget document per line, or - for standard input. If anything in the
    files is invalid, nothing is imported.
    """
    database().check()
    documents = read_catalog(files)
    if prune and not documents:
        raise CommandError("The files hold no widget; --prune would remove the whole catalog.")
    for document in documents:
        for warning in document.warnings:
            print_status(f"Warning: {document.path}: {warning}.")
    removals = writes.remove_all_but(documents) if prune else []
    with database().read() as connection:
        rows = connection.execute("SELECT scope, name, listed FROM widget")
        existing = {f"{scope}/{name}": listed for scope, name, listed in rows}
        entry = import_audit.record_import(connection, local_actor(), documents)
    entries = import_audit.record_changes(local_actor(), documents)
    if prune:
        entries += import_audit.record_removals(local_actor(), documents)
    # In a cluster the dry run finds what changes; write_in_bulk() then writes only that.
    run = database().dry_run if dry_run or database().is_cluster else database().write
    with progress_bar("Writing") as on_progress:
        puts = _put_with_progress(documents, on_progress)
        counts = islice(run(chain(entries, puts, removals, [entry])), len(entries), None)

    added = [document for document in documents if document.path not in existing]
    changed = [*_find_changed(documents, existing, counts)]
    if database().is_cluster and not dry_run:
        write_in_bulk([*added, *changed])
        if prune:
            records = import_audit.record_removals(local_actor(), documents)
            database().write([*records, *removals])
    if len(added) + len(changed) >= writes.OPTIMIZE_AFTER and not dry_run:
        database().write(writes.optimize_search_index())
    print_status(
        f"{'Would import' if dry_run else 'Imported'} {format_counts(documents)}: "
        f"{len(added)} added, {len(changed)} changed, "
        f"{len(documents) - len(added) - len(changed)} unchanged."
    )
    if prune:
        removed_widgets, *removed_versions, _ = counts
        print_status(
            f"{'Would remove' if dry_run else 'Removed'} {plural(removed_widgets, 'widget')} and "
            f"{plural(sum(removed_versions), 'version')} of the others."
        )


def _find_changed(
    documents: list[Document], existing: dict[str, int], counts: Iterator[int]
) -> Iterator[Document]:
    """Yield the documents that changed an existing widget; existing has its column listed."""
    for batch in writes.in_batches(documents):
        changes = [*writes.count_changes(batch, counts)]
        for document, change in zip(batch, changes, strict=True):
            stored = existing.get(document.path)
            if stored is not None and (change or document.widget["listed"] not in (None, stored)):
                yield document


def write_in_bulk(documents: list[Document]) -> None:
    """Write the documents in several transactions; after a failure, run the import again."""
    with progress_bar("Sending") as on_progress:
        done = 0
        for batch in writes.in_batches(documents, bulk_writes.WIDGETS_PER_WRITE):
            entries = import_audit.record_batch(local_actor(), batch)
            database().write([*entries, *bulk_writes.put_in_bulk(batch)])
            done += len(batch)
            on_progress(done, len(documents))


def _put_with_progress(
    documents: list[Document], on_progress: Callable[[int, int], None]
) -> Iterator[Statement]:
    done = 0
    for batch in writes.in_batches(documents):
        yield from writes.put_batch(batch)
        done += len(batch)
        on_progress(done, len(documents))


COUNT_ALL = "SELECT (SELECT count(*) FROM widget), (SELECT count(*) FROM version)"


@command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export(file: str) -> None:
    """Write the catalog to a file.

    Without FILE it goes to standard output; the command import reads it back.
    """
    with database().read() as connection, open_output(file) as output:
        widgets, versions = connection.execute(COUNT_ALL).fetchone()
        for line in catalog_lines(connection):
            output.write(line.encode())
    if file != "-":
        counts = f"{plural(widgets, 'widget')} and {plural(versions, 'version')}"
        print_status(f"Exported {counts} to {file}.")


@contextmanager
def open_file(file: Path, catalog: os.stat_result | None) -> Iterator[BinaryIO]:
    """Open a file to write to; raise CommandError if it is the catalog."""
    if catalog and file.exists() and os.path.samestat(file.stat(), catalog):
        raise CommandError(f"{file} is the catalog itself.")
    if file.exists() and not file.is_file():
        with file.open("wb") as device:
            yield device
    else:
        with atomic_replace(file) as new, new.open("wb") as output:
            yield output


@contextmanager
def open_output(file: str) -> Iterator[BinaryIO]:
    """Open a file, or standard output for -, to write to.

    A regular file is replaced when the block ends without an error; a device is written directly.
    """
    try:
        if file == "-" and sys.stdout is None:
            raise CommandError("Standard output is closed; name a FILE.")
        if file == "-":
            yield sys.stdout.buffer
        else:
            with open_file(Path(file), database().status()) as output:
                yield output
    except BrokenPipeError:
        raise
    except OSError as error:
        output_name = "Standard output" if file == "-" else file
        raise CommandError(f"{output_name} cannot be written: {error.strerror}.") from error
