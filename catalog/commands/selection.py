"""The options that select widgets, for mirror, pack and export."""

import functools
import json
import sqlite3
from collections.abc import Callable, Collection
from typing import Any

import click

from ..store.read.selection import Selection, find_selected
from ..store.write.lookup import WidgetName
from ..validators import check_identifier
from .base import SDK, WIDGET, CommandError, ValidatedType, print_status
from .terminal import replace_unprintable


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, whose function gets them as one argument, selection."""

    @click.option(
        "--scope",
        "scopes",
        type=ValidatedType("scope", check_identifier),
        multiple=True,
        help="Only widgets of this scope; may be repeated.",
    )
    @click.option(
        "--widget", "widgets", type=WIDGET, multiple=True, help="Only this one; may be repeated."
    )
    @click.option("--official", is_flag=True, help="Only official widgets.")
    @click.option(
        "--sdk",
        "sdks",
        type=SDK,
        multiple=True,
        help="Only widgets with a version for this SDK; may be repeated.",
    )
    @functools.wraps(function)
    def with_selection(
        *arguments: Any,
        scopes: tuple[str, ...],
        widgets: tuple[WidgetName, ...],
        official: bool,
        sdks: tuple[str, ...],
        **options: Any,
    ) -> None:
        names = tuple(dict.fromkeys(map(str, widgets)))
        unique = tuple(dict.fromkeys(scopes)), names, official, tuple(dict.fromkeys(sdks))
        function(*arguments, selection=Selection(*unique), **options)

    return with_selection


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
