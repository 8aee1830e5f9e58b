"""The files that export, pack and backup write, and the check before they replace a file."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from ..system.atomic_files import atomic_replace, is_special
from .context import database
from .output import CommandError

force_option = click.option("--force", is_flag=True, help="Replace FILE regardless of its content.")


class FileKind(NamedTuple):
    """A kind of file that a command writes, and how such a file begins."""

    name: str
    beginning: re.Pattern[bytes]


# The header of a catalog's SQLite file ends with the application_id Wcat.
BACKUP = FileKind("a backup", re.compile(rb"SQLite format 3\0.{52}Wcat", re.DOTALL))
EXPORT = FileKind("an export", re.compile(rb'\s*\{\s*"widget"\s*:'))
PACK = FileKind("a pack", re.compile(rb"SHA256SUMS\0"))
MAX_BEGINNING = 1024  # bytes


def check_replaceable(file: str, kind: FileKind, *, force: bool) -> None:
    """Raise CommandError if the file exists and is of another kind, unless force is true.

    Nightly jobs replace the previous night's file, but a mistyped name must not destroy an
    unrelated file.
    """
    path = Path(file)
    if force or file == "-" or is_special(path) or not path.exists():
        return
    with path.open("rb") as existing:
        beginning = existing.read(MAX_BEGINNING)
    if beginning and not kind.beginning.match(beginning):
        raise CommandError(f"{file} exists and is not {kind.name}. To replace it, use --force.")


@contextmanager
def open_output(file: str, kind: FileKind, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file for writing, or standard output for -.

    A file or a link is replaced with a new file if the with block ends without an error. A device
    or a pipe is written directly.
    """
    path = Path(file)
    try:
        if file == "-" and sys.stdout is None:
            raise CommandError("Standard output is closed. Specify a FILE.")
        if file == "-":
            yield sys.stdout.buffer
        elif database().is_same_file(path):
            raise CommandError(f"{file} is the catalog itself.")
        elif is_special(path):
            with path.open("wb") as device:
                yield device
        else:
            check_replaceable(file, kind, force=force)
            with atomic_replace(path) as new, new.open("wb") as output:
                yield output
    except BrokenPipeError:
        raise
    except OSError as error:
        output_name = "Standard output" if file == "-" else file
        raise CommandError(f"{output_name} cannot be written: {error.strerror}.") from error
