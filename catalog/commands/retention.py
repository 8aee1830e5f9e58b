"""The option --keep of backup and pack: a directory of dated files, of which the newest stay."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import MAXYEAR, UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from catalog.atomic_files import locked_directory, scratch_directory, sync_directory
from catalog.commands.base import CommandError, print_status
from catalog.text import plural

T = TypeVar("T")
EXISTING_DIRECTORY = click.Path(exists=True, file_okay=False, readable=False)


class FileOrDirectory(click.ParamType):  # type: ignore[type-arg]
    """The argument of a command: a file or, with --keep, an existing directory."""

    name = "file"

    def __init__(self, file: click.ParamType) -> None:  # type: ignore[type-arg]
        self.file = file

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        # An option that is not given has a value of click's own.
        if context is None or not isinstance(context.params.get("keep"), int):
            return self.file.convert(value, parameter, context)
        try:
            return EXISTING_DIRECTORY.convert(value, parameter, context)
        except click.BadParameter as error:
            error.param_hint = "'DIR'"
            raise


# Eager: the argument is converted after it.
keep_option = click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    is_eager=True,
    help="Write to a new file in the directory DIR, and remove all but the newest N.",
)


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


def remove_older(newest: Path, keep: int) -> None:
    """Remove all but this many dated files; later ones than this one neither count nor go."""
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
