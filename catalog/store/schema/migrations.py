"""The tables of a file, built again: with its own rows to migrate it, or with those of a backup."""

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..connection.sqlite import (
    Connection,
    DatabaseError,
    begin_write,
    connect,
    copy_to_file,
    database_uri,
)
from ..connection.transaction import Actor, Transaction
from .derived import REFRESH, add_ranges
from .schema import COUNT_ALL, SCHEMA_VERSION, schema_statements, schema_version

# A file that has tokens or a record keeps them: no restore makes a revoked token valid again.
KEPT_TABLES = ("token", "audit")
# The tables whose rows are copied, parents before children. The others are derived, and so are the
# rows of change, except those of widgets that are no longer listed.
COPIED_TABLES = (
    *("widget", "install_day", "install_version", "version", "about", "mirrored", "upstream"),
    *("deleted_version", "change", *KEPT_TABLES),
)
# Versions refer to sdk_range until they are dropped; schema version 5 has installs in one table.
RENAMED_TABLES = ("sdk_range", "install", *COPIED_TABLES)

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
        path,
        version,
        SCHEMA_VERSION,
        copy,
    )


def replace_content(
    connection: sqlite3.Connection,
    source: Path,
    actor: Actor,
    action: str,
    *,
    keeps_history: bool,
    on_wait: Callable[[], None] | None = None,
) -> None:
    """Replace the content by that of another file, of any schema version, and record the action.

    The tokens and the record of changes stay, unless there are none; with keeps_history, also
    higher install counts and the hashes of deleted versions.
    """
    connection.execute("ATTACH :uri AS source", {"uri": database_uri(source, "mode=ro")})
    try:
        begin_write(connection, on_wait)
        rebuild_tables(connection, "source", keeps_history=keeps_history)
        transaction = Transaction(connection, actor)
        (counts,) = transaction.read(COUNT_ALL)
        transaction.record(action, after=dict(counts))
        transaction.finish()
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("DETACH source")


SCHEMA_OBJECTS = """
SELECT type, name FROM sqlite_schema
WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
ORDER BY type <> 'trigger', type <> 'view', type <> 'index', sql NOT LIKE 'CREATE VIRTUAL%'
"""
# Both have counted the same installs, up to where their ways parted.
KEEP_COUNTS = """
UPDATE widget SET download_count = old.download_count FROM old_widget AS old
WHERE old.scope = widget.scope AND old.name = widget.name
    AND old.download_count > coalesce(widget.download_count, 0)
"""
# A pack has no days, so those of the replaced catalog stay.
KEEP_DAYS = (
    """
    INSERT INTO install_day
    SELECT widget.id, day, installs FROM old_install_day
    JOIN old_widget ON old_widget.id = widget_id JOIN widget USING (scope, name)
    """,
    """
    INSERT INTO install_version
    SELECT widget.id, version, installs FROM old_install_version
    JOIN old_widget ON old_widget.id = widget_id JOIN widget USING (scope, name)
    """,
    """
    UPDATE widget SET counted = old.counted FROM old_widget AS old
    WHERE old.scope = widget.scope AND old.name = widget.name
    """,
)
# Clients may have the bundles of versions that are gone, so their numbers stay taken.
KEEP_REMOVED = """
INSERT INTO deleted_version
SELECT old_widget.scope, old_widget.name, old_version.version, old_version.sha256_hash
FROM old_version JOIN old_widget ON old_widget.id = old_version.widget_id
WHERE NOT EXISTS (
    SELECT 1 FROM version JOIN widget ON widget.id = version.widget_id
    WHERE widget.scope = old_widget.scope AND widget.name = old_widget.name
        AND version.version = old_version.version
        AND version.sha256_hash = old_version.sha256_hash)
ON CONFLICT DO NOTHING
"""
LIMIT_TRIGGER = "SELECT sql FROM main.sqlite_schema WHERE name = 'widget_too_large'"
HIGHEST_REVISION = "SELECT max(content, downloads) FROM main.revision"
# The id of a deleted row must not be used again.
COPY_SEQUENCES = """
UPDATE sqlite_sequence AS new SET seq = max(new.seq, old.seq) FROM sqlite_sequence AS old
WHERE old.name = 'old_' || new.name
"""


