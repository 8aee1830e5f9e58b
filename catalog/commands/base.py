"""The base class of all commands, and the decorator that registers them."""

import io
import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import click

from ..domain.changes import ChangeError, MissingWidgetError
from ..domain.documents import DocumentError
from ..files.jsonl import CatalogFileError
from ..files.pack_reader import PackError
from ..settings import SettingError
from ..store.connection.sqlite import DatabaseError
from ..store.read.suggestions import did_you_mean, rank_similar, suggest_widgets
from ..system.data_files import DataFileError
from .common_options import common_options
from .context import REMOTE, SETTINGS, database
from .output import CommandError
from .server_option import SERVER_VARIABLE

# Errors whose messages are shown to users as they are.
EXPECTED_ERRORS = (
    ChangeError, DataFileError, DatabaseError, DocumentError, PackError, SettingError,
)  # fmt: skip
REMOTE_ADVICE = "; for the catalog of a service, use --server URL."
# All commands by name.
COMMANDS: dict[str, click.Command] = {}


class Command(click.Command):
    """A command with the common options, which reports expected errors in one sentence."""

    def __init__(self, *arguments: Any, remote: bool = False, **keywords: Any) -> None:
        """Create a command, which supports --server if remote is true."""
        super().__init__(*arguments, **keywords)
        self.remote = remote
        own = {parameter.name for parameter in self.params}
        self.takes_ca = remote or "ca" in own
        options = common_options(remote=remote)
        self.params += [option for option in options if option.name not in own]

    def invoke(self, context: click.Context) -> Any:
        if not self.remote:
            self.reject_server(context)
        for stream in (sys.stdout, sys.stderr):
            # A stream's encoding may not support every character in the catalog.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return self._invoke_suggesting(context)
        except BrokenPipeError:
            # The process that reads the pipe has closed it: click exits without a message.
            raise
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            raise CommandError(f"{file}{error.strerror}.") from error
        except sqlite3.Error as error:
            raise CommandError(f"{database().name}: {error}.") from error
        except CatalogFileError as error:
            raise CommandError(*error.problems) from error
        except EXPECTED_ERRORS as error:
            is_missing = isinstance(error, DatabaseError) and _has_no_file()
            advice = REMOTE_ADVICE if is_missing and self.remote else ""
            raise CommandError(f"{error}{advice}") from error

    def _invoke_suggesting(self, context: click.Context) -> Any:
        """Run the command; if a widget is missing, suggest one with a similar name."""
        try:
            return super().invoke(context)
        except MissingWidgetError as error:
            scope, name, _ = error.widget
            if remote := context.meta.get(REMOTE):
                near = rank_similar(remote.read_similar(scope), name, scope)
            else:
                near = suggest_widgets(database().reader(), name, scope)
            raise CommandError(f"{error}{did_you_mean(near)}") from error

    def reject_server(self, context: click.Context) -> None:
        """Raise UsageError if an option or CATALOG_SERVER names a service."""
        message = f"{self.name} does not support --server"
        if "ca" in context.meta and not self.takes_ca:
            raise click.UsageError("--ca requires --server.")
        if "server" in context.meta:
            raise click.UsageError(f"{message}.")
        if os.environ.get(SERVER_VARIABLE) and SETTINGS not in context.meta:
            raise click.UsageError(
                f"{message}, and {SERVER_VARIABLE} names a service: unset it, or use --database."
            )


def _has_no_file() -> bool:
    """Return whether nothing exists at the database path, not even a directory."""
    try:
        return not database().exists()
    except DatabaseError:
        return False


class CommandGroup(Command, click.Group):
    """A command with subcommands, such as token create and token list."""


def command(
    name: str, group: CommandGroup | None = None, *, remote: bool = False, hidden: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Register a function as a command, or as a subcommand of a group.

    A remote command supports --server; the help does not list hidden commands.
    """

    def register(function: Callable[..., None]) -> click.Command:
        new = click.command(name, cls=Command, remote=remote, hidden=hidden)(function)
        (group.commands if group else COMMANDS)[name] = new
        return new

    return register
