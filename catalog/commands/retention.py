"""The --dir and --keep options of backup and pack, which write dated files and remove old ones."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from ..domain.messages import plural
from ..system.atomic_files import locked_directory, scratch_directory, sync_directory
from ..system.dated_files import dated_path, find_dated_until
from .output import CommandError, print_status

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, readable=False, path_type=Path),
    metavar="DIR",
    help="Write a dated file to this directory, which is created if missing.",
)
keep_option = click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Remove all but the newest N dated files; needs --dir.",
)


def check_target(
    file: str | None, directory: Path | None, keep: int | None, *, force: bool
) -> None:
    """Raise UsageError unless exactly one of FILE and --dir is given, with matching options."""
    if (file is None) == (directory is None):
        raise click.UsageError("Specify either FILE or --dir.")
    if keep is not None and directory is None:
        raise click.UsageError("--keep needs --dir.")
    if force and directory is not None:
        raise click.UsageError("--force needs FILE.")


def add_dated(directory: Path, suffix: str, keep: int | None, write: Callable[[Path], str]) -> None:
    """Add a dated file that write() creates and verifies; print its summary; remove older files.

    The directory is created if it is missing. If write() raises, no file is added or removed.
    """
    try:
        _create_directory(directory)
        with locked_directory(directory), scratch_directory(directory) as scratch:
            new = scratch / "new"
            written = write(new)
            time = datetime.now(UTC)
            # If there is already a file for this second, use the next free second.
            while (target := dated_path(directory, time, suffix)).exists():
                time += timedelta(seconds=1)
            os.replace(new, target)
            sync_directory(directory)
    except OSError as error:
        raise CommandError(f"{directory} cannot be written: {error.strerror}.") from error
    print_status(f"{written} to {target}.")
    if keep is not None:
        _remove_older(target, keep)


def _create_directory(directory: Path) -> None:
    """Create the directory, accessible only to its owner, if it is missing."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        sync_directory(directory.parent)


def _remove_older(newest: Path, keep: int) -> None:
    """Keep this many files, the given newest one included, and remove older files."""
    old = find_dated_until(newest)[:-keep]
    for path in old:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CommandError(
                f"{path} is no longer needed but cannot be removed: {error.strerror}."
            ) from error
    if old:
        print_status(f"Removed {plural(len(old), 'older file')}.")
