"""The record of changes: who changed what, written in the same transaction as the change."""

import json
import os
import pwd
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from catalog.documents import Json
from catalog.store.sqlite import Statement
from catalog.validators import format_timestamp


class Actor(NamedTuple):
    """Who changes the catalog: the user of a command, or the holder of a token."""

    # local or token.
    kind: str
    name: str


def local_actor() -> Actor:
    """Return the operating-system user who runs the command: the real one, see callers.py."""
    user = os.getuid()
    try:
        return Actor("local", pwd.getpwuid(user).pw_name)
    except KeyError:
        # In a container, a user id may have no name.
        return Actor("local", str(user))


def now() -> str:
    """Return the current time as it is stored."""
    return format_timestamp(datetime.now(UTC))


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
    texts = {"before": _json_text(before), "after": _json_text(after)}
    return record(RECORD_VALUES, actor, action, scope=scope, name=name, version=version, **texts)


def _json_text(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


# The newest first.
ENTRIES = """
SELECT id, at, kind, actor, action, scope, name, version, before, after FROM audit
WHERE (:scope IS NULL OR (scope, name) = (:scope, :name))
  AND (:since IS NULL OR at >= :since) AND (:before IS NULL OR id < :before)
ORDER BY id DESC LIMIT :limit
"""


def read_entries(
    connection: sqlite3.Connection,
    widget: tuple[str, str] | None = None,
    *,
    since: str | None = None,
    before: int | None = None,
    limit: int = -1,
) -> list[Json]:
    """Return the recorded changes, the newest first; `before` is the id of an entry."""
    scope, name = widget or (None, None)
    values = {"scope": scope, "name": name, "since": since, "before": before, "limit": limit}
    return [_entry(row) for row in connection.execute(ENTRIES, values)]


def _entry(row: sqlite3.Row) -> Json:
    states = {key: row[key] and json.loads(row[key]) for key in ("before", "after")}
    return {**row, **states}
