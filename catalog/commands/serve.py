"""widget-catalog serve: runs the service."""

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from ..settings import DEFAULTS, parse_required
from ..store.connection.file_paths import wal_path
from .base import command
from .context import SERVICE, SETTINGS, database, files
from .import_export import create_database
from .options import ValidatedType
from .output import CommandError, is_quiet


def use_temporary_catalog(
    context: click.Context, option: click.Parameter, is_testing: bool
) -> Path | None:
    """Use a temporary catalog and return its directory if is_testing is true, else return None."""
    if not is_testing or context.resilient_parsing:
        return None
    if SETTINGS in context.meta:
        raise click.UsageError("--testing uses its own catalog: omit --database.")
    files = TemporaryDirectory(prefix="widget-catalog-", ignore_cleanup_errors=True)
    directory = Path(context.with_resource(files))
    # These settings override the environment, which is not meant for tests. A test needs few
    # connections, and some systems allow a process only a few open files.
    settings = {"DATABASE": str(directory / "catalog.db"), "PORT": "0", "MAX_CONNECTIONS": "200"}
    context.meta[SETTINGS] = {**DEFAULTS, **settings}
    return directory


@command("serve")
@click.option(
    "--host",
    type=ValidatedType("address", parse_required),
    help="Listen on this address instead of CATALOG_HOST.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Listen on this port instead of CATALOG_PORT; 0 picks a free one.",
)
@click.option(
    "--unix",
    "unix_path",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Listen on a Unix socket at this path instead.",
)
@click.option("--init", is_flag=True, help="Create an empty database if there is none.")
@click.option("--demo", is_flag=True, help="Create a demo catalog if there is no database.")
@click.option(
    "--print-json",
    is_flag=True,
    help="Print the address as one line of JSON: url, database, pid.",
)
@click.option(
    "--testing",
    is_flag=True,
    callback=use_temporary_catalog,
    help="Serve a temporary catalog that tests control with requests below /_testing/.",
)
def serve(
    host: str | None,
    port: int | None,
    unix_path: Path | None,
    init: bool,
    demo: bool,
    print_json: bool,
    testing: Path | None,
) -> None:
    """Serve the catalog.

    Print the address, then respond to HTTP requests until Ctrl+C or SIGTERM. With --testing, the
    service also stops when the process that started it ends, and prints its address as JSON.
    """
    # Only this command needs Flask and waitress, so they are imported here.
    from ..application import make_service
    from ..serving import server
    from ..testing.service import prepare

    if unix_path and (host, port) != (None, None):
        raise click.UsageError("--unix cannot be combined with --host or --port.")
    app = click.get_current_context().meta.get(SERVICE) or make_service(files())
    options = {"HOST": host, "PORT": port}
    app.config.update({name: value for name, value in options.items() if value is not None})
    if testing:
        prepare(app, testing, "demo" if demo else "empty")
        app.config["LOG_LEVEL"] = "error" if is_quiet() else "info"
    elif (init or demo) and not database().exists():
        wal = wal_path(database().real_path)
        if not database().is_cluster and wal.exists():
            raise CommandError(
                f"{database().name} was removed, but {wal.name} was not. Put the file back, or"
                f" create a new one: widget-catalog init"
            )
        create_database(demo)
    # Requests must not wait for a lock as long as commands do.
    database().on_wait = None
    server.serve(
        app,
        unix_path=unix_path,
        print_json=print_json or testing is not None,
        testing=testing is not None,
    )
