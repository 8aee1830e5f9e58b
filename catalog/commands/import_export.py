"""flask init, flask import, flask export: the catalog from files and into files."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from catalog.atomic_files import atomic_replace
from catalog.commands.base import CommandError, command, count_text, database, progress, say
from catalog.files.jsonl import read_catalog
from catalog.store import writes
from catalog.store.export import catalog_lines
from catalog.text import plural

DEMO = Path(__file__).parent.parent.parent / "seed" / "demo.jsonl"


@command("init")
@click.option("--demo", is_flag=True, help="Fill a new database with the demo catalog.")
def init(demo: bool) -> None:
    """Create the database.

    One that exists is left as it is.
    """
    if database().exists():
        database().check()
        say(f"{database().name} exists already.")
        return
    documents = []
    if demo:
        with DEMO.open("rb") as file:
            documents = read_catalog([file])
    database().create(writes.put_documents(documents))
    say(f"Created {database().name} with {count_text(documents)}.")


@command("import")
@click.argument("files", metavar="FILE...", type=click.File("rb"), nargs=-1, required=True)
@click.option("--prune", is_flag=True, help="Also remove widgets and versions the files lack.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
def import_(files: tuple[BinaryIO, ...], prune: bool, dry_run: bool) -> None:
    """Add and update from catalog files.

    FILE is JSON Lines, a widget document a line, or - for standard input. All of it goes in or,
    where anything is wrong, nothing.
    """
    database().check()
    documents = read_catalog(files)
    if prune and not documents:
        raise CommandError("The files hold no widget; --prune would remove the whole catalog.")
    for document in documents:
        for warning in document.warnings:
            say(f"Warning: {document.path}: {warning}.")
    parts = [writes.put_document(document) for document in documents]
    if prune:
        parts.append(writes.remove_all_but(documents))
    with database().read() as connection:
        known = {tuple(row) for row in connection.execute("SELECT scope, name FROM widget")}
    run = database().dry_run if dry_run else database().write
    with progress([statement for part in parts for statement in part]) as statements:
        counts = iter(run(statements))

    changes = [sum(next(counts) for _ in part) for part in parts[: len(documents)]]
    added = sum((d.widget["scope"], d.widget["name"]) not in known for d in documents)
    changed = sum(change > 0 for change in changes) - added
    if added + changed >= writes.OPTIMIZE_AFTER and not dry_run:
        database().write(writes.optimize_search_index())
    say(
        f"{'Would import' if dry_run else 'Imported'} {count_text(documents)}: {added} added, "
        f"{changed} changed, {len(documents) - added - changed} unchanged."
    )
    if prune:
        removed_widgets, *removed_versions = counts
        say(
            f"{'Would remove' if dry_run else 'Removed'} {plural(removed_widgets, 'widget')} and "
            f"{plural(sum(removed_versions), 'version')} of the others."
        )


@command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export(file: str) -> None:
    """Write the catalog to a file.

    Without FILE it goes to standard output; flask import reads it back.
    """
    with database().read() as connection, opened_to_write(file) as output:
        for line in catalog_lines(connection):
            output.write(line.encode())


@contextmanager
def opened_to_write(file: str) -> Iterator[BinaryIO]:
    """Standard output for -, else the file: a device as it is, any other replaced at the end."""
    try:
        if file == "-" and sys.stdout is None:
            raise CommandError("Standard output is closed; name a FILE.")
        if file == "-":
            yield sys.stdout.buffer
        elif Path(file).exists() and database().exists() and database().path.samefile(file):
            raise CommandError(f"{file} is the catalog itself.")
        elif Path(file).exists() and not Path(file).is_file():
            with open(file, "wb") as device:
                yield device
        else:
            with atomic_replace(Path(file)) as new, new.open("wb") as output:
                yield output
    except BrokenPipeError:
        raise
    except OSError as error:
        output_name = "Standard output" if file == "-" else file
        raise CommandError(f"{output_name} cannot be written: {error.strerror}.") from error
