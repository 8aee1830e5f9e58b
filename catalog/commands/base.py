"""Base of all commands: registration, access to the catalog, output, errors, argument types."""

import io
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from ..changes import (
    ChangeError,
    MissingWidgetError,
    parse_target,
    parse_version,
    parse_widget,
)
from ..data_files import DataFileError
from ..documents import MAX_PROBLEMS, DocumentError
from ..files.jsonl import CatalogFileError
from ..files.packs import PackError
from ..opening import Files, open_files
from ..semver_ranges import parse_sdk
from ..server_option import SERVER_VARIABLE, server_options
from ..settings import SettingError
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError
from ..store.read.suggestions import did_you_mean, index_names
from ..text import plural
from ..validators import check_text
from .names import NameType, ValidatedType
from .terminal import replace_unprintable

# The name that Python gives to standard input.
STDIN = "<stdin>"
# Their messages are for the user of a command.
EXPECTED_ERRORS = (
    CatalogFileError, ChangeError, DataFileError, DatabaseError, DocumentError, PackError,
    SettingError,
)  # fmt: skip
REMOTE_ADVICE = "; for the catalog of a service, use --server URL."
# In the meta of a click context: the opened files, the application to serve, the settings of the
# command line, and the RemoteCatalog that the command uses.
FILES, SERVICE, SETTINGS, REMOTE = "files", "service", "settings", "remote"
# All commands by name.
COMMANDS: dict[str, click.Command] = {}


class CommandError(click.ClickException):
    """The command cannot be carried out; the message says why. Exit code 1."""


class Command(click.Command):
    """A command with --quiet that reports expected errors in one sentence, without a traceback."""

    def __init__(self, *arguments: Any, remote: bool = False, **keywords: Any) -> None:
        """Make a command that can be used with --server if remote is true."""
        super().__init__(*arguments, **keywords)
        self.remote = remote
        self.params += server_options() if remote else []
        quiet = click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_set_quiet,
            help="Print errors only.",
        )
        self.params.append(quiet)

    def invoke(self, context: click.Context) -> Any:
        if not self.remote:
            self._refuse_server(context)
        for stream in (sys.stdout, sys.stderr):
            # The encoding of a stream may not cover every character of the catalog.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return self._invoke_suggesting(context)
        except BrokenPipeError:
            # The reader of a pipe has closed it: click exits without a message.
            raise
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            raise CommandError(f"{file}{error.strerror}.") from error
        except sqlite3.Error as error:
            raise CommandError(f"{database().name}: {error}.") from error
        except EXPECTED_ERRORS as error:
            is_missing = isinstance(error, DatabaseError) and _has_no_file()
            advice = REMOTE_ADVICE if is_missing and self.remote else ""
            raise CommandError(f"{error}{advice}") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # A service may send anything.
            if REMOTE not in context.meta:
                raise
            is_key = isinstance(error, KeyError)
            fault = f"has no {error.args[0]}" if is_key else "is not that of a widget catalog"
            origin = "a proxy or another service may have sent it"
            url = context.meta[REMOTE].service.url
            raise CommandError(f"The response of {url} {fault}; {origin}.") from error

    def _invoke_suggesting(self, context: click.Context) -> Any:
        """Run the command; name the widget that may be meant in place of a missing one."""
        try:
            return super().invoke(context)
        except MissingWidgetError as error:
            remote = context.meta.get(REMOTE)
            connection = index_names(remote.read_list()) if remote else database().reader()
            near = did_you_mean(connection, error.widget.scope, error.widget.name)
            raise CommandError(f"{error}{near}") from error

    def _refuse_server(self, context: click.Context) -> None:
        """Raise UsageError if an option or the variable names a service."""
        message = f"{self.name} works on the machine of the catalog only"
        if "ca" in context.meta and not any(each.name == "ca" for each in self.params):
            raise click.UsageError("--ca is for --server.")
        if "server" in context.meta:
            raise click.UsageError(f"{message}.")
        if os.environ.get(SERVER_VARIABLE) and SETTINGS not in context.meta:
            raise click.UsageError(
                f"{message}, and {SERVER_VARIABLE} names a service: unset it, or use --database."
            )


def _has_no_file() -> bool:
    """Return whether there is nothing at the path of the database, not even a directory."""
    try:
        return not database().exists()
    except DatabaseError:
        return False


