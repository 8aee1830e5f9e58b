"""Rebuilds a file's tables, either with its own rows to migrate it, or with a backup's rows.

Only the schema of release 1.0.0 is migrated. A new column needs no code here if it has a default
or may be null. A new table needs no code either, unless its rows are derived.
"""

import sqlite3
import time
from contextlib import closing

from .derived import (
    ADD_BUNDLE_HASHES,
    REFRESH_ANY_SIZE,
    SET_FOLDED,
    WIDGET_TEXTS,
    add_ranges,
    fold_again,
)
from .schema import schema_statements

# A file that has tokens, trusts or an audit log keeps them, so that no restore makes a revoked
# token or a removed trust valid again.
KEPT_TABLES = {"token", "trust", "short_token", "audit"}
# Tables whose rows are not copied, because they are computed from other rows.
DERIVED_TABLES = {
    "sdk_range",
    "sdk_interval",
    "touched",
    "listing",
    "listing_keyword",
    "summary",
    "revision",
    "recent_install",
}
# A table that exists only in the schema of release 1.0.0.
FORMER_TABLE = "installed"

SCHEMA_OBJECTS = """
SELECT type, name, tbl_name FROM main.sqlite_schema
WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
ORDER BY type <> 'trigger', type <> 'view', type <> 'index', sql NOT LIKE 'CREATE VIRTUAL%'
"""
OWN_NAMES = "SELECT tbl_name FROM sqlite_schema"
# Sorts the tables as in schema.sql, where each table follows the tables that it refers to. The
# condition on the type excludes the tables of the full-text index.
OWN_TABLES = """
SELECT object.name FROM sqlite_schema AS object JOIN pragma_table_list USING (name, type)
WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
ORDER BY object.rowid
"""
# Both catalogs counted the same installs until they diverged, so the higher count is kept.
KEEP_COUNTS = """
UPDATE widget SET download_count = old.download_count FROM old_widget AS old
WHERE old.scope = widget.scope AND old.name = widget.name
    AND old.download_count > coalesce(widget.download_count, 0)
"""
# A pack does not contain daily install counts, so the replaced catalog's counts are kept.
KEEP_DAYS = """
INSERT INTO {table} SELECT widget.id, {column}, installs FROM old_{table}
JOIN old_widget ON old_widget.id = widget_id JOIN widget USING (scope, name)
"""
# Clients may have cached the bundles of deleted versions, so their version numbers stay reserved.
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
HIGHEST_REVISION = "SELECT max(content, downloads) FROM main.revision"
# The ids of deleted rows must not be reused.
COPY_SEQUENCES = """
UPDATE sqlite_sequence AS new SET seq = max(new.seq, old.seq) FROM sqlite_sequence AS old
WHERE old.name = 'old_' || new.name
"""


