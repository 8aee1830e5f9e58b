"""Base of all commands: registration, access to the catalog, output, errors, argument types."""

import io
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from flask import Blueprint, Flask
from flask.cli import ScriptInfo

from ..changes import ChangeError, MissingWidgetError, WidgetName
from ..data_files import DataFileError
from ..documents import MAX_PROBLEMS, Document, DocumentError
from ..files.jsonl import CatalogFileError
from ..files.packs import PackError
from ..semver_ranges import is_version, parse_sdk
from ..server_option import server_options
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError
from ..store.read.suggestions import suggest_widgets
from ..text import plural, quoted
from ..validators import check_identifier, check_text
from .terminal import replace_unprintable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The name that Python gives to standard input.
STDIN = "<stdin>"
# Their messages are for the user of a command.
EXPECTED_ERRORS = (
    *(CatalogFileError, ChangeError, DataFileError, DatabaseError, DocumentError, PackError),
)
REMOTE_ADVICE = "; for the catalog of a service, use --server URL."
commands = Blueprint("commands", __name__, cli_group=None)


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
        if "server" in context.meta and not self.remote:
            raise click.UsageError(f"{self.name} works on the machine of the catalog only.")
        for stream in (sys.stdout, sys.stderr):
            # The encoding of a stream may not cover every character of the catalog.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(context)
        except BrokenPipeError:
            # The reader of a pipe has closed it: click exits without a message.
            raise
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            raise CommandError(f"{file}{error.strerror}.") from error
        except sqlite3.Error as error:
            raise CommandError(f"{database().name}: {error}.") from error
        except MissingWidgetError as error:
            raise CommandError(f"{error}{_suggest(error.widget)}") from error
        except EXPECTED_ERRORS as error:
            is_missing = isinstance(error, DatabaseError) and _has_no_file()
            advice = REMOTE_ADVICE if is_missing and self.remote else ""
            raise CommandError(f"{error}{advice}") from error


def _has_no_file() -> bool:
    """Return whether there is nothing at the path of the database, not even a directory."""
    try:
        return not database().exists()
    except DatabaseError:
        return False


def _suggest(widget: WidgetName) -> str:
    """Return a question with the name that may be meant, empty if no name is similar."""
    near = suggest_widgets(database().reader(), widget.name, scope=widget.scope, limit=1)
    return "".join(f" Did you mean {each.scope}/{each.name}?" for each in near)


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
        (group or commands.cli).add_command(new)
        return new

    return register


def command_group(name: str, summary: str) -> CommandGroup:
    """Register a group of commands under this name."""
    group = CommandGroup(name, help=summary)
    commands.cli.add_command(group)
    return group


def application() -> Flask:
    """Return the service whose catalog the command works on; it is loaded when first needed.

    A front end provides it as a flask.cli.ScriptInfo in the click context, as `flask` does.
    """
    return click.get_current_context().ensure_object(ScriptInfo).load_app()


def database() -> Database:
    """Return the database of the catalog. It prints a line before it waits for a lock."""
    db: Database = application().extensions["database"]
    db.on_wait = lambda: print_status("The database is busy; waiting.")
    return db


def bundles() -> Bundles:
    """Return the bundles of the catalog. They print a line before they wait for a lock."""
    directory: Bundles = application().extensions["bundles"]
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


def format_counts(documents: Sequence[Document]) -> str:
    """Return the numbers of widgets and versions in the documents, as words."""
    versions = sum(len(document.versions) for document in documents)
    return f"{plural(len(documents), 'widget')} and {plural(versions, 'version')}"


class WidgetNameType(click.ParamType):  # type: ignore[type-arg]
    """An argument of the form scope/name or scope/name@version."""

    def __init__(self, form: str, *, with_version: bool | None) -> None:
        """Require a version, allow none or, where with_version is None, take both forms."""
        self.name = form
        self.with_version = with_version

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> WidgetName:
        widget, at, version = str(value).rpartition("@")
        # A scope or a name may contain an @ too.
        is_name = "/" in version or widget.endswith("/")
        if is_name or (self.with_version is False and not is_version(version)):
            widget, at, version = str(value), "", ""
        scope, _, name = widget.partition("/")
        problem = f"{quoted(value)} is not of the form {self.name}"
        try:
            target = WidgetName(
                check_identifier(scope), check_identifier(name), version if at else None
            )
        except ValueError:
            self.fail(f"{problem}.", parameter, context)
        if self.with_version and not at:
            self.fail(f"{problem}; for all releases, use {target}@*.", parameter, context)
        if self.with_version is False and at:
            self.fail(f"{problem}.", parameter, context)
        return target

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Return the widgets or versions of the database that begin with the text."""
        # Only a shell that completes a line needs it.
        from .completion import complete_name

        return complete_name(context, incomplete, with_version=self.with_version)


class ValidatedType(click.ParamType):  # type: ignore[type-arg]
    """An argument that a function validates; its ValueError says what is allowed."""

    def __init__(self, name: str, validate: Callable[[str], Any]) -> None:
        self.name = name
        self.validate = validate

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        try:
            return self.validate(value)
        except ValueError as allowed:
            self.fail(f"{quoted(value)} is not {allowed}.", parameter, context)


json_option = click.option("--json", "json_output", is_flag=True, help="Print JSON instead.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would change.")


class Content(click.File):
    """An option that names a file; its value is what the file contains, nothing for no name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value, param, ctx).read() if value else b""


CONTENT = Content("rb")
# Bytes of an argument that are not UTF-8 cannot be stored, so every text is validated.
TEXT = ValidatedType("text", check_text)
WIDGET = WidgetNameType("scope/name", with_version=False)
VERSION = WidgetNameType("scope/name@version", with_version=True)
WIDGET_OR_VERSION = WidgetNameType("scope/name or scope/name@version", with_version=None)
SDK = ValidatedType("version", parse_sdk)
