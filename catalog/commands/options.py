"""Options and arguments that several commands share, and the types of their values."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ..domain.changes import parse_target, parse_version, parse_widget
from ..domain.messages import NotAllowedError, quoted
from ..domain.semver_ranges import parse_sdk
from ..domain.timestamps import format_timestamp, parse_time
from ..domain.validators import check_identifier, check_text
from ..store.read.selection import Selection, find_selected
from .output import CommandError, print_status
from .terminal import replace_unprintable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

json_option = click.option("--json", "json_output", is_flag=True, help="Print JSON instead.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would change.")


class ValidatedType(click.ParamType):  # type: ignore[type-arg]
    """A value that a function validates and converts."""

    def __init__(self, name: str, validate: Callable[[str], Any]) -> None:
        self.name = name
        self.validate = validate

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        try:
            return self.validate(value)
        except NotAllowedError as error:
            self.fail(f"{quoted(value)} is not {error}.", parameter, context)


class NameType(ValidatedType):
    """A widget or version name, which a shell can complete."""

    def __init__(self, name: str, validate: Callable[[str], Any], end: str) -> None:
        """Create the type; shell completion appends end, such as @, to a widget's name."""
        super().__init__(name, validate)
        self.end = end

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Return the widgets or versions in the database that begin with the input."""
        # This import is local because only shell completion needs it.
        from .completion import complete_name

        return complete_name(context, incomplete, self.end)


class ListType(click.ParamType):  # type: ignore[type-arg]
    """A comma-separated list of values of another type."""

    def __init__(self, item: click.ParamType) -> None:  # type: ignore[type-arg]
        self.item = item
        self.name = item.name

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        # A widget name may contain a comma, so split only before another scope/name.
        comma = ",(?=[^,]*/)" if self.item is WIDGET_PATH else ","
        return [self.item.convert(part, parameter, context) for part in re.split(comma, value)]

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        return self.item.shell_complete(context, parameter, incomplete)


def list_option(
    *names: str,
    type: click.ParamType,  # type: ignore[type-arg]
    help: str,
    **keywords: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option whose values can be separated by commas or given by repeating the option."""
    return click.option(
        *names,
        type=ListType(type),
        multiple=True,
        callback=lambda _, option, lists: tuple(dict.fromkeys(chain.from_iterable(lists))),
        help=f"{help} Repeatable, or comma-separated.",
        **keywords,
    )


class Content(click.File):
    """A file name, which is converted to the content of the file; "" becomes empty bytes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value, param, ctx).read() if value else b""


CONTENT = Content("rb")
# Arguments may contain bytes that are not UTF-8 and cannot be stored, so strings are validated.
TEXT = ValidatedType("text", check_text)
WIDGET = NameType("scope/name", parse_widget, end="")
WIDGET_PATH = NameType("scope/name", lambda text: str(parse_widget(text)), end="")
SCOPE = ValidatedType("scope", check_identifier)
VERSION = NameType("scope/name@version", parse_version, end="@")
WIDGET_OR_VERSION = NameType("scope/name or scope/name@version", parse_target, end="")
SDK = ValidatedType("version", parse_sdk)

# Units of time, by abbreviation.
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
MAX_DURATION = timedelta(days=100 * 366)
NEVER = "never"


def parse_age(text: str, units: str = "hd") -> str:
    """Return an age if it is a number with an allowed unit; raise NotAllowedError otherwise."""
    match = re.fullmatch(f"[1-9][0-9]{{0,6}}[{units}]", text)
    if not (match and int(text[:-1]) * UNITS[text[-1]] <= MAX_DURATION):
        allowed = "days or hours, such as 90d or 12h"
        if "m" in units:
            allowed = "hours or minutes, such as 1h or 15m"
        raise NotAllowedError(f"a number of {allowed}")
    return text


def parse_before(text: str) -> str:
    """Return the timestamp for a date, time or age; raise NotAllowedError if it is invalid."""
    try:
        if text.endswith(("h", "d")):
            return format_timestamp(datetime.now(UTC) - duration(parse_age(text)))
        return parse_time(text)
    except ValueError:
        raise NotAllowedError("an age such as 7d or 12h, or a date such as 2026-11-30") from None


def parse_lifetime(text: str) -> str:
    """Return a lifetime if it is an age or NEVER; raise NotAllowedError otherwise."""
    try:
        return text if text == NEVER else parse_age(text)
    except NotAllowedError as error:
        raise NotAllowedError(f"{error}, or {NEVER}") from None


def lifetime(text: str) -> timedelta | None:
    """Return the duration of a validated age or lifetime; None if it is NEVER."""
    return None if text == NEVER else duration(text)


def duration(age: str) -> timedelta:
    """Return the duration of a validated age."""
    return int(age[:-1]) * UNITS[age[-1]]


# Each option is named after a field of Selection.
SELECTION_OPTIONS = [
    list_option("--scope", "scopes", type=SCOPE, help="Select the widgets of this scope."),
    list_option("--widget", "widgets", type=WIDGET_PATH, help="Select this widget."),
    list_option("--sdk", "sdks", type=SDK, help="Select only widgets with a version for this SDK."),
]


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select widgets; their values are the fields of a Selection."""
    for option in reversed(SELECTION_OPTIONS):
        function = option(function)
    return function


def warn_of_unmatched(options: Iterable[str]) -> None:
    """Print a warning for each of these options, which match no widget."""
    for option in options:
        print_status(f"Warning: {replace_unprintable(option)} matches no widget.")


def select_widgets(connection: sqlite3.Connection, selection: Selection) -> str | None:
    """Return the selected widgets as JSON for IS_SELECTED; None if all are selected."""
    paths = find_selected(connection, selection)
    if paths is None:
        return None
    warn_of_unmatched(selection.unmatched(paths))
    if not paths:
        raise CommandError("No widget is selected.")
    return json.dumps(paths)
