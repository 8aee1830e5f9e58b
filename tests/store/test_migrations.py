"""A database of release 1.0.0: migrated by `serve` and `migrate`, else left unchanged."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Server, create_demo, error_message, run_on

from app import create_app
from catalog.store.schema.schema import SCHEMA_VERSION

TIME = "2025-01-02T03:04:05.000Z"
DATA = Path(__file__).parent.parent / "data"
PATHS = [
    "/api/v1/widgets/search?limit=100",
    "/api/v1/widgets/search?q=weather&compatSdk=1.4.0",
    "/api/v1/widgets/search?limit=100&compatSdk=1.0.0",
    "/api/v1/widgets/search?q=天気",
    "/api/v1/widgets/acme/clock",
    "/api/widgets/acme/registry.json",
    "/api/stats",
]


# The schema version of release 1.0.0.
OLD_VERSION = 2


@pytest.fixture
def old(tmp_path: Path, imported_demo: Path) -> Path:
    """The demo catalog in the schema of release 1.0.0; its highest ids belong to deleted rows."""
    path = tmp_path / "catalog.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript((DATA / "schema-1.0.0.sql").read_text(encoding="utf-8"))
        connection.execute("ATTACH ? AS demo", (str(imported_demo),))
        for table in ("widget", "version"):
            columns = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
            names = ", ".join(columns)
            connection.execute(
                f"INSERT INTO main.{table} ({names}) SELECT {names} FROM demo.{table}"
            )
        connection.execute("UPDATE sqlite_sequence SET seq = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
    path.chmod(0o600)
    return path


def responses(path: Path) -> list[bytes]:
    app = create_app({"DATABASE": path})
    try:
        return [app.test_client().get(url).data for url in PATHS]
    finally:
        app.extensions["database"].close()


def migrate(path: Path) -> None:
    result = run_on(path, "migrate")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith(f"{path} has schema version {SCHEMA_VERSION}.\n")


def schema_and_state(path: Path) -> list[list[tuple[object, ...]]]:
    """Return the schema, and what SQLite and the command check find."""
    queries = [
        "SELECT type, name, sql FROM sqlite_schema ORDER BY name",
        "PRAGMA integrity_check",
        "PRAGMA foreign_key_check",
        "PRAGMA user_version",
    ]
    with closing(sqlite3.connect(path)) as connection:
        found = [connection.execute(query).fetchall() for query in queries]
    report = run_on(path, "check").output.replace(str(path), "FILE")
    return [*found, [(report,)]]


def test_migrated_file_equals_a_new_one_and_the_old_one_is_kept(
    old: Path, imported_demo: Path
) -> None:
    with closing(sqlite3.connect(old)) as connection:
        content = list(connection.iterdump())
    migrate(old)
    assert responses(old) == responses(imported_demo)
    assert schema_and_state(old) == schema_and_state(imported_demo)
    with closing(sqlite3.connect(old)) as connection:
        sequences = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    # Ids of deleted rows are not used again.
    assert (sequences["widget"], sequences["version"]) == (5000, 5000)
    kept = old.with_name(f"catalog.db.schema-{OLD_VERSION}")
    assert kept.stat().st_mode & 0o777 == 0o600
    # In an empty directory: SQLite would apply the WAL of the migrated file to the copy.
    copy = old.with_name("rollback") / "catalog.db"
    copy.parent.mkdir()
    kept.replace(copy)
    with closing(sqlite3.connect(copy)) as connection:
        assert list(connection.iterdump()) == content
    migrate(copy)
    assert responses(copy) == responses(imported_demo)
    migrate(copy)


COMMANDS = [
    *("list", "show acme/clock", "yank acme/clock@1.0.0", "export", "import {}", "backup {}.copy"),
    *("pack {}.pack", "restore {} --yes", "check", "init", "gc", "token list"),
]


def test_other_commands_leave_an_old_file_to_the_service_that_runs(old: Path) -> None:
    before = old.read_bytes()
    for line in COMMANDS:
        assert error_message(run_on(old, *line.format(old).split())) == (
            f"{old} has schema version {OLD_VERSION}, but this release needs {SCHEMA_VERSION}. "
            "Run widget-catalog migrate, or start the service."
        ), line
        assert old.read_bytes() == before
    assert [path.name for path in old.parent.iterdir() if ".schema-" in path.name] == []


# What documents do not have, by the table that stores it.
STATES = {
    "version": "UPDATE version SET bundle_path = '/x/' || id || '?sha256=' || sha256_hash",
    "mirrored": "INSERT INTO mirrored (widget_id, source, etag, upstream_count)"
    " SELECT id, 'https://a.example', '\"e\"', 5 FROM widget",
}


def test_migration_keeps_what_is_not_in_documents(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        for statement in STATES.values():
            connection.execute(statement)
    queries = []
    with closing(sqlite3.connect(old)) as connection:
        for table in STATES:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            queries.append(f"SELECT {', '.join(columns)} FROM {table}")
    states = []
    for _ in range(2):
        with closing(sqlite3.connect(old)) as connection:
            states.append([connection.execute(query).fetchall() for query in queries])
        migrate(old)
    assert all(states[0])
    assert states[0] == states[1]


def test_migration_adds_the_hash_to_the_path_of_a_bundle_of_a_copy(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE version SET bundle_path = '/x/' || id")
        connection.execute(
            "INSERT INTO mirrored (widget_id, source) SELECT max(id), 'https://a.example'"
            " FROM widget"
        )
    migrate(old)
    with closing(sqlite3.connect(old)) as connection:
        rows = connection.execute(
            "SELECT bundle_path, '/x/' || id || iif(widget_id IN (SELECT widget_id FROM mirrored),"
            " '?sha256=' || sha256_hash, '') FROM version"
        ).fetchall()
    assert {path for path, _ in rows} == {expected for _, expected in rows}
    assert {"?" in path for path, _ in rows} == {False, True}


def test_all_digits_of_numbers_are_shown_after_a_migration(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE version SET config_version = 0.1 + 0.2 WHERE id = 1")
    migrate(old)
    assert '"configVersion": 0.30000000000000004' in run_on(old, "export").stdout
    assert run_on(old, "check").exit_code == 0


def test_service_logs_that_it_migrated_an_old_file(old: Path) -> None:
    with Server(old) as server:
        assert server.request("GET", PATHS[0])[0].status == 200
        server.stop()
    assert server.errors == (
        f"Migrated {old} from schema version {OLD_VERSION} to {SCHEMA_VERSION}. "
        f"The old file was copied to {old}.schema-{OLD_VERSION}.\n"
    )


@pytest.mark.parametrize("is_copied", [True, False])
def test_failed_migration_leaves_the_old_file_unchanged(old: Path, is_copied: bool) -> None:
    if not is_copied:
        old.with_name(f"catalog.db.schema-{OLD_VERSION}").mkdir()
    with closing(sqlite3.connect(old)) as connection:
        # One that the migration would create.
        connection.execute("CREATE TABLE old_version (id INTEGER)")
        before = list(connection.iterdump())
    message = error_message(run_on(old, "migrate"))
    assert message.startswith(f"{old} cannot be migrated and is unchanged: ")
    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before
        assert connection.execute("PRAGMA user_version").fetchone() == (OLD_VERSION,)


@pytest.mark.parametrize("exists", [True, False], ids=["over a catalog", "without a catalog"])
def test_backup_of_an_earlier_release_can_be_restored(
    old: Path, tmp_path: Path, imported_demo: Path, exists: bool
) -> None:
    new = tmp_path / "new.db"
    if exists:
        create_demo(new)
    before = old.read_bytes()
    assert run_on(new, "restore", old, "--yes").exit_code == 0
    assert responses(new) == responses(imported_demo)
    assert old.read_bytes() == before


# What other programs and an operator have added to the file.
ADDED = """
CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
INSERT INTO _litestream_seq VALUES (1, 7);
CREATE TABLE "my notes" (text TEXT);
INSERT INTO "my notes" VALUES ('keep');
CREATE INDEX "of ""my"" notes" ON "my notes" (text);
CREATE VIEW "my widgets" AS SELECT scope, name FROM widget;
CREATE TRIGGER "new note" AFTER INSERT ON "my notes" WHEN (SELECT count(*) FROM widget) BEGIN
    DELETE FROM "my notes" WHERE text = '';