def rebuild_tables(
    connection: sqlite3.Connection, source: str | None = None, *, keeps_history: bool = False
) -> None:
    """Create every table of the current schema, and copy the rows of the old ones into them.

    With a source, the name of an attached database, copy the rows of that one instead, except what
    replace_content() keeps.
    """
    objects = connection.execute(SCHEMA_OBJECTS).fetchall()
    has_catalog = ("table", "widget") in map(tuple, objects)
    (old_revision,) = connection.execute(HIGHEST_REVISION).fetchone() if has_catalog else (0,)
    for kind, name in objects:
        if name in RENAMED_TABLES:
            connection.execute(f"ALTER TABLE main.{name} RENAME TO old_{name}")
        else:
            # Dropping a full-text index drops its own tables too, so they may be gone.
            connection.execute(f"DROP {kind} IF EXISTS main.{name}")
    for statement, _ in schema_statements():
        connection.execute(statement)
    for table in COPIED_TABLES:
        is_kept = (source is None or table in KEPT_TABLES) and _copy_rows(
            connection, f"old_{table}", "main", table
        )
        if source and not is_kept:
            _copy_rows(connection, table, source, table)
    _add_up_installs(connection, f"{source}.install" if source else "main.old_install")
    if source and has_catalog:
        _copy_rows(connection, "old_deleted_version", "main", "deleted_version")
        connection.execute(KEEP_REMOVED)
        if keeps_history:
            for statement in (KEEP_COUNTS, *KEEP_DAYS):
                connection.execute(statement)
    connection.execute(COPY_SEQUENCES)
    _write_all_digits(connection)
    # A widget that an earlier release let grow too large stays as it is.
    (limit,) = connection.execute(LIMIT_TRIGGER).fetchone()
    connection.execute("DROP TRIGGER widget_too_large")
    for statement in REFRESH:
        connection.execute(statement)
    connection.execute(limit)
    for table in reversed(RENAMED_TABLES):
        connection.execute(f"DROP TABLE IF EXISTS main.old_{table}")
    set_new_revision(connection, old_revision)


def _copy_rows(connection: sqlite3.Connection, old: str, schema: str, new: str) -> int:
    """Copy the rows of a table, if it exists, in the columns that both have; return how many."""
    columns = _columns(connection, schema, old) & _columns(connection, "main", new)
    if not columns:
        return 0
    if new == "version":
        rows = connection.execute(f"SELECT DISTINCT sdk_version FROM {schema}.{old}").fetchall()
        for statement in add_ranges(range_ for (range_,) in rows):
            connection.execute(*statement)
    # In schema version 3 the names of widgets that exist are null.
    condition = "NOT listed AND scope IS NOT NULL" if new == "change" else "true"
    names = ", ".join(columns)
    # A deleted version may have been copied before.
    return connection.execute(
        f"INSERT INTO main.{new} ({names}) SELECT {names} FROM {schema}.{old} WHERE {condition}"
        " ON CONFLICT DO NOTHING"
    ).rowcount


ADD_UP_DAYS = """
INSERT INTO install_day SELECT widget_id, day, sum(installs) FROM {old} GROUP BY widget_id, day
"""
ADD_UP_VERSIONS = """
INSERT INTO install_version
SELECT widget_id, version, sum(installs) FROM {old} WHERE version <> '' GROUP BY widget_id, version
"""


def _add_up_installs(connection: sqlite3.Connection, old: str) -> None:
    """Copy the installs of schema version 5, which has a row for each day and version."""
    if _columns(connection, *old.split(".")):
        for statement in (ADD_UP_DAYS, ADD_UP_VERSIONS):
            connection.execute(statement.format(old=old))


READ_REALS = "SELECT id, config_version FROM version WHERE typeof(config_version) = 'real'"
SET_DIGITS = "UPDATE version SET config_version = ? WHERE id = ?"


def _write_all_digits(connection: sqlite3.Connection) -> None:
    """Store each configVersion that is not whole as text, as validators.check_number() does."""
    rows = connection.execute(READ_REALS).fetchall()
    connection.executemany(SET_DIGITS, [(repr(number), id_) for id_, number in rows])


def _columns(connection: sqlite3.Connection, schema: str, table: str) -> set[str]:
    values = {"table": table, "schema": schema}
    rows = connection.execute("SELECT name FROM pragma_table_info(:table, :schema)", values)
    return {name for (name,) in rows}


SET_NEW_REVISION = """
UPDATE revision SET content = :new, downloads = :new, history = lower(hex(randomblob(8)))
"""


def set_new_revision(connection: sqlite3.Connection, old: int = 0) -> None:
    """Set a revision above the old one, and a history, that were never used.

    So no cached response is taken for a current one, and no token of a client for a valid one. The
    time alone is not enough: the clock of the machine that set the old one may have been ahead.
    """
    connection.execute(SET_NEW_REVISION, {"new": max(time.time_ns(), old + 1)})
