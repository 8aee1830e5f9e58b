"""widget-catalog pack, unpack: the catalog with its bundles in one file."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click

from ..atomic_files import drop_from_memory
from ..files import packs
from ..files.jsonl import CatalogFileError
from ..files.unpack import Differences, OnProgress, unpack_bundles, unpack_catalog
from ..store.bundles import open_private
from ..store.check import find_elsewhere, find_missing_bundles
from ..store.read.selection import Selection
from ..text import plural
from .base import (
    CommandError,
    bundles,
    command,
    confirm,
    database,
    file_name,
    format_counts,
    print_first,
    print_status,
    progress_bar,
)
from .import_export import COUNT_SELECTED, open_output
from .maintenance import print_moved
from .retention import add_dated, check_target, directory_option, keep_option
from .selection import select_widgets, selection_options

# Of what unpack has removed.
MAX_NAMES = 20


@command("pack")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@selection_options
@directory_option
@keep_option
def pack(file: str | None, directory: Path | None, keep: int | None, **selected: Any) -> None:
    """Write the catalog and its bundles to one file.

    The command unpack makes a catalog of it on a machine without a network. A pack is a tar
    archive, and the same catalog gives the same bytes. It has neither tokens nor the record of
    changes. Options select some of the widgets. With --dir, it is also read back from the disk
    before older ones are removed.
    """
    check_target(file, directory, keep)
    selection = Selection(**selected)
    if directory is None:
        print_status(f"{_write_pack(open_output(str(file)), selection)}.")
    else:
        write = partial(_write_verified_pack, selection=selection, name=directory)
        add_dated(directory, ".pack", keep, write)


def _write_pack(target: AbstractContextManager[BinaryIO], selection: Selection) -> str:
    """Write a pack to the target, and return what it contains in words."""
    with database().read() as connection:
        paths = select_widgets(connection, selection)
        packed = packs.held_hashes(connection, paths)
        warn_of_elsewhere(find_elsewhere(database(), paths, packed))
        widgets, _ = connection.execute(COUNT_SELECTED, {"paths": paths}).fetchone()
        with target as output, progress_bar("Packing") as on_progress:
            packs.pack(connection, bundles(), output, on_progress, paths)
    return f"Packed {plural(widgets, 'widget')} and {plural(len(packed), 'bundle')}"


def _write_verified_pack(path: Path, selection: Selection, name: Path) -> str:
    """Write a pack to a new file, and verify what is on the disk; name is for errors."""
    with open(path, "w+b", opener=open_private) as file:
        counts = _write_pack(nullcontext(file), selection)
        file.flush()
        drop_from_memory(file)
        file.seek(0)
        try:
            packs.verify(file)
        except packs.PackError as error:
            raise CommandError(f"{name}: {error}") from error
    return counts


def warn_of_elsewhere(versions: Sequence[str]) -> None:
    """Name the versions of a pack that cannot be loaded without a network."""
    print_first([f"Warning: {each} has no bundle here, and needs a network." for each in versions])


@command("unpack")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--bundles-only",
    is_flag=True,
    help="Only store the bundles that the catalog names, such as after restore.",
)
@click.option("--yes", is_flag=True, help="Replace an existing catalog without confirmation.")
def unpack(file: BinaryIO, bundles_only: bool, yes: bool) -> None:
    """Replace the catalog with a pack.

    A running service shows the unpacked catalog from the next request on. Of the old catalog, its
    tokens and its record of changes stay, and install counts that are higher than in the pack. An
    invalid pack changes nothing.
    """
    if bundles_only and yes:
        raise click.UsageError("--bundles-only replaces nothing; leave out --yes.")
    try:
        with progress_bar("Unpacking") as on_progress:
            if bundles_only:
                _unpack_bundles(file, on_progress)
            else:
                _unpack_catalog(file, on_progress, yes)
    except (packs.PackError, CatalogFileError) as error:
        raise CommandError(f"{file_name(file)}: {error}") from error


def _unpack_bundles(file: BinaryIO, on_progress: OnProgress) -> None:
    found, others = unpack_bundles(file, database(), bundles(), on_progress)
    missing = find_missing_bundles(database(), bundles())
    print_first([f"Warning: the bundle of {each} is not in {bundles().name}." for each in missing])
    rest = f"; {plural(others, 'other')} in the pack {'is' if others == 1 else 'are'} not used"
    print_status(
        f"Unpacked {plural(found, 'bundle')} that {database().name} names{rest if others else ''}."
    )


def _unpack_catalog(file: BinaryIO, on_progress: OnProgress, yes: bool) -> None:
    def ask(differences: Differences) -> None:
        if differences.newest > differences.newest_packed:
            print_status(
                f"Warning: {database().name} is newer than the pack: its newest version is of "
                f"{differences.newest}, that of the pack of {differences.newest_packed or 'never'}."
            )
        confirm(f"Replace all of {database().name} with {file_name(file)}?", yes)

    result = unpack_catalog(file, database(), bundles(), on_progress, ask)
    print_moved(result.damaged)
    _print_removed(result.differences.widgets, "widget")
    _print_removed(result.differences.versions, "version")
    warn_of_elsewhere(find_elsewhere(database()))
    counts, held = format_counts(result.widgets, result.versions), plural(result.bundles, "bundle")
    print_status(f"Unpacked {counts} into {database().name}, with {held}.")


def _print_removed(names: list[str], kind: str) -> None:
    """Name what was in the catalog and is not in the pack."""
    if names:
        more = len(names) - MAX_NAMES
        listed = ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
        verb = "is" if len(names) == 1 else "are"
        print_status(f"Removed {plural(len(names), kind)} that {verb} not in the pack: {listed}.")