END;
"""
FIND_ADDED = """
SELECT * FROM (SELECT name, sql FROM sqlite_schema WHERE name LIKE '%my%' OR name LIKE '\\_lite%'
    ESCAPE '\\' OR name = 'new note' ORDER BY name)
UNION ALL SELECT text, '' FROM "my notes" UNION ALL SELECT id, seq FROM _litestream_seq
UNION ALL SELECT count(*), '' FROM "my widgets"
"""


@pytest.mark.parametrize("command", ["migrate", "restore"])
def test_tables_of_other_programs_stay(old: Path, tmp_path: Path, command: str) -> None:
    path = old if command == "migrate" else create_demo(tmp_path / "new.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ADDED)
        before = connection.execute(FIND_ADDED).fetchall()
    arguments = ["migrate"] if command == "migrate" else ["restore", old, "--yes"]
    result = run_on(path, *arguments)
    assert result.exit_code == 0, result.stderr
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(FIND_ADDED).fetchall() == before
        connection.execute("INSERT INTO \"my notes\" VALUES ('')")
        assert connection.execute('SELECT text FROM "my notes"').fetchall() == [("keep",)]
    assert len(before) == 8
    assert run_on(path, "check").exit_code == 0


# Rows that the commands of a demo catalog do not write, by the table that stores them.
ROWS = {
    "about": "INSERT INTO about (widget_id, readme) SELECT id, 'Read ' || name FROM widget"
    " WHERE true ON CONFLICT DO NOTHING",
    "version": "UPDATE version SET bundle_path = NULL WHERE widget_id = 3",
    "mirrored": "INSERT INTO mirrored SELECT id, 'https://a.example', '\"e\"', 5, 1 FROM widget"
    " WHERE id = 3",
    "upstream": "INSERT INTO upstream (source, options) VALUES ('https://a.example', '{}')",
    "deleted_version": "DELETE FROM version WHERE id = 1",
    "change": "UPDATE widget SET listed = 0 WHERE id = 2",
    "install_day": "INSERT INTO install_day VALUES (3, 20000, 7)",
    "install_version": "INSERT INTO install_version VALUES (3, '1.0.0', 7)",
    "token": "INSERT INTO token (id, name, sha256_hash, permissions, scopes, created_at)"
    f" VALUES ('x', 'ci', '{'0' * 64}', '[]', '[]', '{TIME}')",
    "audit": "INSERT INTO audit (at, kind, actor, action)"
    f" VALUES ('{TIME}', 'local', 'ann', 'yank')",
}
# Tables with numbers that a restore may set anew, and their rows without these.
RENUMBERED = {
    "sqlite_sequence": "1",
    "revision": "1",
    "recent_install": "1",
    "sdk_range": "range",
    "sdk_interval": "low, high",
    "summary": "head, latest",
    "change": "scope, name, listed",
}
FIND_TABLES = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"


def rows_of_all_tables(path: Path) -> dict[str, list[str]]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: sorted(map(repr, connection.execute(f"SELECT {columns} FROM {table}")))
            for (table,) in connection.execute(FIND_TABLES).fetchall()
            if (columns := RENUMBERED.get(table, "*"))
        }


def test_a_restored_backup_has_the_rows_of_every_table(tmp_path: Path) -> None:
    source, restored = create_demo(tmp_path / "source.db"), tmp_path / "restored.db"
    with closing(sqlite3.connect(source)) as connection, connection:
        for statement in ROWS.values():
            connection.execute(statement)
    # Writes the derived rows.
    assert run_on(source, "describe", "acme/clock", "--icon", "mdi:bell").exit_code == 0
    assert run_on(restored, "restore", source).exit_code == 0
    before, after = rows_of_all_tables(source), rows_of_all_tables(restored)
    (entry,) = set(after["audit"]) - set(before["audit"])
    assert "'restore'" in entry
    assert all(before[table] for table in ROWS)
    assert after | {"audit": before["audit"]} == before
