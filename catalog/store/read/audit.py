"""Reads the audit log, which Transaction.record() writes; finds out who is running a command."""

import json
import os
import pwd
import sqlite3

from ...domain.documents import Json, Row
from ...domain.permissions import Access
from ...domain.semver_ranges import MAX_SAFE_INTEGER
from ..connection.sqlite import fetch_all
from ..connection.transaction import Actor


def local_actor() -> Actor:
    """Return the person running the command: the user who called sudo, else the current user.

    deploy/widget-catalog runs commands as the service's user, and preserves SUDO_USER. Anyone who
    could forge this variable can write to the database anyway.
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
# Scopes and names contain no slash, so scope/name is unambiguous.
TOKEN_ENTRIES = _ENTRIES.format(
    condition="""AND (scope IN (SELECT value FROM json_each(:scopes))
        OR scope || '/' || name IN (SELECT value FROM json_each(:widgets)))"""
)


def read_entries(
    connection: sqlite3.Connection,
    widget: tuple[str, str] | None = None,
    access: Access | None = None,
    *,
    since: str = "",
    before: int = MAX_SAFE_INTEGER,
    limit: int = -1,
) -> list[Json]:
    """Return the audit log entries with an id below `before`, newest first.

    Without a widget, return all entries that the access allows; if it is None, return all entries.
    """
    scope, name = widget or (None, None)
    values: Row = {"since": since, "before": before, "limit": limit, "scope": scope, "name": name}
    if widget is not None:
        statement = WIDGET_ENTRIES
    elif access is None or access.is_admin:
        statement = ALL_ENTRIES
    else:
        statement = TOKEN_ENTRIES
        values |= {"scopes": json.dumps(access.scopes), "widgets": json.dumps(access.widgets)}
    rows = fetch_all(connection, statement, values)
    return [_entry(row) for row in rows]


def _entry(row: sqlite3.Row) -> Json:
    states = {key: row[key] and json.loads(row[key]) for key in ("before", "after")}
    return {**row, **states}
