"""widget-catalog pack and unpack: the catalog with its bundles in one file."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click

from ..domain.messages import plural
from ..files import packs
from ..files.jsonl import CatalogFileError
from ..files.pack_reader import PackError
from ..files.unpack import Differences, unpack_bundles, unpack_catalog
from ..store.bundles.bundles import open_private
from ..store.maintenance.check_bundles import find_external_bundles, find_missing_bundles
from ..store.read.export import count_selected
from ..store.read.selection import Selection
from ..store.read.stored_bundles import stored_hashes
from ..system.atomic_files import drop_from_memory
from .base import command
from .context import bundles, database
from .maintenance import print_moved
from .options import select_widgets, selection_options
from .output import (
    CommandError,
    confirm,
    file_name,
    format_counts,
    print_first,
    print_status,
    progress_bar,
)
from .output_file import PACK, force_option, open_output
from .retention import add_dated, check_target, directory_option, keep_option


@command("pack")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@selection_options
@directory_option
@keep_option
@force_option
def pack(
    file: str | None, directory: Path | None, keep: int | None, force: bool, **selected: Any
) -> None:
    """Write the catalog and its bundles to one file.

    The unpack command reads it back, for example on a machine without a network. A pack is a tar
    archive, and the same catalog always gives the same bytes. It contains neither tokens nor the
    audit log. FILE may be an earlier pack, which is replaced; any other file is refused.

    With --dir, the command reads the pack back from the disk before it removes older ones.
    """
    check_target(file, directory, keep, force=force)
    selection = Selection(**selected)
    if directory is None:
        target = open_output(str(file), PACK, force=force)
        print_status(f"{_write_pack(target, selection)}.")
    else:
        write = partial(_write_verified_pack, selection=selection, name=directory)
        add_dated(directory, ".pack", keep, write)


def _write_pack(target: AbstractContextManager[BinaryIO], selection: Selection) -> str:
    """Write a pack to the target, and return a summary of its content."""
    with database().read() as connection:
        paths = select_widgets(connection, selection)
        packed = stored_hashes(connection, paths)
        warn_of_external_bundles(find_external_bundles(database(), paths, packed))
        widgets, _ = count_selected(connection, paths)
        with target as output, progress_bar("Packing") as on_progress:
            packs.pack(connection, bundles(), output, on_progress, paths)
    return f"Packed {plural(widgets, 'widget')} and {plural(len(packed), 'bundle')}"


def _write_verified_pack(path: Path, selection: Selection, name: Path) -> str:
    """Write a pack to a new file, and verify it on disk; errors begin with the given name."""
    with open(path, "w+b", opener=open_private) as file:
        counts = _write_pack(nullcontext(file), selection)
        file.flush()
        drop_from_memory(file)
        file.seek(0)
        try:
            packs.verify(file)
        except PackError as error:
            raise CommandError(f"{name}: {error}") from error
    return counts


def warn_of_external_bundles(versions: Sequence[str]) -> None:
    """Print a warning for each version in a pack that cannot be loaded without a network."""
    print_first(
        [f"Warning: {each} has no stored bundle, and needs a network." for each in versions]
    )


@command("unpack")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--bundles-only",
    is_flag=True,
    help="Store only the bundles that the catalog names, for example after restore.",
)
@click.option("--yes", is_flag=True, help="Replace an existing catalog without confirmation.")
def unpack(file: BinaryIO, bundles_only: bool, yes: bool) -> None:
    """Replace the catalog with a pack.

    A running service shows the unpacked catalog from the next request on. The old catalog's tokens
    and audit log are kept, and so are install counts that are higher than in the pack. An
    invalid pack changes nothing.
    """
    if bundles_only and yes:
        raise click.UsageError("--bundles-only replaces nothing; omit --yes.")
    try:
        if bundles_only:
            _unpack_bundles(file)
        else:
            _unpack_catalog(file, yes)
    except CatalogFileError as error:
        first, *others = error.problems
        raise CommandError(f"{file_name(file)}: {first}", *others) from error
    except PackError as error:
        raise CommandError(f"{file_name(file)}: {error}") from error


def _unpack_bundles(file: BinaryIO) -> None:
    with progress_bar("Unpacking") as on_progress:
        found, others = unpack_bundles(file, database(), bundles(), on_progress)
    missing = find_missing_bundles(database(), bundles())
    print_first([f"Warning: the bundle of {each} is not in {bundles().name}." for each in missing])
    rest = f"; {plural(others, 'other')} in the pack {'is' if others == 1 else 'are'} not used"
    print_status(
        f"Unpacked {plural(found, 'bundle')} that {database().name} names{rest if others else ''}."
    )


def _unpack_catalog(file: BinaryIO, yes: bool) -> None:
    with ExitStack() as stack:
        on_progress = stack.enter_context(progress_bar("Unpacking"))

        def ask(differences: Differences) -> None:
            # The progress bar would overwrite a question below it.
            stack.close()
            _confirm_replacement(file_name(file), differences, yes)

        result = unpack_catalog(file, database(), bundles(), on_progress, ask)
    print_moved(result.damaged)
    warn_of_external_bundles(find_external_bundles(database()))
    counts, stored = (
        format_counts(result.widgets, result.versions),
        plural(result.bundles, "bundle or picture", "bundles and pictures"),
    )
    print_status(f"Unpacked {counts} into {database().name}, with {stored}.")


def _confirm_replacement(pack: str, differences: Differences, yes: bool) -> None:
    """Print everything that the pack would remove, and ask for confirmation."""
    if differences.newest > differences.newest_packed:
        print_status(
            f"Warning: {database().name} is newer than the pack. Newest widget or version in the "
            f"catalog: {differences.newest}; in the pack: {differences.newest_packed or 'none'}."
        )
    removed = []
    for kind, names in (("widget", differences.widgets), ("version", differences.versions)):
        if names:
            removed.append(plural(len(names), kind))
            verb = "is" if len(names) == 1 else "are"
            print_status(f"{removed[-1]} {verb} not in the pack: {', '.join(names)}.")
    effect = f", which removes {' and '.join(removed)}" if removed else ""
    confirm(f"Replace all of {database().name} with {pack}{effect}?", yes)
