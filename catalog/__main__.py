"""The command widget-catalog; `python -m` with the name of this package is the same."""

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from . import __version__
from .data_files import DataFileError
from .server_option import server_options
from .serving.health_client import health
from .settings import SettingError

if TYPE_CHECKING:
    from flask import Flask

PROGRAM = "widget-catalog"
# click completes a command line in a process that has this variable.
COMPLETION_VARIABLE = "_WIDGET_CATALOG_COMPLETE"
SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}
# Commands that are in no section are listed last.
SECTIONS = {
    "Serve": ["serve", "health"],
    "Publish and moderate": [
        "publish",
        "yank",
        "unyank",
        "deprecate",
        "undeprecate",
        "unlist",
        "relist",
        "official",
        "unofficial",
        "describe",
        "delete",
    ],
    "Look": ["list", "show", "outdated", "stats", "log"],
    "Data": [
        "init",
        "import",
        "export",
        "check",
        "backup",
        "restore",
        "drill",
        "pack",
        "unpack",
        "gc",
        "migrate",
        "cluster",
    ],
    "Mirror": ["mirror"],
    "Publish over HTTP": ["token", "login", "logout"],
}
HELP_OPTIONS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class BoldHeadings(click.HelpFormatter):
    """Help with bold headings; click removes the style if the output is not a terminal."""

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', bold=True)}\n")


class TopContext(click.Context):
    """The context of the command line, which the contexts of the commands inherit from."""

    formatter_class = BoldHeadings

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if os.environ.get("NO_COLOR"):
            self.color = False


class CatalogGroup(click.Group):
    """The commands, listed in sections."""

    context_class = TopContext

    def make_context(self, *arguments: Any, **keywords: Any) -> click.Context:
        """Return a context with the application, which is loaded when a command needs it."""
        # main() runs `health` without these imports, which take two thirds of its time.
        from flask.cli import ScriptInfo

        from .commands import commands

        self.commands.update(commands.cli.commands)
        script = ScriptInfo(create_app=lambda: load_application(script.data), set_debug_flag=False)
        return super().make_context(*arguments, **{"obj": script, **keywords})

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        named = {name for names in SECTIONS.values() for name in names}
        others = [name for name in self.commands if name not in named]
        for title, names in {**SECTIONS, "Other": others}.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, self.commands[name].get_short_help_str(limit))
                        for name in self._visible(names)
                    ]
                )

    def _visible(self, names: list[str]) -> list[str]:
        return [name for name in names if not self.commands[name].hidden]


def _store_database(context: click.Context, option: click.Parameter, path: str | None) -> None:
    if path is not None:
        context.obj.data["DATABASE"] = path


@click.group(cls=CatalogGroup, context_settings=HELP_OPTIONS, params=server_options())
@click.option(
    "--database",
    type=click.Path(),
    metavar="PATH",
    expose_value=False,
    callback=_store_database,
    help="The SQLite file. Default: the variable CATALOG_DATABASE, else catalog.db.",
)
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
def cli() -> None:
    """Serve a catalog of dashboard widgets, and manage it.

    To try it: widget-catalog serve --demo
    """


@cli.command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print a script for completion in a shell.

    It completes commands, options, widgets and versions. For bash, add this to ~/.bashrc:

        eval "$(widget-catalog completion bash)"
    """
    if shell == "bash":
        # Otherwise bash would complete the version after an @ as a word of its own.
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}")
    click.echo(SHELLS[shell](cli, {}, PROGRAM, COMPLETION_VARIABLE).source())


def load_application(settings: dict[str, Any]) -> "Flask":
    """Return the service; raise ClickException if the installation or a setting is invalid."""
    try:
        # Help and completion of commands do not need it.
        from .application import create_app

        return create_app(settings)
    except (DataFileError, SettingError) as error:
        raise click.ClickException(str(error)) from None


def main() -> None:
    """Run the command line."""
    if COMPLETION_VARIABLE in os.environ:
        # A warning would be printed into the line that is being completed.
        logging.disable()
    if sys.argv[1:2] == ["health"]:
        health.main(sys.argv[2:], prog_name=f"{PROGRAM} health", **HELP_OPTIONS)
    else:
        cli.main(prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)


if __name__ == "__main__":
    main()
