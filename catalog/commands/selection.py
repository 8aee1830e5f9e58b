"""The options that select widgets, for mirror, pack and export."""

import json
import sqlite3
from collections.abc import Callable, Collection

import click

from ..store.read.selection import Selection, find_selected
from ..validators import check_identifier
from .base import SDK, WIDGET, CommandError, print_status
from .names import ValidatedType
from .terminal import replace_unprintable

# Their names are those of the fields of a Selection.
OPTIONS = [
    click.option(
        "--scope",
        "scopes",
        type=ValidatedType("scope", check_identifier),
        multiple=True,
        help="Only widgets of this scope; may be repeated.",
    ),
    click.option(
        "--widget",
        "widgets",
        type=WIDGET,
        multiple=True,
        callback=lambda _, option, widgets: tuple(map(str, widgets)),
        help="Only this one; may be repeated.",
    ),
    click.option("--official", is_flag=True, help="Only official widgets."),
    click.option(
        "--sdk",
        "sdks",
        type=SDK,
        multiple=True,
        help="Only widgets with a version for this SDK; may be repeated.",
    ),
]


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command; its function gets them as the fields of a Selection."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def warn_of_unmatched(selection: Selection, paths: Collection[str]) -> None:
    """Print the options that match none of these widgets."""
    for option in selection.unmatched(paths):
        print_status(f"Warning: {replace_unprintable(option)} matches no widget.")


def select_widgets(connection: sqlite3.Connection, selection: Selection) -> str | None:
    """Return the selected widgets of the catalog as IS_SELECTED needs them."""
    paths = find_selected(connection, selection)
    if paths is None:
        return None
    warn_of_unmatched(selection, paths)
    if not paths:
        raise CommandError("No widget is selected.")
    return json.dumps(paths)
