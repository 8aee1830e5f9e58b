"""Files of an earlier release, brought to the schema of this one."""

import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from catalog.store.sqlite import (
    SCHEMA_VERSION,
    Connection,
    DatabaseError,
    connect,
    copy,
    schema_statements,
    schema_version,
)
from catalog.store.writes import add_ranges

# The tables that hold the catalog. The others are filled from them, nearly all by triggers.
KEPT = ("widget", "version", "mirrored", "deleted_version")

logger = logging.getLogger(__name__)


def upgrade(connection: Connection, path: Path) -> None:
    """Bring the file that is open to this release's schema, or leave it exactly as it was.

    It is copied first, to a file beside it.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")  # nothing may be written after the copy
        version = schema_version(connection)
        if version == SCHEMA_VERSION:
            return  # another process was faster
        before = path.with_name(f"{path.name}.schema-{version}")
        # By another connection: SQLite would wait for the end of this one's transaction.
        with closing(connect(path, "mode=ro")) as reading:
            copy(reading, before)
        rebuild(connection)
        connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatabaseError(f"{path} cannot be upgraded, and is as it was: {reason}.") from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    logger.warning(
        "Upgraded %s to schema version %s; as it was, it is %s.", path, SCHEMA_VERSION, before
    )


OLD_OBJECTS = """
SELECT type, name FROM sqlite_schema
WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
ORDER BY type <> 'trigger', type <> 'view', type <> 'index', sql NOT LIKE 'CREATE VIRTUAL%'
"""


def rebuild(connection: sqlite3.Connection) -> None:
    """Make every table anew, and put in what the old ones held, column by column."""
    objects = connection.execute(OLD_OBJECTS).fetchall()
    kept = [table for table in KEPT if ("table", table) in map(tuple, objects)]
    for kind, name in objects:
        if name in kept:
            connection.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
        else:  # with a text index, its own tables go too
            connection.execute(f"DROP {kind} IF EXISTS {name}")
    for statement, _ in schema_statements():
        connection.execute(statement)
    for table in kept:
        if table == "version":
            _add_ranges(connection)
        shared = ", ".join(_columns(connection, f"old_{table}") & _columns(connection, table))
        connection.execute(f"INSERT INTO {table} ({shared}) SELECT {shared} FROM old_{table}")
        connection.execute(KEEP_SEQUENCE, {"table": table})
    for table in reversed(kept):
        connection.execute(f"DROP TABLE old_{table}")
    begin_history(connection)


def _add_ranges(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT DISTINCT sdk_version FROM old_version").fetchall()
    connection.execute(*add_ranges(range_ for (range_,) in rows))


def begin_history(connection: sqlite3.Connection) -> None:
    """Set a revision that no answer was ever made at: what is kept is of another history."""
    now = {"now": time.time_ns()}
    connection.execute("UPDATE revision SET content = :now, downloads = :now", now)


# The id of what was deleted must not come again.
KEEP_SEQUENCE = """
UPDATE sqlite_sequence
SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'old_' || :table) WHERE name = :table
"""


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(:table)", {"table": table})
    return {name for (name,) in rows}
