"""Shell completion of widgets and versions from the database."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import click
from click.shell_completion import CompletionItem

from ..opening import Files
from ..server_option import named_server
from ..settings import SettingError
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError
from ..store.read import json_sql
from .terminal import replace_unprintable

MAX_ITEMS = 200

FIND_NAMES = """
SELECT scope || '/' || name AS path, display_name FROM widget
WHERE substr(scope || '/' || name, 1, length(:prefix)) = :prefix
ORDER BY scope, name LIMIT :limit
"""

FIND_VERSION_NAMES = f"""
SELECT scope || '/' || name || '@' || version AS path FROM version
JOIN widget ON widget.id = widget_id
WHERE scope || '/' || name = :widget
ORDER BY {json_sql.NEWEST_FIRST}
"""


def complete_name(
    files: Callable[[], Files], context: click.Context, incomplete: str, end: str
) -> list[CompletionItem]:
    """Return the widgets or versions that begin with the text; none if there is no database.

    The end @ keeps the shell from adding a space where a version must follow.
    """
    try:
        if named_server(context):
            # The catalog of a service cannot be listed.
            return []
        with context, closing(files().database) as database:
            return _find_items(database, incomplete, end)
    except (click.ClickException, DatabaseError, SettingError, sqlite3.Error):
        return []


def _find_items(database: Database, incomplete: str, end: str) -> list[CompletionItem]:
    with database.read() as connection:
        values = {"prefix": incomplete, "limit": MAX_ITEMS}
        names = connection.execute(FIND_NAMES, values).fetchall()
        widget = incomplete.rpartition("@")[0]
        if end and len(names) == 1:
            (widget,) = [row["path"] for row in names]
        if widget:
            versions = connection.execute(FIND_VERSION_NAMES, {"widget": widget}).fetchall()
            items = [row["path"] for row in versions]
            if items := [item for item in items if item.startswith(incomplete)]:
                return [CompletionItem(item) for item in items]
    return [
        CompletionItem(row["path"] + end, help=replace_unprintable(row["display_name"]))
        for row in names
    ]
