"""The options --dir and --keep of backup and pack: dated files, of which the newest stay."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import MAXYEAR, UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import click

from ..atomic_files import locked_directory, scratch_directory, sync_directory
from ..text import plural
from .base import CommandError, print_status

T = TypeVar("T")
directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, readable=False, path_type=Path),
    metavar="DIR",
    help="Write a new file in this directory, named after the time.",
)
keep_option = click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --dir: remove all but the newest N of these files.",
)


def check_target(file: str | None, directory: Path | None, keep: int | None) -> None:
    """Raise UsageError unless either a file or a directory is given."""
    if (file is None) == (directory is None):
        raise click.UsageError("Give either FILE or --dir.")
    if keep is not None and directory is None:
        raise click.UsageError("--keep is for --dir.")


def add_dated(directory: Path, suffix: str, write: Callable[[Path], T]) -> tuple[Path, T]:
    """Add a file that write() creates and verifies; return its path and what write() returned.

    If write() raises, nothing is added.
    """
    try:
        with locked_directory(directory), scratch_directory(directory) as scratch:
            new = scratch / "new"
            result = write(new)
            target = directory / _next_name(directory, suffix)
            os.replace(new, target)
            sync_directory(directory)
    except OSError as error:
        raise CommandError(f"{directory} cannot be written: {error.strerror}.") from error
    return target, result


def remove_older(newest: Path, keep: int | None) -> None:
    """Remove all but this many dated files; later ones than this one neither count nor go."""
    if keep is None:
        return
    directory, suffix = newest.parent, newest.suffix
    names = [_name(time, suffix) for time in _times(directory, suffix)]
    old = [name for name in names if name <= newest.name][:-keep]
    for name in old:
        try:
            (directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise CommandError(
                f"{directory / name} is no longer needed and cannot be removed: {error.strerror}."
            ) from error
    if old:
        print_status(f"Removed {plural(len(old), 'older file')}.")


def _next_name(directory: Path, suffix: str) -> str:
    """Return the name of a new file: the time, or a second after the newest if that is later.

    So the order of names is the order in which the files were written, even if the clock went back,
    and no two names are the same.
    """
    time = datetime.now(UTC)
    if times := _times(directory, suffix):
        time = max(time, times[-1] + timedelta(seconds=1))
    return _name(time, suffix)


def _name(time: datetime, suffix: str) -> str:
    return f"catalog-{time:%Y%m%dT%H%M%SZ}{suffix}"


def _times(directory: Path, suffix: str) -> list[datetime]:
    """Return the times in the names of the files that add_dated() has added, in order."""
    times = []
    for entry in os.scandir(directory):
        # Other files have names from which no time can be read, or not exactly.
        with suppress(ValueError):
            time = datetime.strptime(entry.name, f"catalog-%Y%m%dT%H%M%SZ{suffix}")
            is_own = entry.is_file(follow_symlinks=False) and entry.name == _name(time, suffix)
            # Python has no time after the year 9999, so no file could follow one of that year.
            if is_own and time.year < MAXYEAR:
                times.append(time.replace(tzinfo=UTC))
    return sorted(times)
