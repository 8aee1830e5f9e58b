"""widget-catalog check, backup, restore: the database file and its copies."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import click

from ..store import backups
from ..store.check import check_bundles, check_catalog, find_elsewhere, find_unusual, repair_derived
from ..text import plural
from .base import CommandError, bundles, command, confirm, database, json_option, print_status
from .retention import add_dated, check_target, directory_option, keep_option
from .terminal import format_json, replace_unprintable


@command("check")
@click.option("--strict", is_flag=True, help="Treat warnings as problems.")
@click.option(
    "--repair", is_flag=True, help="First write the rows again that are derived from others."
)
@click.option("--offline", is_flag=True, help="Report versions whose bundle is not here.")
@json_option
def check(strict: bool, repair: bool, offline: bool, json_output: bool) -> None:
    """Check the database and all bundles.

    Reads the whole database and every held bundle, and prints a line for each problem; exit code 1
    if there is one. An sdkVersion that is not an npm range is a warning, and so is a version that
    is published in the future. After a change with another program, such as the sqlite3 shell, use
    --repair.
    """
    if repair:
        repair_derived(database())
        print_status("Wrote the derived rows again.")
    findings = chain(check_catalog(database()), check_bundles(database(), bundles()))
    if offline:
        reason = "its bundleUrl points elsewhere, so it needs a network"
        findings = chain(findings, (f"{each}: {reason}." for each in find_elsewhere(database())))
    warnings = find_unusual(database(), bundles())
    if strict:
        findings, warnings = chain(findings, warnings), iter(())
    if json_output:
        report = {"problems": list(findings), "warnings": list(warnings)}
        click.echo(format_json(report))
        found, warned = map(len, report.values())
    else:
        found, warned = _print_each(findings), _print_each(f"Warning: {each}" for each in warnings)
    if found:
        raise CommandError(f"{plural(found, 'finding')} in {database().name}.")
    with_warnings = f", with {plural(warned, 'warning')}" if warned else ""
    print_status(f"{database().name} is in order{with_warnings}.")


def _print_each(sentences: Iterable[str]) -> int:
    """Print each sentence on a line; return their number."""
    number = 0
    for sentence in sentences:
        click.echo(replace_unprintable(sentence))
        number += 1
    return number


@command("backup")
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@directory_option
@keep_option
def backup(file: str | None, directory: Path | None, keep: int | None) -> None:
    """Copy the catalog to a file.

    The copy is complete and checked, even while the service is in use. With --dir, it is also read
    back from the disk before older ones are removed.
    """
    check_target(file, directory, keep)
    done = f"Backed up {database().name}"
    if directory is None:
        backups.backup(database(), Path(str(file)))
        print_status(f"{done} to {file}.")
        return

    def write(new: Path) -> str:
        backups.backup_verified(database(), new, directory)
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
            f"Tokens and the record of changes are those of {file}: revoke again what was revoked "
            "since, see widget-catalog token list."
        )


def print_moved(damaged: Path | None) -> None:
    """Print where a damaged database was moved to, if there was one."""
    if damaged:
        print_status(f"The old database is damaged; it was moved to {damaged}.")
