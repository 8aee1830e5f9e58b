"""Migration of a file of an earlier release to the schema of this one."""

import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from catalog.store.connection.sqlite import Connection, DatabaseError, connect, copy_to_file
from catalog.store.schema.schema import SCHEMA_VERSION, schema_statements, schema_version
from catalog.store.write.writes import add_ranges

# The tables whose rows are copied. Triggers derive the others, except sdk_range: _add_ranges().
COPIED_TABLES = (
    *("widget", "version", "mirrored", "mirror_position", "deleted_version"),
    *("token", "audit"),
)

logger = logging.getLogger(__name__)


def migrate(connection: Connection, path: Path) -> None:
    """Migrate the file to this release's schema, after copying it; on failure, change nothing."""
    try:
        # Lock the file first: nothing may be written after the copy.
        connection.execute("BEGIN IMMEDIATE")
        version = schema_version(connection)
        if version == SCHEMA_VERSION:
            # Another process has migrated it.
            return
        copy = path.with_name(f"{path.name}.schema-{version}")
        # Through another connection: backup() would wait for the transaction of this one.
        with closing(connect(path, "mode=ro")) as reader:
            copy_to_file(reader, copy)
        rebuild_tables(connection)
        connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatabaseError(f"{path} cannot be migrated and is unchanged: {reason}.") from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    logger.warning(
        "Migrated %s from schema version %s to %s. The old file was copied to %s.",
        *(path, version, SCHEMA_VERSION, copy),
    )


SCHEMA_OBJECTS = """
SELECT type, name FROM sqlite_schema
WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
ORDER BY type <> 'trigger', type <> 'view', type <> 'index', sql NOT LIKE 'CREATE VIRTUAL%'
"""


# The id of a deleted row must not be used again.
COPY_SEQUENCE = """
UPDATE sqlite_sequence
SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'old_' || :table) WHERE name = :table
"""


def rebuild_tables(connection: sqlite3.Connection) -> None:
    """Create every table of the current schema, and copy the rows of the old tables into them."""
    objects = connection.execute(SCHEMA_OBJECTS).fetchall()
    copied = [table for table in COPIED_TABLES if ("table", table) in map(tuple, objects)]
    for kind, name in objects:
        if name in copied:
            connection.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
        else:
            # Dropping a full-text index drops its own tables too, so they may be gone.
            connection.execute(f"DROP {kind} IF EXISTS {name}")
    for statement, _ in schema_statements():
        connection.execute(statement)
    for table in copied:
        if table == "version":
            _add_ranges(connection)
        columns = ", ".join(_columns(connection, f"old_{table}") & _columns(connection, table))
        connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM old_{table}")
        connection.execute(COPY_SEQUENCE, {"table": table})
    for table in reversed(copied):
        connection.execute(f"DROP TABLE old_{table}")
    set_new_revision(connection)


def _add_ranges(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT DISTINCT sdk_version FROM old_version").fetchall()
    connection.execute(*add_ranges(range_ for (range_,) in rows))


SET_NEW_REVISION = """
UPDATE revision SET content = :now, downloads = :now, history = lower(hex(randomblob(8)))
"""


def set_new_revision(connection: sqlite3.Connection) -> None:
    """Set a revision and a history that were never used.

    So no cached response is taken for a current one, and no token of a client for a valid one.
    """
    connection.execute(SET_NEW_REVISION, {"now": time.time_ns()})


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(:table)", {"table": table})
    return {name for (name,) in rows}
