"""The content of a command's click context: the settings, and the opened catalog."""

import click

from ..opening import Files, configure_catalog
from ..store.bundles.bundles import Bundles
from ..store.connection.database import Database
from .output import print_status

# Keys in a context's meta: the opened files, the application to serve, the settings from the
# command line, and the RemoteCatalog that the command uses.
FILES, SERVICE, SETTINGS, REMOTE = "files", "service", "settings", "remote"


def files() -> Files:
    """Return the files of the catalog that the command works on; the first call opens them.

    A front end such as `flask` may provide opened files in the click context.
    """
    meta = click.get_current_context().meta
    if FILES not in meta:
        meta[FILES] = configure_catalog(meta.get(SETTINGS, {}))
    opened: Files = meta[FILES]
    return opened


def database() -> Database:
    """Return the catalog's database, which prints a message while it waits for a lock."""
    db = files().database
    db.on_wait = lambda: print_status("The database is busy; waiting.")
    return db


def bundles() -> Bundles:
    """Return the bundle directory; it prints a message before it waits for another process."""
    directory = files().bundles
    directory.on_wait = lambda: print_status(
        f"Another command is writing to {directory.name}; waiting."
    )
    return directory
