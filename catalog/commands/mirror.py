"""widget-catalog mirror: copies another catalog through its public API, or refreshes copies."""

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from ..domain.messages import quoted
from ..store.read.mirrors import find_sources
from .base import COMMANDS, Command, CommandGroup
from .context import database
from .mirror_refresh import known_upstreams, refresh_all
from .options import (
    WIDGET_PATH,
    ValidatedType,
    dry_run_option,
    list_option,
    parse_age,
    selection_options,
)
from .output import CommandError
from .server_option import CA_OPTION, check_server_url

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

URL = ValidatedType("url", check_server_url)


class UrlOrCommand(ValidatedType):
    """The URL of an upstream; a single word is treated as a mistyped subcommand."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        if re.fullmatch("[A-Za-z_-]+", value) and value != "localhost":
            near = get_close_matches(value, mirror.commands, 1)
            advice = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"No such command {quoted(value)}.{advice}", context)
        return super().convert(value, parameter, context)


class RefreshCommand(Command):
    """The mirror command without a subcommand; its help lists the subcommands too."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(context, formatter)
        mirror.format_commands(context, formatter)

    def shell_complete(self, context: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete options and subcommand names."""
        subcommands = click.Group.shell_complete(mirror, context, incomplete)
        return [*super().shell_complete(context, incomplete), *subcommands]


class MirrorGroup(CommandGroup):
    """A group that refreshes copies unless its first argument is a subcommand."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return refresh_command.make_context(info_name, args, parent, **extra)


mirror = MirrorGroup("mirror", help="Copy another catalog, or refresh its copies.")
COMMANDS["mirror"] = mirror
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.command("mirror", cls=RefreshCommand)
@click.argument("url", type=UrlOrCommand("url", check_server_url), required=False)
@selection_options
@list_option("--exclude", "excludes", type=WIDGET_PATH, help="Do not copy this widget.")
@click.option(
    "--newest",
    type=click.IntRange(min=1),
    metavar="N",
    help="Copy only the newest N versions of a widget (for each --sdk), stable ones first.",
)
@click.option("--bundles", is_flag=True, help="Download bundles and pictures, to serve them.")
@click.option(
    "--keep-removed",
    is_flag=True,
    help="Keep widgets and versions that the upstream has unlisted or deleted.",
)
@click.option(
    "--min-age",
    type=ValidatedType("age", parse_age),
    metavar="7d|12h",
    help="Hold new versions back until they are this old.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Replace local widgets and copies from other upstreams if they have the same name.",
)
@yes_option
@click.option("--ca", **CA_OPTION)
@dry_run_option
def refresh_command(
    url: str | None, adopt: bool, yes: bool, dry_run: bool, **remembered_options: Any
) -> None:
    """Copy another catalog, or refresh its copies.

    URL is the address of its service, such as https://widgets.example.com. A completed run
    remembers the URL with the options that select what is copied. Without a URL, all upstreams are
    refreshed with the options from their last run.

    Only what changed since the last run is transferred. Widgets that the upstream has unlisted or
    deleted are unlisted here, and deleted versions are removed. Installs counted here are added
    to the upstream's installs.
    """
    from ..mirror.options import MirrorOptions

    options = MirrorOptions(**remembered_options, ca=click.get_current_context().meta.get("ca"))
    known = known_upstreams()
    if url is not None:
        refresh_all([(url, options)], adopt, dry_run, yes, is_new=True)
        return
    if options != MirrorOptions():
        raise click.UsageError(
            f"{' '.join(options.arguments())} needs a URL; without one, the options of the last "
            "run apply."
        )
    if not known:
        sources = find_sources(database())
        if not sources:
            raise CommandError("No upstream is known yet; specify its URL.")
        raise CommandError(
            f"No run has completed yet; the copies are from {', '.join(sources)}. Run mirror "
            "again with the URL and its options."
        )
    if adopt and len(known) > 1:
        raise click.UsageError("--adopt needs a URL, since there are several upstreams.")
    upstreams = [(each.source, MirrorOptions.from_memory(each.options)) for each in known]
    refresh_all(upstreams, adopt, dry_run, yes, is_new=False)
