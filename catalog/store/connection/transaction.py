"""A transaction, which reads, decides, writes and records its changes, in this order.

`Database.transact()` calls a function with a Transaction. On a cluster, reads use the local file
and writes are sent afterwards, so no read may follow a write, and the function may run again. It
must base its decisions on what it has read, never on how many rows a statement has changed.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...domain.timestamps import now
from ..schema.derived import REFRESH, raise_if_too_large
from .sqlite import fetch_all

Values = Mapping[str, object]


class Actor(NamedTuple):
    """Who changes the catalog: the user running a command, a token's holder, or a trusted job."""

    # One of "local", "token" and "trust".
    kind: str
    name: str


RECORD = """
INSERT INTO audit (at, kind, actor, action, scope, name, version, before, after)
VALUES (:at, :kind, :actor, :action, :scope, :name, :version, :before, :after)
"""


class Transaction:
    """The reads and writes of one change to the catalog."""

    def __init__(self, connection: sqlite3.Connection, actor: Actor | None = None) -> None:
        self._connection = connection
        self._actor = actor
        self._entries: list[Values] = []
        self._is_changed = False

    def read(self, sql: str, values: Values | None = None) -> list[sqlite3.Row]:
        """Run a statement and return its rows."""
        return fetch_all(self._connection, sql, values or {})

    def execute(self, sql: str, values: Values | None = None) -> None:
        """Run a statement that writes."""
        self.execute_many(sql, [values or {}])

    def execute_many(self, sql: str, rows: Iterable[Values]) -> None:
        """Run a statement that writes, once for each row.

        A cluster inserts all rows with one INSERT if a line break follows its VALUES list.
        """
        self._is_changed = True
        self._connection.executemany(sql, rows)

    def note(self, sql: str, values: Values) -> None:
        """Run a statement that affects no response, so that cached responses stay valid."""
        was_changed = self._is_changed
        self.execute(sql, values)
        self._is_changed = was_changed

    def record(
        self,
        action: str,
        target: tuple[str, str, str | None] | None = None,
        *,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        """Add an audit log entry for the target, or for the whole catalog if there is no target."""
        if self._actor is None:
            raise ValueError("A recorded change needs an actor.")
        scope, name, version = target or (None, None, None)
        entry = {"at": now(), "kind": self._actor.kind, "actor": self._actor.name}
        names = {"action": action, "scope": scope, "name": name, "version": version}
        states = {"before": _json_text(before), "after": _json_text(after)}
        self._entries.append({**entry, **names, **states})

    def finish(self) -> None:
        """Write the audit log entries and the derived rows."""
        if self._entries:
            self.execute_many(RECORD, self._entries)
            self._entries = []
        if not self._is_changed:
            return
        try:
            for sql in REFRESH:
                self.execute(sql)
        except sqlite3.OperationalError as error:
            raise_if_too_large(str(error))
            raise


def _json_text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
