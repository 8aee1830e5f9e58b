"""widget-catalog pack, unpack: the catalog with its bundles in one file."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import click

from ..atomic_files import drop_from_memory
from ..files import packs
from ..files.jsonl import CatalogFileError
from ..store.bundles import open_private
from ..store.check import find_elsewhere
from ..store.read.selection import Selection
from ..text import plural
from .base import (
    CommandError,
    bundles,
    command,
    confirm,
    database,
    file_name,
    print_first,
    print_status,
    progress_bar,
)
from .import_export import COUNT_SELECTED, open_output
from .maintenance import print_moved
from .retention import add_dated, check_target, directory_option, keep_option
from .selection import select_widgets, selection_options


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
        add_dated(
            *(directory, ".pack", keep),
            lambda new: _write_verified_pack(new, selection, name=directory),
        )


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
@click.option("--yes", is_flag=True, help="Replace an existing catalog without confirmation.")
def unpack(file: BinaryIO, yes: bool) -> None:
    """Replace the catalog with a pack.

    A running service shows the unpacked catalog from the next request on. Of the old catalog, its
    tokens and its record of changes stay, and install counts that are higher than in the pack. An
    invalid pack changes nothing.
    """
    if database().exists():
        confirm(f"Replace all of {database().name} with {file_name(file)}?", yes)
    try:
        with progress_bar("Unpacking") as on_progress:
            result = packs.unpack(file, database(), bundles(), on_progress)
    except (packs.PackError, CatalogFileError) as error:
        raise CommandError(f"{file_name(file)}: {error}") from error
    print_moved(result.damaged)
    warn_of_elsewhere(find_elsewhere(database()))
    print_status(
        f"Unpacked {plural(result.widgets, 'widget')} and {plural(result.versions, 'version')} "
        f"into {database().name}, with {plural(result.bundles, 'bundle')}."
    )
