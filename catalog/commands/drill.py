"""widget-catalog drill: restores the newest backup to a temporary folder and checks it."""

from contextlib import closing
from itertools import chain
from pathlib import Path

import click

from ..domain.messages import plural
from ..files.pack_reader import PackError
from ..files.unpack import unpack_bundles
from ..store.bundles.bundles import Bundles
from ..store.connection.database import Database
from ..store.maintenance import backups
from ..store.maintenance.check import check_catalog
from ..store.maintenance.check_bundles import check_bundles
from ..store.read.export import count_selected
from ..system.atomic_files import scratch_directory
from ..system.dated_files import find_newest
from .base import command
from .context import files
from .output import CommandError, print_first, print_status, progress_bar


@command("drill")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Use the backups in this directory instead of CATALOG_BACKUPS.",
)
def drill(directory: Path | None) -> None:
    """Restore the newest backup to a temporary folder and check it.

    The command restores the newest file that backup --dir wrote. The bundles come from the newest
    file that pack --dir wrote, if there is one. The temporary folder is in the same directory, and
    the catalog itself is not used. The exit status is 1 if anything is missing or wrong.
    """
    configured = files().config["BACKUPS"]
    if directory is None and not configured:
        raise click.UsageError("Specify --dir, or set CATALOG_BACKUPS.")
    directory = directory or Path(configured)
    backup, pack = (find_newest(directory, suffix) for suffix in (".db", ".pack"))
    if backup is None:
        raise CommandError(f"No backups found in {directory}.")
    with scratch_directory(directory) as folder:
        bundles = Bundles(folder / "bundles")
        with closing(Database(folder / "catalog.db")) as database:
            backups.restore(database, backup)
            if pack:
                _unpack(pack, database, bundles)
            problems = [*chain(check_catalog(database), check_bundles(database, bundles))]
            widgets, versions = count_selected(database.reader())
        stored = len([*bundles.hashes()])
        # The messages must not name the temporary folder, which is deleted.
        names = {bundles.name: str(pack or directory), database.name: str(backup)}
    for temporary, name in names.items():
        problems = [problem.replace(temporary, name) for problem in problems]
    print_first(problems, is_error=True)
    if problems:
        missing = "" if pack else f", and no pack was found in {directory}"
        raise CommandError(f"{plural(len(problems), 'problem')} in {backup}{missing}.")
    counts = (
        f"{plural(widgets, 'widget')}, {plural(versions, 'version')}, {plural(stored, 'bundle')}"
    )
    print_status(f"{backup}{f' with {pack.name}' if pack else ''} is in order: {counts}.")


def _unpack(pack: Path, database: Database, bundles: Bundles) -> None:
    try:
        with pack.open("rb") as file, progress_bar("Unpacking") as on_progress:
            unpack_bundles(file, database, bundles, on_progress)
    except PackError as error:
        raise CommandError(f"{pack}: {error}") from error
