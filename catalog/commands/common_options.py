"""The options that every command accepts, before or after its name."""

import click

from .context import FILES, SERVICE, SETTINGS
from .server_option import server_options


def _set_quiet(context: click.Context, option: click.Parameter, quiet: bool) -> None:
    context.meta["quiet"] = quiet or context.meta.get("quiet", False)


def _store_database(context: click.Context, option: click.Parameter, path: str | None) -> None:
    if path is not None:
        context.meta[SETTINGS] = {"DATABASE": path}
        # A front end, such as the flask command, may have opened another catalog.
        context.meta.pop(FILES, None)
        context.meta.pop(SERVICE, None)


def common_options(*, remote: bool = True) -> list[click.Parameter]:
    """Return the options; the help omits --server and --ca unless the command is remote.

    The options are eager, because other options depend on the catalog that they select.
    """
    return [
        *server_options(hidden=not remote),
        click.Option(
            ["--database"],
            type=click.Path(),
            metavar="PATH",
            expose_value=False,
            is_eager=True,
            callback=_store_database,
            help="Work on this SQLite file. Default: CATALOG_DATABASE, else catalog.db.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_set_quiet,
            help="Print only data and errors, no status lines.",
        ),
    ]
