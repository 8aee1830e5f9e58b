"""widget-catalog gc, pack, unpack: held bundles, and the catalog with its bundles in one file."""

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
from ..store.write.audit import local_actor
from ..store.write.held_bundles import release_bundles
from ..store.write.mirrored import remove_gone
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

# In a dry run, without those of copies that gc would remove.
USED_HASHES = """
SELECT sha256_hash FROM (
    SELECT widget_id, sha256_hash FROM version
    UNION SELECT widget_id, picture ->> 'sha256Hash' FROM about)
JOIN widget ON widget.id = widget_id LEFT JOIN mirrored USING (widget_id)
WHERE NOT :dry_run OR listed OR gone IS NOT 1
"""


@command("gc")
@click.option(
    "--release",
    is_flag=True,
    help="Also point versions whose bundle is missing here to their original URL again.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def gc(release: bool, dry_run: bool) -> None:
    """Remove bundles and pictures that are not used.

    Copies that a mirror has unlisted, because they are gone from its upstream, are deleted with
    their bundles. The bundles of other unlisted widgets and of yanked versions are kept.
    """
    with bundles().locked():
        if database().is_cluster:
            # The local file may lack a version that another node has published.
            database().check_writes()
        gone = database().transact(remove_gone, local_actor(), dry_run=dry_run)
        # After it: a mirror may have listed a copy again while it waited.
        with database().read() as connection:
            rows = connection.execute(USED_HASHES, {"dry_run": dry_run})
            used = {sha256 for (sha256,) in rows}
            held = packs.held_hashes(connection)
        unused = {*bundles().hashes()} - used
        partials = bundles().incomplete()
        size = sum(bundles().path(sha256).stat().st_size for sha256 in unused)
        missing = [sha256 for sha256 in held if not bundles().holds(sha256)] if release else []
        released = database().transact(
            lambda transaction: release_bundles(transaction, missing, "release"),
            local_actor(),
            dry_run=dry_run,
        )
        if not dry_run:
            for path in (*map(bundles().path, unused), *partials):
                path.unlink(missing_ok=True)
    removed = "Would remove" if dry_run else "Removed"
    if gone:
        print_status(f"{removed} {plural(gone, 'widget')} that the upstream no longer shows.")
    print_status(f"{removed} {plural(len(unused), 'bundle')} of {size} bytes that no version uses.")
    if partials:
        print_status(f"{removed} {plural(len(partials), 'incomplete bundle')}.")
    if release:
        print_status(
            f"{'Would release' if dry_run else 'Released'} {plural(released, 'version')} whose "
            f"bundle is not in {bundles().name}."
        )


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
