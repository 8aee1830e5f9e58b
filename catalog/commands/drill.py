"""widget-catalog drill: the newest backup, restored to a folder of its own and checked."""

from contextlib import closing
from itertools import chain
from pathlib import Path

import click

from ..atomic_files import scratch_directory
from ..files.packs import PackError
from ..files.unpack import unpack_bundles
from ..store import backups
from ..store.bundles import Bundles
from ..store.check import check_bundles, check_catalog
from ..store.connection.database import Database
from ..store.schema.schema import COUNT_ALL
from ..text import plural
from .base import CommandError, command, files, print_first, print_status, progress_bar
from .retention import find_newest


@command("drill")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The directory of the backups, in place of CATALOG_BACKUPS.",
)
def drill(directory: Path | None) -> None:
    """Restore the newest backup elsewhere and check it.

    Takes the newest file of backup --dir and, if there is one, of pack --dir, which has the
    bundles. Everything is in a folder of its own in the same directory, which is removed again. The
    catalog itself is not used. Exit code 1 if something is missing or wrong.
    """
    directory = directory or Path(files().config["BACKUPS"])
    if directory == Path():
        raise click.UsageError("Give --dir, or set CATALOG_BACKUPS.")
    backup, pack = (find_newest(directory, suffix) for suffix in (".db", ".pack"))
    if backup is None:
        raise CommandError(f"{directory} has no file of backup --dir.")
    with scratch_directory(directory) as folder:
        bundles = Bundles(folder / "bundles")
        with closing(Database(folder / "catalog.db")) as database:
            backups.restore(database, backup)
            if pack:
                _unpack(pack, database, bundles)
            findings = [*chain(check_catalog(database), check_bundles(database, bundles))]
            widgets, versions = database.fetch(COUNT_ALL, {})[0]
        held = len([*bundles.hashes()])
    print_first(findings, is_error=True)
    if findings:
        missing = "" if pack else f", and no file of pack --dir in {directory}"
        raise CommandError(f"{plural(len(findings), 'finding')} in {backup}{missing}.")
    counts = f"{plural(widgets, 'widget')}, {plural(versions, 'version')}, {plural(held, 'bundle')}"
    print_status(f"{backup}{f' with {pack.name}' if pack else ''} is in order: {counts}.")


def _unpack(pack: Path, database: Database, bundles: Bundles) -> None:
    try:
        with pack.open("rb") as file, progress_bar("Unpacking") as on_progress:
            unpack_bundles(file, database, bundles, on_progress)
    except PackError as error:
        raise CommandError(f"{pack}: {error}") from error
