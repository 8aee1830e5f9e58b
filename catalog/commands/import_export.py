"""widget-catalog init, import and export: create the catalog, and read and write catalog files."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import click

from ..domain.changes import TooLargeError
from ..domain.documents import Document, DocumentError, check_new_document
from ..domain.messages import plural
from ..files.checked_documents import CheckedFiles, check_files
from ..files.imported_packs import catalog_files, is_pack
from ..files.jsonl import read_demo, total_size
from ..store.bundles.bundles import Bundles
from ..store.connection.sqlite import today
from ..store.read.audit import local_actor
from ..store.read.export import catalog_lines, count_selected
from ..store.read.selection import Selection
from ..store.write.bundle_files import BundleFiles
from ..store.write.demo import create_demo
from ..store.write.documents import PutResult
from ..store.write.imports import find_too_large, import_documents
from ..store.write.pruning import Others, find_others
from .base import command
from .context import bundles, database
from .options import dry_run_option, select_widgets, selection_options
from .output import CommandError, confirm, format_counts, print_status, progress_bar
from .output_file import EXPORT, force_option, open_output


@command("init")
@click.option("--demo", is_flag=True, help="Fill the new database with the demo catalog.")
def init(demo: bool) -> None:
    """Create the database.

    An existing database stays as it is.
    """
    if database().exists():
        database().check()
        print_status(f"{database().name} already exists.")
        return
    create_database(demo)


def create_database(demo: bool) -> None:
    """Create an empty database, or one with the demo catalog."""
    versions: list[int] = []
    if demo:
        documents = read_demo()
        create_demo(database(), bundles(), documents, today())
        versions = [len(document.versions) for document in documents]
    else:
        database().create()
    counts = format_counts(len(versions), sum(versions))
    print_status(f"Created {database().name} with {counts}.")


@command("import")
@click.argument("files", metavar="FILE...", type=click.File("rb"), nargs=-1, required=True)
@click.option(
    "--prune", is_flag=True, help="Remove widgets and versions that are not in the files."
)
@click.option(
    "--set-counts",
    is_flag=True,
    help="Set download counts from the files, even if they are lower than the stored ones.",
)
@click.option("--yes", is_flag=True, help="Remove without confirmation.")
@dry_run_option
def import_(
    files: tuple[BinaryIO, ...], prune: bool, set_counts: bool, yes: bool, dry_run: bool
) -> None:
    """Add and update widgets from catalog files and packs.

    FILE is JSON Lines, one widget document per line, or a pack, whose bundles and pictures are
    stored too; - is standard input. If anything in the files is invalid, nothing is imported. A
    stored downloadCount that is higher than the imported one is kept. If the import is interrupted,
    run it again to complete it.
    """
    database().check()
    with ExitStack() as stack:
        temporary_file = stack.enter_context(TemporaryFile())
        packed: list[Bundles] = []
        catalogs: Sequence[BinaryIO] = files
        if any(map(is_pack, files)):
            packed = [stack.enter_context(bundles().incoming())]
            with progress_bar("Reading") as on_progress:
                catalogs = stack.enter_context(catalog_files(files, packed[0], on_progress))
        checked = _check(catalogs, temporary_file, packed)
        if problems := find_too_large(database(), local_actor(), checked.large_documents()):
            raise CommandError(*problems)
        others = _find_others(checked, yes=yes or dry_run) if prune else None
        bundle_files = BundleFiles(database(), bundles(), packed)
        result = _write(checked, bundle_files, others, set_counts, dry_run)
    counts = format_counts(len(checked.paths), checked.versions)
    added, changed = len(result.added), len(result.changed)
    print_status(
        f"{'Would import' if dry_run else 'Imported'} {counts}: {added} added, "
        f"{changed} changed, {len(checked.paths) - added - changed} unchanged."
    )
    if stored := bundle_files.stored:
        print_status(f"Stored {plural(stored, 'bundle or picture', 'bundles and pictures')}.")
    if others:
        counts = format_counts(len(others.widgets), len(others.versions))
        print_status(
            f"{'Would remove' if dry_run else 'Removed'} {counts} that are not in the files."
        )


def _check(
    files: Sequence[BinaryIO], temporary_file: BinaryIO, packed: Sequence[Bundles]
) -> CheckedFiles:
    """Validate the files, and print the warnings."""
    total = total_size(files)
    with progress_bar("Checking") as on_progress:

        def on_batch(batch: Sequence[Document], bytes_read: int) -> None:
            _print_warnings(batch)
            on_progress(bytes_read, total)

        check = partial(_check_new_document, [bundles(), *packed])
        return check_files(files, temporary_file, check, on_batch)


def _find_others(checked: CheckedFiles, *, yes: bool) -> Others:
    """Return the widgets and versions that --prune will remove; ask for confirmation first."""
    if not checked.paths:
        raise CommandError("The files contain no widgets; --prune would remove the whole catalog.")
    others = find_others(database(), checked.paths, checked.batches())
    if any(others):
        widgets, versions = len(others.widgets), len(others.versions)
        absent = f"{plural(widgets, 'widget')} and {plural(versions, 'version')} of other widgets"
        confirm(f"{absent} are not in the files. Remove them?", yes)
    return others


def _write(
    checked: CheckedFiles,
    bundle_files: BundleFiles,
    others: Others | None,
    set_counts: bool,
    dry_run: bool,
) -> PutResult:
    """Import the documents; after an error, print how many were written."""
    written, total = 0, len(checked.paths)
    try:
        with progress_bar("Importing") as show_progress:

            def on_progress(done: int) -> None:
                nonlocal written
                written = done
                show_progress(done, total)

            return import_documents(
                database(),
                bundle_files,
                local_actor(),
                checked.batches(),
                {"widgets": total, "versions": checked.versions},
                on_progress,
                others=others,
                sets_counts=set_counts,
                dry_run=dry_run,
            )
    except BaseException as error:
        if written and not dry_run:
            advice = "Run the import again to complete it."
            if isinstance(error, TooLargeError):
                advice = f"Remove {error.path} from the files, and run the import again."
            print_status(f"Imported {written} of {plural(total, 'widget')}. {advice}")
        raise


def _print_warnings(documents: Sequence[Document]) -> None:
    for document in documents:
        for warning in document.warnings:
            print_status(f"Warning: {document.path}: {warning}.")


def _check_new_document(directories: Sequence[Bundles], value: object) -> Document:
    """Return the document; raise DocumentError if a stored picture differs from its description.

    A picture that is not stored yet is checked when its file arrives.
    """
    document = check_new_document(value)
    text = (document.about or {}).get("picture")
    picture = json.loads(text) if text else {}
    for each in directories if picture else ():
        if each.has(picture["sha256Hash"]) and not each.has_picture(picture):
            raise DocumentError(
                [f"the file {picture['sha256Hash']} does not match the description of the picture"]
            )
    return document


@command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@selection_options
@force_option
def export(file: str, force: bool, **selected: Any) -> None:
    """Write the catalog to a file.

    Without FILE, the command writes to standard output. The import command reads an export back.
    FILE may be an earlier export, which is replaced; any other file is refused.
    """
    with database().read() as connection:
        paths = select_widgets(connection, Selection(**selected))
        widgets, versions = count_selected(connection, paths)
        with open_output(file, EXPORT, force=force) as output:
            for line in catalog_lines(connection, paths):
                output.write(line.encode())
    if file != "-":
        print_status(f"Exported {format_counts(widgets, versions)} to {file}.")
