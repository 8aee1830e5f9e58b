"""The record of changes: who changed what, written in the same transaction as the change."""

import json
import os
import pwd
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from catalog.documents import Json, Row
from catalog.semver_ranges import MAX_SAFE_INTEGER
from catalog.store.connection.sqlite import Statement
from catalog.validators import format_timestamp


class Actor(NamedTuple):
    """Who changes the catalog: the user of a command, or the holder of a token."""

    # local or token.
    kind: str
    name: str


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


def now() -> str:
    """Return the current time as it is stored."""
    return format_timestamp(datetime.now(UTC))


# A change of what was read before fails if another process has changed that meanwhile. It is tried
# again this often: in a cluster, the local file may stay behind.
MAX_ATTEMPTS = 10

# A statement that records a change begins with this. The rest selects scope, name, version, before
# and after of what will change, so it stands before the statement that changes it.
RECORD = """
INSERT INTO audit (at, kind, actor, action, scope, name, version, before, after)
SELECT :at, :kind, :actor, :action,
"""


def record(sql: str, actor: Actor, action: str, **values: object) -> Statement:
    """Return the statement that records a change, with its parameters; sql begins with RECORD."""
    return sql, {"at": now(), "kind": actor.kind, "actor": actor.name, "action": action, **values}


RECORD_VALUES = f"{RECORD} :scope, :name, :version, :before, :after"


def record_values(
    actor: Actor,
    action: str,
    target: tuple[str, str, str | None] | None = None,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> Statement:
    """Record a change whose values are known: of a version, or of the whole catalog."""
    scope, name, version = target or (None, None, None)
    texts = {"before": json_text(before), "after": json_text(after)}
    return record(RECORD_VALUES, actor, action, scope=scope, name=name, version=version, **texts)


def json_text(value: Mapping[str, object] | None) -> str | None:
    """Return a state as it is stored."""
    return None if value is None else json.dumps(value, ensure_ascii=False)


_ENTRIES = """
SELECT id, at, kind, actor, action, scope, name, version, before, after FROM audit
WHERE id < :before AND at >= :since {condition} ORDER BY id DESC LIMIT :limit
"""
ALL_ENTRIES = _ENTRIES.format(condition="")
WIDGET_ENTRIES = _ENTRIES.format(condition="AND scope = :scope AND name = :name")


def read_entries(
    connection: sqlite3.Connection,
    widget: tuple[str, str] | None = None,
    *,
    since: str = "",
    before: int = MAX_SAFE_INTEGER,
    limit: int = -1,
) -> list[Json]:
    """Return the recorded changes, the newest first; `before` is the id of an entry."""
    values: Row = {"since": since, "before": before, "limit": limit}
    if widget is None:
        rows = connection.execute(ALL_ENTRIES, values)
    else:
        scope, name = widget
        rows = connection.execute(WIDGET_ENTRIES, {**values, "scope": scope, "name": name})
    return [_entry(row) for row in rows]


def _entry(row: sqlite3.Row) -> Json:
    states = {key: row[key] and json.loads(row[key]) for key in ("before", "after")}
    return {**row, **states}
