"""flask gc, pack, unpack: the bundles that are held here, and the catalog with them in one file."""

from functools import partial
from typing import BinaryIO

import click

from catalog.commands.base import (
    CommandError,
    bundles,
    command,
    confirm,
    count_text,
    database,
    progress,
    say,
)
from catalog.commands.import_export import opened_to_write
from catalog.files import packs
from catalog.store import mirror_writes
from catalog.text import plural

NAMED = "SELECT DISTINCT sha256_hash FROM version"


@command("gc")
@click.option(
    "--release",
    is_flag=True,
    help="Also have versions whose bundle is missing here loaded from their original URL again.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def gc(release: bool, dry_run: bool) -> None:
    """Remove bundles that no version names.

    Nothing that a version names is removed, whether or not the widget is listed.
    """
    with bundles().locked():
        with database().read() as connection:
            named = {sha256 for (sha256,) in connection.execute(NAMED)}
            held = [sha256 for (sha256,) in connection.execute(packs.HELD)]
        whole, begun = ({*found} - named for found in (bundles().hashes(), bundles().partials()))
        if whole and not named:
            raise CommandError(
                f"{database().name} has no version; is {bundles().name} of another catalog?"
            )
        size = sum(bundles().path(sha256).stat().st_size for sha256 in whole)
        missing = [sha256 for sha256 in held if not bundles().holds(sha256)] if release else []
        run = database().dry_run if dry_run else database().write
        released = sum(run(mirror_writes.release_bundles(missing)))
        if not dry_run:
            for sha256 in sorted(whole | begun):
                bundles().remove(sha256)
    would = "Would remove" if dry_run else "Removed"
    say(f"{would} {plural(len(whole), 'bundle')} of {size} bytes that no version names.")
    if begun:
        say(f"{would} {plural(len(begun), 'partial bundle')} that no version names.")
    if release:
        would = "Would release" if dry_run else "Released"
        say(f"{would} {plural(released, 'version')} whose bundle is not in {bundles().name}.")


@command("pack")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def pack(file: str) -> None:
    """Write the catalog and its bundles to one file.

    flask unpack makes a serving mirror of FILE where there is no network. It is a tar archive, and
    the same catalog gives the same bytes.
    """
    with (
        bundles().locked(),
        database().read() as connection,
        opened_to_write(file) as output,
    ):
        (widgets,) = connection.execute("SELECT count(*) FROM widget").fetchone()
        packed = packs.pack(connection, bundles(), output, watch=partial(progress, label="Packing"))
    say(f"Packed {plural(widgets, 'widget')} and {plural(packed, 'bundle')}.")


@command("unpack")
@click.argument("file", type=click.File("rb"))
@click.option("--yes", is_flag=True, help="Replace the catalog that is there without asking.")
def unpack(file: BinaryIO, yes: bool) -> None:
    """Make a serving catalog from a pack.

    All that the catalog held is replaced; a running service shows it at once. A pack with anything
    wrong in it changes nothing.
    """
    if database().exists():
        confirm(f"Replace all of {database().name} with {file.name}?", yes)
    unpacked = packs.unpack(file, database(), bundles(), watch=partial(progress, label="Unpacking"))
    if unpacked.aside:
        say(f"What was there could not be opened; it is now {unpacked.aside}.")
    say(
        f"Unpacked {count_text(unpacked.documents)} into {database().name}, with "
        f"{plural(unpacked.bundles, 'bundle')}."
    )
