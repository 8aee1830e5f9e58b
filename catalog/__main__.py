"""The widget-catalog command; `python -m` with this package's name does the same."""

import logging
import os

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from . import __version__
from .commands import COMMANDS
from .commands.base import Command
from .commands.common_options import common_options

PROGRAM = "widget-catalog"
# click sets this variable in a process that completes a command line.
COMPLETION_VARIABLE = "_WIDGET_CATALOG_COMPLETE"
SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}
# Commands without a section are listed last.
SECTIONS = {
    "Serve": ["serve", "health"],
    "Publish": [
        "publish",
        "yank",
        "unyank",
        "deprecate",
        "undeprecate",
        "unlist",
        "relist",
        "official",
        "describe",
        "delete",
    ],
    "Inspect": ["list", "show", "outdated", "log"],
    "Maintain": [
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
    "Access": ["token", "trust", "login", "logout", "whoami"],
}


class CatalogGroup(click.Group):
    """A command group whose help lists the commands in sections."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        named = {name for names in SECTIONS.values() for name in names}
        others = [name for name in self.commands if name not in named]
        for title, names in {**SECTIONS, "Other": others}.items():
            shown = [self.commands[name] for name in names if not self.commands[name].hidden]
            with formatter.section(title):
                formatter.write_dl(
                    [(each.name or "", each.get_short_help_str(limit)) for each in shown]
                )


@click.group(
    cls=CatalogGroup,
    commands=dict(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
    params=common_options(),
)
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
def cli() -> None:
    """Serve a catalog of dashboard widgets, and manage it.

    To try it: widget-catalog serve --demo
    """


class CompletionCommand(Command):
    """A command that needs no catalog, so it ignores --server and CATALOG_SERVER."""

    def reject_server(self, context: click.Context) -> None:
        pass


@cli.command("completion", cls=CompletionCommand)
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options, widgets and versions. For bash, add this to ~/.bashrc:

        eval "$(widget-catalog completion bash)"
    """
    if shell == "bash":
        # By default, bash treats the text after an @ as a separate word to complete.
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}")
    click.echo(SHELLS[shell](cli, {}, PROGRAM, COMPLETION_VARIABLE).source())


def main() -> None:
    """Run the command line."""
    if COMPLETION_VARIABLE in os.environ:
        # Suppress warnings: the shell would print them into the command line being completed.
        logging.disable()
    cli.main(prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)


if __name__ == "__main__":
    main()
