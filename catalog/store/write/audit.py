"""The record of changes: who makes them, and how it is read. Transaction.record() writes it."""

import json
import os
import pwd
import sqlite3
from collections.abc import Sequence

from ...documents import Json, Row
from ...semver_ranges import MAX_SAFE_INTEGER
from ..connection.transaction import Actor


def local_actor() -> Actor:
    """Return the person who runs the command: who called sudo, else the operating-system user.

    deploy/widget-catalog runs commands as the user of the service, and keeps this variable. Who
    could set it to another name may write to the database anyway.
    """
    if name := os.environ.get("SUDO_USER"):
        return Actor("local", name)
    user = os.getuid()
    try:
        return Actor("local", pwd.getpwuid(user).pw_name)
    except KeyError:
        # In a container, a user id may have no name.
        return Actor("local", str(user))


_ENTRIES = """
SELECT id, at, kind, actor, action, scope, name, version, before, after FROM audit
WHERE id < :before AND at >= :since {condition} ORDER BY id DESC LIMIT :limit
"""
ALL_ENTRIES = _ENTRIES.format(condition="")
WIDGET_ENTRIES = _ENTRIES.format(condition="AND scope = :scope AND name = :name")
SCOPE_ENTRIES = _ENTRIES.format(condition="AND scope IN (SELECT value FROM json_each(:scopes))")


def read_entries(
    connection: sqlite3.Connection,
    widget: tuple[str, str] | None = None,
    scopes: Sequence[str] | None = None,
    *,
    since: str = "",
    before: int = MAX_SAFE_INTEGER,
    limit: int = -1,
) -> list[Json]:
    """Return the recorded changes, the newest first; `before` is the id of an entry.

    They are those of a widget, or of all in some scopes, or all.
    """
    scope, name = widget or (None, None)
    values: Row = {"since": since, "before": before, "limit": limit, "scope": scope, "name": name}
    if widget is not None:
        statement = WIDGET_ENTRIES
    else:
        statement = ALL_ENTRIES if scopes is None else SCOPE_ENTRIES
    rows = connection.execute(statement, {**values, "scopes": json.dumps(scopes)})
    return [_entry(row) for row in rows]


def _entry(row: sqlite3.Row) -> Json:
    states = {key: row[key] and json.loads(row[key]) for key in ("before", "after")}
    return {**row, **states}
