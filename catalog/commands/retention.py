"""The options --dir and --keep of backup and pack: dated files, of which the newest stay."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from ..atomic_files import locked_directory, scratch_directory, sync_directory
from ..text import plural
from .base import CommandError, print_status

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


def add_dated(directory: Path, suffix: str, keep: int | None, write: Callable[[Path], str]) -> None:
    """Add a file that write() creates and verifies, print what write() returns, remove older ones.

    If write() raises, nothing is added or removed.
    """
    try:
        with locked_directory(directory), scratch_directory(directory) as scratch:
            new = scratch / "new"
            written = write(new)
            time = datetime.now(UTC)
            # The first free second.
            while (target := _dated_path(directory, time, suffix)).exists():
                time += timedelta(seconds=1)
            os.replace(new, target)
            sync_directory(directory)
    except OSError as error:
        raise CommandError(f"{directory} cannot be written: {error.strerror}.") from error
    print_status(f"{written} to {target}.")
    if keep is not None:
        _remove_older(target, keep)


def _dated_path(directory: Path, time: datetime, suffix: str) -> Path:
    return directory / f"catalog-{time:%Y%m%dT%H%M%SZ}{suffix}"


def find_newest(directory: Path, suffix: str) -> Path | None:
    """Return the newest dated file, if there is one."""
    files = _dated_until(_dated_path(directory, datetime.now(UTC), suffix))
    return files[-1] if files else None


def _dated_until(newest: Path) -> list[Path]:
    """Return the dated files up to this one, sorted; a wrong clock may have named later ones."""
    pattern = f"catalog-{'[0-9]' * 8}T{'[0-9]' * 6}Z{newest.suffix}"
    return sorted(path for path in newest.parent.glob(pattern) if path.is_file() and path <= newest)


def _remove_older(newest: Path, keep: int) -> None:
    """Remove all but this many dated files; later ones than the newest neither count nor go."""
    old = _dated_until(newest)[:-keep]
    for path in old:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CommandError(
                f"{path} is no longer needed and cannot be removed: {error.strerror}."
            ) from error
    if old:
        print_status(f"Removed {plural(len(old), 'older file')}.")
