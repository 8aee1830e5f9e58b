"""A transaction on a cluster, which collects the statements to send."""

import json
import re
import sqlite3
from collections.abc import Iterable

from ...schema.schema import Statement
from ..transaction import Actor, Transaction, Values

PARAMETER = re.compile(r":(\w+)")
ROW = re.compile(r"VALUES \((.+?)\)\n", re.DOTALL)


class CollectedTransaction(Transaction):
    """A transaction that reads from the local file and collects the statements to send."""

    def __init__(self, connection: sqlite3.Connection, actor: Actor | None = None) -> None:
        super().__init__(connection, actor)
        self.statements: list[Statement] = []

    def read(self, sql: str, values: Values | None = None) -> list[sqlite3.Row]:
        """Run a statement and return its rows."""
        if self.statements:
            raise RuntimeError("A transaction must not read after it has written.")
        return super().read(sql, values)

    def execute_many(self, sql: str, rows: Iterable[Values]) -> None:
        """Collect one statement per row, or a single INSERT with all rows.

        rqlite compiles each statement with its triggers, which takes longer than inserting a row.
        """
        self._is_changed = True
        rows = list(rows)
        if len(rows) > 1 and ROW.search(sql):
            sql = PARAMETER.sub(r"json_extract(value, '$.\1')", sql)
            sql = ROW.sub(r"SELECT \1 FROM json_each(:rows) WHERE true\n", sql)
            rows = [{"rows": json.dumps(rows, ensure_ascii=False)}]
        self.statements += [(sql, values) for values in rows]
