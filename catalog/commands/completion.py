"""Shell completion for the widgets and versions in the database."""

import sqlite3
from contextlib import closing

import click
from click.shell_completion import CompletionItem

from ..domain.changes import WidgetName
from ..settings import SettingError
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError
from ..store.read.lookup import find_versions
from ..store.read.widget_list import find_names
from .context import files
from .server_option import named_server
from .terminal import replace_unprintable

MAX_ITEMS = 200


def complete_name(context: click.Context, incomplete: str, end: str) -> list[CompletionItem]:
    """Return the widgets or versions that begin with the input; [] if there is no database.

    If end is @, the shell does not add a space where a version must follow.
    """
    try:
        if named_server(context):
            # Completion never sends requests to a service.
            return []
        with context, closing(files().database) as database:
            return _find_items(database, incomplete, end)
    except (click.ClickException, DatabaseError, SettingError, sqlite3.Error):
        return []


def _find_items(database: Database, incomplete: str, end: str) -> list[CompletionItem]:
    with database.read() as connection:
        names = find_names(connection, incomplete, MAX_ITEMS)
        widget = incomplete.rpartition("@")[0]
        if end and len(names) == 1:
            (widget,) = [row["path"] for row in names]
        if widget:
            scope, _, name = widget.partition("/")
            rows = find_versions(database.fetch, WidgetName(scope, name))
            items = [f"{widget}@{row['version']}" for row in rows]
            if found := [item for item in items if item.startswith(incomplete)]:
                return list(map(CompletionItem, found))
    return [
        CompletionItem(row["path"] + end, help=replace_unprintable(row["display_name"]))
        for row in names
    ]
