"""widget-catalog init, import, export: creates the catalog, reads catalog files and writes them."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, cast

import click

from ..atomic_files import atomic_replace
from ..documents import Document, DocumentError, check_new_document
from ..files.demo import create_demo
from ..files.jsonl import CatalogReader, total_size
from ..store.connection.sqlite import today
from ..store.read.export import catalog_lines
from ..store.read.selection import IS_SELECTED, Selection
from ..store.write.audit import local_actor
from ..store.write.imports import import_documents
from .base import (
    CommandError,
    bundles,
    command,
    database,
    dry_run_option,
    file_name,
    format_counts,
    print_status,
    progress_bar,
)
from .selection import select_widgets, selection_options


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
    versions: list[int] = []
    if demo:
        documents = create_demo(database(), bundles(), today())
        versions = [len(document.versions) for document in documents]
    else:
        database().create()
    counts = format_counts(len(versions), sum(versions))
    print_status(f"Created {database().name} with {counts}.")


@command("import")
@click.argument("files", metavar="FILE...", type=click.File("rb"), nargs=-1, required=True)
@click.option("--prune", is_flag=True, help="Also remove widgets and versions the files lack.")
@dry_run_option
def import_(files: tuple[BinaryIO, ...], prune: bool, dry_run: bool) -> None:
    """Add and update widgets from catalog files.

    FILE is JSON Lines, one widget document per line, or - for standard input. If anything in the
    files is invalid, nothing is imported.
    """
    database().check()
    # The write lock must not wait for the program that writes to a pipe.
    files = tuple(map(_seekable, files))
    if database().is_cluster:
        _validate(files)
    reader, total = CatalogReader(files, check_new_document), total_size(files)
    try:
        with progress_bar("Importing") as on_progress:
            report = import_documents(
                database(),
                local_actor(),
                _batches(reader, prune, lambda: on_progress(reader.bytes_read, total)),
                prune=prune,
                dry_run=dry_run,
            )
    except DocumentError as error:
        raise reader.all_problems() from error
    counts = format_counts(report.widgets, report.versions)
    unchanged = report.widgets - report.added - report.changed
    print_status(
        f"{'Would import' if dry_run else 'Imported'} {counts}: {report.added} added, "
        f"{report.changed} changed, {unchanged} unchanged."
    )
    if prune:
        counts = format_counts(report.removed_widgets, report.removed_versions)
        print_status(f"{'Would remove' if dry_run else 'Removed'} {counts} of the others.")


def _seekable(file: BinaryIO) -> BinaryIO:
    """Return the file, or a temporary copy of one that cannot be read again, such as a pipe."""
    if file.seekable():
        return file
    copy = NamedTemporaryFile()  # noqa: SIM115
    shutil.copyfileobj(file, copy)
    copy.seek(0)
    # For messages.
    copy.name = file_name(file)
    return cast(BinaryIO, copy)


def _validate(files: Sequence[BinaryIO]) -> None:
    """Raise CatalogFileError unless the files are valid: a cluster writes them in parts."""
    reader = CatalogReader(files, check_new_document)
    try:
        for _ in reader.batches(database().part_size):
            pass
    except DocumentError as error:
        raise reader.all_problems() from error
    for file in files:
        file.seek(0)


def _batches(
    reader: CatalogReader, prune: bool, on_batch: Callable[[], None]
) -> Iterator[list[Document]]:
    """Yield the documents of the files in batches, and print their warnings."""
    for batch in reader.batches(database().part_size):
        for document in batch:
            for warning in document.warnings:
                print_status(f"Warning: {document.path}: {warning}.")
        yield batch
        on_batch()
    if prune and not reader.places:
        raise CommandError("The files hold no widget; --prune would remove the whole catalog.")


COUNT_SELECTED = f"""
SELECT count(*), (
    SELECT count(*) FROM version JOIN widget ON widget.id = widget_id WHERE {IS_SELECTED})
FROM widget WHERE {IS_SELECTED}
"""


@command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@selection_options
def export(file: str, **selected: Any) -> None:
    """Write the catalog to a file.

    Without FILE it goes to standard output; the command import reads it back. Options select some
    of the widgets.
    """
    with database().read() as connection:
        paths = select_widgets(connection, Selection(**selected))
        widgets, versions = connection.execute(COUNT_SELECTED, {"paths": paths}).fetchone()
        with open_output(file) as output:
            for line in catalog_lines(connection, paths):
                output.write(line.encode())
    if file != "-":
        print_status(f"Exported {format_counts(widgets, versions)} to {file}.")


@contextmanager
def open_output(file: str) -> Iterator[BinaryIO]:
    """Open a file, or standard output for -, to write to.

    A regular file is replaced when the block ends without an error; a device is written directly.
    """
    path = Path(file)
    try:
        if file == "-" and sys.stdout is None:
            raise CommandError("Standard output is closed; name a FILE.")
        if file == "-":
            yield sys.stdout.buffer
        elif database().is_same_file(path):
            raise CommandError(f"{file} is the catalog itself.")
        elif path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
        else:
            with atomic_replace(path) as new, new.open("wb") as output:
                yield output
    except BrokenPipeError:
        raise
    except OSError as error:
        output_name = "Standard output" if file == "-" else file
        raise CommandError(f"{output_name} cannot be written: {error.strerror}.") from error
