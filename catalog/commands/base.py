"""What every command shares: how it is registered, how it talks, how it refuses."""

import io
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

import click
from flask import Blueprint, current_app

from catalog.documents import Document, DocumentError
from catalog.files.jsonl import CatalogFileError
from catalog.files.packs import PackError
from catalog.semver_ranges import is_version
from catalog.store.bundles import Bundles
from catalog.store.database import Database
from catalog.store.sqlite import DatabaseError
from catalog.text import plural, quoted
from catalog.validators import check_identifier, check_text

T = TypeVar("T")

commands = Blueprint("commands", __name__, cli_group=None)


class CommandError(click.ClickException):
    """What was asked cannot be done, and the sentence says why; exit code 1."""


class Command(click.Command):
    """A command with --quiet that refuses in a sentence, never with a traceback."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        quiet = click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_remember_quiet,
            help="Say nothing but errors.",
        )
        self.params.append(quiet)

    def invoke(self, context: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # whose encoding may know few scripts
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise  # whoever read the output has had enough
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            raise CommandError(f"{file}{error.strerror}.") from error
        except (DatabaseError, CatalogFileError, DocumentError, PackError, sqlite3.Error) as error:
            raise CommandError(str(error)) from error


def _remember_quiet(context: click.Context, option: click.Parameter, quiet: bool) -> None:
    context.meta["quiet"] = quiet


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Register a function as flask NAME."""
    return commands.cli.command(name, cls=Command)


def database() -> Database:
    """The database of the settings; says so when it must wait for another writer."""
    opened: Database = current_app.extensions["database"]
    opened.on_wait = lambda: say("The database is busy; waiting.")
    return opened


def bundles() -> Bundles:
    """The bundles of the settings; says so when it must wait for another command."""
    held: Bundles = current_app.extensions["bundles"]
    held.on_wait = lambda: say(f"Another command writes to {held.name}; waiting.")
    return held


def say(message: str) -> None:
    """Tell the operator what happened. Data goes to standard output, this does not."""
    if not click.get_current_context().meta.get("quiet"):
        click.echo(message, err=True)


def confirm(question: str, yes: bool) -> None:
    """Go on only with --yes or the operator's own yes; a script is never left waiting."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError(f"{question} There is no terminal to answer at; give --yes to go on.")
    if not click.confirm(question, err=True):
        raise CommandError("Nothing was changed.")


def progress(items: list[T], label: str = "Writing") -> AbstractContextManager[Iterable[T]]:
    """The items, with a bar that follows them where a person watches."""
    return click.progressbar(items, label=label, file=sys.stderr, hidden=not is_interactive())


def is_interactive() -> bool:
    """Whether a person sees what a command says while it works."""
    quiet = click.get_current_context().meta.get("quiet")
    return sys.stderr is not None and sys.stderr.isatty() and not quiet


def count_text(documents: Sequence[Document]) -> str:
    """How many widgets and versions the documents hold, in words."""
    versions = sum(len(document.versions) for document in documents)
    return f"{plural(len(documents), 'widget')} and {plural(versions, 'version')}"


class WidgetName(NamedTuple):
    """A widget, or with a version or range behind @ some of its versions."""

    scope: str
    name: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}" + ("" if self.version is None else f"@{self.version}")


class NameType(click.ParamType):  # type: ignore[type-arg]
    """An argument of the form scope/name, or scope/name@version."""

    def __init__(self, form: str, *, version: bool | None) -> None:
        self.name = form
        self.version = version  # None: with or without

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> WidgetName:
        widget, at, version = str(value).rpartition("@")
        # A scope or name may hold an @ of its own.
        is_name = "/" in version or widget.endswith("/")
        if is_name or (self.version is False and not is_version(version)):
            widget, at, version = str(value), "", ""
        scope, _, name = widget.partition("/")
        try:
            if self.version not in (None, bool(at)):
                raise ValueError
            return WidgetName(
                check_identifier(scope), check_identifier(name), version if at else None
            )
        except ValueError:
            self.fail(f"{quoted(value)} is not of the form {self.name}.", parameter, context)


class TextType(click.ParamType):  # type: ignore[type-arg]
    """Text that the catalog can hold; a shell can hand over bytes that are none."""

    name = "text"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> str:
        try:
            return check_text(value)
        except ValueError as allowed:
            self.fail(f"{quoted(value)} is not {allowed}.", parameter, context)


TEXT = TextType()
WIDGET = NameType("scope/name", version=False)
VERSION = NameType("scope/name@version", version=True)
WIDGET_OR_VERSION = NameType("scope/name or scope/name@version", version=None)
