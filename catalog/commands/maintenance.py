"""flask check, backup, restore, serve: keeping the service and its one file in health."""

from itertools import chain
from pathlib import Path

import click
from flask import current_app

from catalog.commands.base import CommandError, bundles, command, confirm, database, say
from catalog.commands.terminal import plain
from catalog.serving import server
from catalog.store import backups
from catalog.store.integrity import check_bundles, check_catalog
from catalog.text import plural


@command("check")
def check() -> None:
    """Look for anything wrong.

    Reads the whole database and every bundle that is held here, and prints a line for each
    finding; exit code 1 if there is one.
    """
    found = 0
    for finding in chain(check_catalog(database()), check_bundles(database(), bundles())):
        click.echo(plain(finding))
        found += 1
    if found:
        raise CommandError(f"{plural(found, 'finding')} in {database().name}.")
    say(f"{database().name} is in order.")


@command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(file: Path) -> None:
    """Copy the catalog to a file.

    FILE is complete and checked, however much the service is used meanwhile.
    """
    backups.backup(database(), file)
    say(f"Backed up {database().name} to {file}.")


@command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Replace the catalog that is there without asking.")
def restore(file: Path, yes: bool) -> None:
    """Put a backup in place.

    All that the catalog held is replaced; a running service shows it at once.
    """
    if database().exists():
        confirm(f"Replace all of {database().name} with {file}?", yes)
    aside = backups.restore(database(), file)
    if aside:
        say(f"What was there could not be opened; it is now {aside}.")
    say(f"Restored {database().name} from {file}.")


@command("serve")
def serve() -> None:
    """Serve the catalog."""
    server.serve(current_app._get_current_object())  # type: ignore[attr-defined]