def rebuild_tables(
    connection: sqlite3.Connection, source: str | None = None, *, keeps_history: bool = False
) -> None:
    """Create all tables in the current schema, and copy the rows from the old tables into them.

    If source names an attached database, copy its rows instead. The file then keeps its tokens and
    audit log, unless they are empty, and the hashes of deleted versions. With keeps_history, it
    also keeps higher install counts and the installs by day. Tables and views that belong to other
    programs, such as Litestream, are not changed.
    """
    own_names, tables = _own_schema()
    objects = [each for each in connection.execute(SCHEMA_OBJECTS) if each[2] in own_names]
    has_catalog = ("table", "widget", "widget") in map(tuple, objects)
    (old_revision,) = connection.execute(HIGHEST_REVISION).fetchone() if has_catalog else (0,)
    # Without this setting, other programs' views and triggers would refer to the renamed tables.
    connection.execute("PRAGMA legacy_alter_table = ON")
    for kind, name, _ in objects:
        if name in tables:
            connection.execute(f"ALTER TABLE main.{name} RENAME TO old_{name}")
        else:
            # Dropping a full-text index also drops its own tables, so they may be gone already.
            connection.execute(f"DROP {kind} IF EXISTS main.{_quoted(name)}")
    connection.execute("PRAGMA legacy_alter_table = OFF")
    for statement in schema_statements():
        connection.execute(statement)
    for table in tables:
        if table in DERIVED_TABLES:
            continue
        is_kept = (source is None or table in KEPT_TABLES) and _copy_rows(
            connection, f"old_{table}", "main", table
        )
        if source and not is_kept:
            _copy_rows(connection, table, source, table)
    if source and has_catalog:
        _copy_rows(connection, "old_deleted_version", "main", "deleted_version")
        connection.execute(KEEP_REMOVED)
        if keeps_history:
            connection.execute(KEEP_COUNTS)
            connection.execute(KEEP_DAYS.format(table="install_day", column="day"))
            connection.execute(KEEP_DAYS.format(table="install_version", column="version"))
    connection.execute(COPY_SEQUENCES)
    _write_all_digits(connection)
    # The schema of release 1.0.0 lacks the folded_path column.
    unfolded = connection.execute(f"{WIDGET_TEXTS} WHERE folded_path = ''").fetchall()
    connection.executemany(SET_FOLDED, fold_again(unfolded))
    connection.execute(ADD_BUNDLE_HASHES)
    for statement in REFRESH_ANY_SIZE:
        connection.execute(statement)
    for table in reversed(tables):
        connection.execute(f"DROP TABLE IF EXISTS main.old_{table}")
    set_new_revision(connection, old_revision)


def _own_schema() -> tuple[set[str], list[str]]:
    """Return the names of all the catalog's tables and views, and the tables in schema.sql."""
    with closing(sqlite3.connect(":memory:")) as new:
        for statement in schema_statements():
            new.execute(statement)
        names = {name for (name,) in new.execute(OWN_NAMES)}
        return names | {FORMER_TABLE}, [name for (name,) in new.execute(OWN_TABLES)]


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _copy_rows(connection: sqlite3.Connection, old: str, schema: str, new: str) -> int:
    """Copy the columns that both tables have; return how many rows were copied."""
    columns = _column_names(connection, schema, old) & _column_names(connection, "main", new)
    if not columns:
        return 0
    if new == "version":
        rows = connection.execute(f"SELECT DISTINCT sdk_version FROM {schema}.{old}").fetchall()
        for statement in add_ranges(range_ for (range_,) in rows):
            connection.execute(*statement)
    # Do not copy the changes to listed widgets: they are derived from the widgets.
    condition = "NOT listed" if new == "change" else "true"
    names = ", ".join(columns)
    # A deleted version may be in both catalogs, so its row may already have been copied.
    return connection.execute(
        f"INSERT INTO main.{new} ({names}) SELECT {names} FROM {schema}.{old} WHERE {condition}"
        " ON CONFLICT DO NOTHING"
    ).rowcount


READ_REALS = "SELECT id, config_version FROM version WHERE typeof(config_version) = 'real'"
SET_DIGITS = "UPDATE version SET config_version = ? WHERE id = ?"


def _write_all_digits(connection: sqlite3.Connection) -> None:
    """Convert each fractional configVersion to a string, as validators.check_number() does."""
    rows = connection.execute(READ_REALS).fetchall()
    connection.executemany(SET_DIGITS, [(repr(number), id_) for id_, number in rows])


def _column_names(connection: sqlite3.Connection, schema: str, table: str) -> set[str]:
    values = {"table": table, "schema": schema}
    rows = connection.execute("SELECT name FROM pragma_table_info(:table, :schema)", values)
    return {name for (name,) in rows}


SET_NEW_REVISION = """
UPDATE revision SET content = :new, downloads = :new, history = lower(hex(randomblob(8)))
"""


def set_new_revision(connection: sqlite3.Connection, old: int = 0) -> None:
    """Set a new history, and a revision that is higher than the old one.

    A reused revision would make outdated cached responses look current, and a reused history would
    make old change feed tokens look valid. The current time alone is not enough: the clock may have
    been ahead when the old revision was set.
    """
    connection.execute(SET_NEW_REVISION, {"new": max(time.time_ns(), old + 1)})
