"""The operator's commands: flask init, flask import, flask export, flask serve."""

import sqlite3
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click
from flask import Blueprint, current_app

from catalog import server, store
from catalog.atomic_files import replacing
from catalog.catalog_files import CatalogFileError, read_catalog, write_catalog
from catalog.db import Database, DatabaseError
from catalog.documents import Document

DEMO = Path(__file__).parent.parent / "seed" / "demo.jsonl"

commands = Blueprint("commands", __name__, cli_group=None)


class Command(click.Command):
    """A command that refuses in a sentence, with exit code 1."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise  # whoever read the output has had enough
        except OSError as error:
            raise click.ClickException(f"{error.filename}: {error.strerror}.") from error
        except (DatabaseError, CatalogFileError, sqlite3.Error) as error:
            raise click.ClickException(str(error)) from error


def database() -> Database:
    return current_app.extensions["database"]


@commands.cli.command("init", cls=Command)
@click.option("--demo", is_flag=True, help="Fill a new database with the demo catalog.")
def init(demo: bool) -> None:
    """Create the database; leaves one that exists as it is."""
    if database().exists():
        database().check()
        click.echo(f"{database().name} exists already.", err=True)
        return
    documents = []
    if demo:
        with DEMO.open("rb") as file:
            documents = read_catalog([file])
    database().create(store.put_documents(documents))
    click.echo(f"Created {database().name} with {counted(documents)}.", err=True)


@commands.cli.command("import", cls=Command)
@click.argument("files", metavar="FILE...", type=click.File("rb"), nargs=-1, required=True)
def import_(files: tuple[BinaryIO, ...]) -> None:
    """Add and update widgets from catalog files (- for standard input), all or none."""
    documents = read_catalog(files)
    for document in documents:
        widget = f"{document.widget['scope']}/{document.widget['name']}"
        for warning in document.warnings:
            click.echo(f"Warning: {widget} {warning}.", err=True)
    database().write(store.put_documents(documents))
    click.echo(f"Imported {counted(documents)}.", err=True)


@commands.cli.command("export", cls=Command)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export(file: str) -> None:
    """Write the whole catalog to FILE, or to standard output."""
    with database().read() as connection:
        lines = (line.encode() for line in write_catalog(connection))
        if file == "-":
            sys.stdout.buffer.writelines(lines)
        elif Path(file).exists() and not Path(file).is_file():  # such as /dev/null
            with open(file, "wb") as device:
                device.writelines(lines)
        else:
            with replacing(Path(file)) as new, new.open("wb") as written:
                written.writelines(lines)


@commands.cli.command("serve")
def serve() -> None:
    """Serve the catalog, as python app.py does."""
    server.serve(current_app._get_current_object())


def counted(documents: list[Document]) -> str:
    widgets, versions = len(documents), sum(len(document.versions) for document in documents)
    return f"{widgets} widget{'s' * (widgets != 1)} and {versions} version{'s' * (versions != 1)}"