class CommandGroup(Command, click.Group):
    """A command that consists of several, such as token create and token list."""


def _set_quiet(context: click.Context, option: click.Parameter, quiet: bool) -> None:
    # The option may stand before or after the name of a command in a group.
    context.meta["quiet"] = quiet or context.meta.get("quiet", False)


def is_quiet() -> bool:
    """Return whether the command runs with --quiet."""
    return bool(click.get_current_context().meta.get("quiet"))


def command(
    name: str, group: CommandGroup | None = None, *, remote: bool = False, hidden: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Register a function as a command, perhaps in a group.

    A remote one can be used with --server; help does not list a hidden one.
    """

    def register(function: Callable[..., None]) -> click.Command:
        new = click.command(name, cls=Command, remote=remote, hidden=hidden)(function)
        (group.commands if group else COMMANDS)[name] = new
        return new

    return register


def files() -> Files:
    """Return the files of the catalog that the command works on; they are opened once.

    A front end may provide them in the click context, as `flask` does.
    """
    meta = click.get_current_context().meta
    if FILES not in meta:
        meta[FILES] = open_files(meta.get(SETTINGS, {}))
    opened: Files = meta[FILES]
    return opened


def database() -> Database:
    """Return the database of the catalog. It prints a line before it waits for a lock."""
    db = files().database
    db.on_wait = lambda: print_status("The database is busy; waiting.")
    return db


def bundles() -> Bundles:
    """Return the bundles of the catalog. They print a line before they wait for a lock."""
    directory = files().bundles
    directory.on_wait = lambda: print_status(
        f"Another command writes to {directory.name}; waiting."
    )
    return directory


def print_status(message: str) -> None:
    """Print what happened to standard error, unless --quiet. Standard output is for data."""
    if not is_quiet():
        click.echo(message, err=True)


def print_first(sentences: Sequence[str], *, is_error: bool = False) -> None:
    """Print the first sentences, and how many more there are; errors also with --quiet."""
    more = len(sentences) - MAX_PROBLEMS
    lines = [*sentences[:MAX_PROBLEMS], *([f"There are {more} more."] if more > 0 else [])]
    for line in lines:
        if is_error or not is_quiet():
            click.echo(replace_unprintable(line), err=True)


def file_name(file: BinaryIO) -> str:
    """Return the name of an opened file for messages."""
    return str(getattr(file, "name", STDIN))


def print_latest(
    widget: object, before: str | None, after: str | None, *, dry_run: bool = False
) -> None:
    """Print which version of the widget is the latest now, if it is another one than before."""
    if after != before:
        verb = "would be" if dry_run else "is now"
        print_status(f"The latest version of {widget} {verb} {after or 'none'}.")


def confirm(question: str, yes: bool) -> None:
    """Return if --yes is given or the operator confirms; raise CommandError otherwise.

    Without a terminal it raises immediately, so that a script never hangs on the question.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError(f"{question} Standard input is not a terminal; use --yes to confirm.")
    if not click.confirm(question, err=True):
        raise CommandError("Nothing was changed.")


@contextmanager
def progress_bar(label: str, *, show_count: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that moves a progress bar.

    The bar is shown only on an interactive terminal.
    """
    if is_quiet() or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=0, label=label, show_pos=show_count, file=sys.stderr) as bar:

        def on_progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield on_progress


def format_counts(widgets: int, versions: int) -> str:
    """Return the numbers of widgets and versions, as words."""
    return f"{plural(widgets, 'widget')} and {plural(versions, 'version')}"


json_option = click.option("--json", "json_output", is_flag=True, help="Print JSON instead.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would change.")


class Content(click.File):
    """An option that names a file; its value is what the file contains, nothing for no name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value, param, ctx).read() if value else b""


CONTENT = Content("rb")
# Bytes of an argument that are not UTF-8 cannot be stored, so every text is validated.
TEXT = ValidatedType("text", check_text)
WIDGET = NameType("scope/name", parse_widget, files, end="")
VERSION = NameType("scope/name@version", parse_version, files, end="@")
WIDGET_OR_VERSION = NameType("scope/name or scope/name@version", parse_target, files, end="")
SDK = ValidatedType("version", parse_sdk)
