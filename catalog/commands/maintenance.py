"""widget-catalog check, backup and restore: check, copy and replace the database file."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import click

from ..domain.messages import plural
from ..settings import served_url
from ..store.maintenance import backups
from ..store.maintenance.check import check_catalog, find_unusual, repair_derived
from ..store.maintenance.check_bundles import (
    check_bundle_urls,
    check_bundles,
    find_external_bundles,
)
from .base import command
from .context import bundles, database, files
from .options import json_option
from .output import CommandError, confirm, print_json, print_lines, print_status
from .output_file import BACKUP, check_replaceable, force_option
from .retention import add_dated, check_target, directory_option, keep_option
from .terminal import replace_unprintable


@command("check")
@click.option("--strict", is_flag=True, help="Treat warnings as problems.")
@click.option("--repair", is_flag=True, help="Rebuild derived rows first.")
@click.option("--offline", is_flag=True, help="Report versions whose bundle is not stored here.")
@json_option
def check(strict: bool, repair: bool, offline: bool, json_output: bool) -> None:
    """Check the database and all bundles.

    Read the whole database and every stored bundle, and print a line for each problem. The exit
    status is 1 if there is a problem. The command only warns about an sdkVersion that is not
    an npm range, and about a publication date in the future.

    After changes by another program, such as the sqlite3 shell, use --repair.
    """
    if repair:
        repair_derived(database())
        print_status("Rebuilt the derived rows.")
    problems = chain(
        check_catalog(database()),
        check_bundles(database(), bundles()),
        check_bundle_urls(database(), served_url(files().config)),
    )
    if offline:
        reason = "its bundleUrl points elsewhere, so it needs a network"
        problems = chain(
            problems, (f"{each}: {reason}." for each in find_external_bundles(database()))
        )
    warnings = find_unusual(database(), bundles())
    if strict:
        problems, warnings = chain(problems, warnings), iter(())
    if json_output:
        report = {"problems": list(problems), "warnings": list(warnings)}
        print_json(report)
        found, warned = map(len, report.values())
    else:
        found, warned = _print_each(problems), _print_each(f"Warning: {each}" for each in warnings)
    if found:
        raise CommandError(f"{plural(found, 'problem')} in {database().name}.")
    with_warnings = f", with {plural(warned, 'warning')}" if warned else ""
    print_status(f"{database().name} is in order{with_warnings}.")


def _print_each(sentences: Iterable[str]) -> int:
    """Print each sentence on its own line; return the number of sentences."""
    number = 0
    for sentence in sentences:
        print_lines(replace_unprintable(sentence))
        number += 1
    return number


@command("backup")
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@directory_option
@keep_option
@force_option
def backup(file: str | None, directory: Path | None, keep: int | None, force: bool) -> None:
    """Copy the catalog to a file.

    The copy is complete, even while the service is in use. It does not contain bundles: see pack.
    FILE may be an earlier backup, which is replaced; any other file is refused. The command reads
    the copy back from the disk before it replaces or removes an older one.
    """
    check_target(file, directory, keep, force=force)
    done = f"Backed up {database().name}"
    if directory is None:
        if not database().is_same_file(Path(str(file))):
            check_replaceable(str(file), BACKUP, force=force)
        backups.backup(database(), Path(str(file)), name=Path(str(file)))
        print_status(f"{done} to {file}.")
        return

    def write(new: Path) -> str:
        backups.backup(database(), new, name=directory)
        return done

    add_dated(directory, ".db", keep, write)


@command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Replace an existing catalog without confirmation.")
def restore(file: Path, yes: bool) -> None:
    """Replace the catalog with a backup.

    A running service shows the restored catalog from the next request on.
    """
    if database().exists():
        confirm(f"Replace all of {database().name} with {file}?", yes)
    damaged = backups.restore(database(), file)
    print_status(f"Restored {database().name} from {file}.")
    print_moved(damaged)
    if damaged:
        print_status(
            f"Tokens and the audit log come from {file}. Tokens that were revoked after that "
            "backup are valid again: see widget-catalog token list."
        )


def print_moved(damaged: Path | None) -> None:
    """Print the new path of a damaged database, if there was one."""
    if damaged:
        print_status(f"The old database is damaged; it was moved to {damaged}.")
