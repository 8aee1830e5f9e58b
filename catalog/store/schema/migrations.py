"""The tables of a file, built again: with its own rows to migrate it, or with those of a backup."""

import sqlite3
import time
from contextlib import closing

from .derived import REFRESH, add_ranges
from .schema import schema_statements

# A file that has tokens or a record keeps them: no restore makes a revoked token valid again.
KEPT_TABLES = ("token", "audit")
# The tables whose rows are copied, parents before children. The others are derived, and so are the
# rows of change, except those of widgets that are no longer listed.
COPIED_TABLES = (
    "widget",
    "install_day",
    "install_version",
    "version",
    "about",
    "mirrored",
    "upstream",
    "deleted_version",
    "change",
    *KEPT_TABLES,
)
# Versions refer to sdk_range until they are dropped; schema version 5 has installs in one table.
RENAMED_TABLES = ("sdk_range", "install", *COPIED_TABLES)
# The tables and the view that only earlier schemas have.
FORMER_TABLES = {
    "install",
    "installed",
    "mirror_position",
    "sdk_support",
    "sdk_support_interval",
    "rendered_support",
}

SCHEMA_OBJECTS = """
SELECT type, name, tbl_name FROM main.sqlite_schema
WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
ORDER BY type <> 'trigger', type <> 'view', type <> 'index', sql NOT LIKE 'CREATE VIRTUAL%'
"""
TABLE_NAMES = "SELECT tbl_name FROM sqlite_schema"
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

    With a source, the name of an attached database, copy the rows of that one instead. Tokens and
    record stay, unless there are none, and so do the hashes of deleted versions; with keeps_history
    also higher install counts and the installs by day. Tables and views of other programs, such as
    Litestream, stay as they are.
    """
    own_tables = _own_tables()
    objects = [each for each in connection.execute(SCHEMA_OBJECTS) if each[2] in own_tables]
    has_catalog = ("table", "widget", "widget") in map(tuple, objects)
    (old_revision,) = connection.execute(HIGHEST_REVISION).fetchone() if has_catalog else (0,)
    # Otherwise views and triggers of other programs would refer to the renamed tables.
    connection.execute("PRAGMA legacy_alter_table = ON")
    for kind, name, _ in objects:
        if name in RENAMED_TABLES:
            connection.execute(f"ALTER TABLE main.{name} RENAME TO old_{name}")
        else:
            # Dropping a full-text index drops its own tables too, so they may be gone.
            connection.execute(f"DROP {kind} IF EXISTS main.{_quoted(name)}")
    connection.execute("PRAGMA legacy_alter_table = OFF")
    for statement in schema_statements():
        connection.execute(statement)
    for table in COPIED_TABLES:
        is_kept = (source is None or table in KEPT_TABLES) and _copy_rows(
            connection, f"old_{table}", "main", table
        )
        if source and not is_kept:
            _copy_rows(connection, table, source, table)
    _convert_schema_5(connection, f"{source}.install" if source else "main.old_install")
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


def _own_tables() -> set[str]:
    """Return the names of all tables and views that this or an earlier schema has."""
    with closing(sqlite3.connect(":memory:")) as new:
        for statement in schema_statements():
            new.execute(statement)
        return FORMER_TABLES | {name for (name,) in new.execute(TABLE_NAMES)}


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


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
# The next run of the mirror then reads what its upstreams say about all copies.
FORGET_POSITIONS = "UPDATE upstream SET token = NULL"


def _convert_schema_5(connection: sqlite3.Connection, old: str) -> None:
    """Convert what differs in schema version 5: installs in one table, and no table about."""
    if _columns(connection, *old.split(".")):
        for statement in (ADD_UP_DAYS, ADD_UP_VERSIONS, FORGET_POSITIONS):
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
