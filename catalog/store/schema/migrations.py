"""The content of another file: of an earlier release, which is migrated, or of a backup."""

import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from catalog.store.connection.sqlite import Connection, DatabaseError, connect, copy_to_file
from catalog.store.connection.transaction import Actor, Transaction
from catalog.store.schema.derived import REFRESH, add_ranges
from catalog.store.schema.schema import SCHEMA_VERSION, schema_statements, schema_version

# The tables whose rows are copied. The others are derived: see REFRESH and _add_ranges().
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
UPDATE sqlite_sequence AS new SET seq = old.seq FROM sqlite_sequence AS old
WHERE new.name = :table AND old.name = 'old_' || :table
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
    for statement, values in REFRESH:
        connection.execute(statement, values)
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


# A database that has tokens or a record keeps them: no restore makes a revoked token valid again.
KEPT_TABLES = ("token", "audit")
# In the order of their creation: parents come before children. The text index has its own tables.
TABLES = """
SELECT name FROM main.sqlite_schema
WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'
    AND name NOT LIKE 'listing_text!_%' ESCAPE '!' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
ORDER BY rowid
"""
_TRIGGERS = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name"
TRIGGERS, AUDIT_TRIGGERS = f"{_TRIGGERS} <> 'audit'", f"{_TRIGGERS} = 'audit'"
RAISE_SEQUENCES = """
UPDATE main.sqlite_sequence AS own SET seq = max(seq, coalesce(
    (SELECT seq FROM source.sqlite_sequence AS given WHERE given.name = own.name), 0))
"""


def replace_tables(connection: sqlite3.Connection) -> None:
    """Replace the rows of all tables by those of the attached database `source`.

    Both have the schema of this release.
    """
    tables = [name for (name,) in connection.execute(TABLES)]
    for table in KEPT_TABLES:
        if connection.execute(f"SELECT 1 FROM main.{table} LIMIT 1").fetchone():
            tables.remove(table)
    # The rows that they would write are copied too.
    triggers = connection.execute(TRIGGERS).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER main.{name}")
    for table in reversed(tables):
        connection.execute(f"DELETE FROM main.{table}")
    for table in tables:
        connection.execute(f"INSERT INTO main.{table} SELECT * FROM source.{table}")
    connection.execute(RAISE_SEQUENCES)
    connection.execute("INSERT INTO listing_text (listing_text) VALUES ('rebuild')")
    for _, sql in triggers:
        connection.execute(sql)


def keep_tables(connection: sqlite3.Connection) -> None:
    """Replace tokens and record by those of the attached database `old`, if it has any."""
    for table in KEPT_TABLES:
        if not connection.execute(f"SELECT 1 FROM old.{table} LIMIT 1").fetchone():
            continue
        # Those of audit let no row be deleted.
        triggers = connection.execute(AUDIT_TRIGGERS).fetchall() if table == "audit" else []
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"DELETE FROM main.{table}")
        connection.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table}")
        for _, sql in triggers:
            connection.execute(sql)


KEEP_COUNTS = """
UPDATE {new}.widget SET download_count = old.download_count FROM {old}.widget AS old
WHERE old.scope = widget.scope AND old.name = widget.name
    AND old.download_count > coalesce(widget.download_count, 0)
"""
KEEP_DELETED = """
INSERT INTO {new}.deleted_version SELECT * FROM {old}.deleted_version WHERE true
ON CONFLICT DO NOTHING
"""


def keep_history(connection: sqlite3.Connection, *, old: str, new: str) -> None:
    """Give the new one of two attached databases install counts of the old one that are higher.

    Both have counted the same installs, up to where their ways parted. Also add the hashes of
    versions that were deleted in the old one.
    """
    for statement in (KEEP_COUNTS, KEEP_DELETED):
        connection.execute(statement.format(old=old, new=new))


COUNT_ALL = """
SELECT (SELECT count(*) FROM widget) AS widgets, (SELECT count(*) FROM version) AS versions
"""


def finish_replacement(connection: sqlite3.Connection, actor: Actor, action: str) -> None:
    """Record that the whole content was replaced, and begin a new history."""
    transaction = Transaction(connection, actor)
    (counts,) = transaction.read(COUNT_ALL)
    transaction.record(action, after=dict(counts))
    transaction.finish()
    set_new_revision(connection)
