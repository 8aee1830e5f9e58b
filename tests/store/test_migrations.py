"""A database of an earlier release: migrated by `serve` and `migrate`, else left unchanged."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Server, create_demo, error_message, run_on

from app import create_app
from catalog.store import backups
from catalog.store.check import check_catalog
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DatabaseError
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


# Only this schema has the intervals of a range in a column, from which a trigger adds the rows.
ADD_RANGES = """
INSERT INTO main.sdk_range (range, intervals)
SELECT range, (
    SELECT json_group_array(json_array(low, high)) FROM demo.sdk_interval WHERE range_id = given.id)
FROM demo.sdk_range AS given
"""


@pytest.fixture(params=range(1, SCHEMA_VERSION))
def old(request: pytest.FixtureRequest, tmp_path: Path, imported_demo: Path) -> Path:
    """The demo catalog in each earlier schema, whose highest ids belong to deleted rows."""
    path = tmp_path / "catalog.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript((DATA / f"schema-{request.param}.sql").read_text())
        connection.execute("ATTACH ? AS demo", (str(imported_demo),))
        if request.param == 3:
            connection.execute(ADD_RANGES)
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


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_migrated_file_gives_the_same_responses_as_a_new_one(
    old: Path, imported_demo: Path
) -> None:
    Database(old).migrate()
    assert responses(old) == responses(imported_demo)
    assert version(old) == SCHEMA_VERSION


def test_command_migrate_migrates_a_file(old: Path) -> None:
    before = version(old)
    result = run_on(old, "migrate")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith(f"{old} has schema version {SCHEMA_VERSION}.\n")
    assert (version(old), version(Path(f"{old}.schema-{before}"))) == (SCHEMA_VERSION, before)
    assert run_on(old, "migrate").exit_code == 0


COMMANDS = [
    "list",
    "show acme/clock",
    "yank acme/clock@1.0.0",
    "export",
    "import {}",
    "backup {}.copy",
    "pack {}.pack",
    "restore {} --yes",
    "check",
    "init",
    "gc",
    "token list",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_other_commands_leave_an_old_file_to_the_service_that_runs(old: Path, line: str) -> None:
    before = version(old), old.read_bytes()
    result = run_on(old, *line.format(old).split())
    assert error_message(result) == (
        f"{old} has schema version {before[0]}, and this release needs {SCHEMA_VERSION}. "
        "Run widget-catalog migrate, or start the service."
    )
    assert (version(old), old.read_bytes()) == before
    assert [path.name for path in old.parent.iterdir() if ".schema-" in path.name] == []


def test_migrated_file_has_the_schema_of_a_new_one(old: Path, imported_demo: Path) -> None:
    Database(old).migrate()
    schemas = []
    for path in (old, imported_demo):
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
            schemas.append(connection.execute(query).fetchall())
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert schemas[0] == schemas[1]


def test_check_reports_the_same_for_a_migrated_file_as_for_a_new_one(
    old: Path, imported_demo: Path
) -> None:
    Database(old).migrate()
    findings = []
    for path in (old, imported_demo):
        database = Database(path)
        findings.append(list(check_catalog(database)))
        database.close()
    assert findings[0] == findings[1]


STATES = {
    "bundle_path": "UPDATE version SET bundle_path = '/x/' || id",
    "mirrored": "INSERT INTO mirrored SELECT id, 'https://a.example', '\"e\"', 5 FROM widget",
    "deleted_version": "DELETE FROM version WHERE id = 1",
    "token": "INSERT INTO token VALUES"
    f" ('x', 'ci', '{'0' * 64}', '[\"acme\"]', '[\"yank\"]', '{TIME}', NULL, '{TIME}', NULL)",
    "audit": "INSERT INTO audit VALUES"
    f" (7, '{TIME}', 'local', 'ann', 'yank', 'acme', 'clock', '1.0.0', NULL, '{{}}')",
}


@pytest.mark.parametrize("old", [SCHEMA_VERSION - 1], indirect=True)
def test_migration_keeps_what_is_not_in_documents(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        for statement in STATES.values():
            connection.execute(statement)
    tables = [name for name in STATES if name != "bundle_path"]
    queries = ["SELECT id, bundle_path FROM version ORDER BY id"]
    with closing(sqlite3.connect(old)) as connection:
        for table in tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            queries.append(f"SELECT {', '.join(columns)} FROM {table}")
    states = []
    for _ in range(2):
        with closing(sqlite3.connect(old)) as connection:
            states.append([connection.execute(query).fetchall() for query in queries])
        Database(old).migrate()
    assert all(states[0])
    assert states[0] == states[1]


def test_ids_of_deleted_rows_are_not_used_again(old: Path) -> None:
    Database(old).migrate()
    with closing(sqlite3.connect(old)) as connection:
        sequences = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    assert (sequences["widget"], sequences["version"]) == (5000, 5000)


def test_old_file_is_copied_for_its_owner_only(old: Path) -> None:
    before = version(old)
    with closing(sqlite3.connect(old)) as connection:
        rows = connection.execute("SELECT * FROM widget ORDER BY id").fetchall()
    Database(old).migrate()
    copy = old.with_name(f"catalog.db.schema-{before}")
    assert version(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT * FROM widget ORDER BY id").fetchall() == rows


def test_rolled_back_file_is_as_before_and_can_be_migrated_again(
    old: Path, imported_demo: Path
) -> None:
    before = version(old)
    with closing(sqlite3.connect(old)) as connection:
        content = list(connection.iterdump())
    Database(old).migrate()
    # In an empty directory: SQLite would apply the WAL of the migrated file to the copy.
    copy = old.with_name("rollback") / "catalog.db"
    copy.parent.mkdir()
    old.with_name(f"catalog.db.schema-{before}").replace(copy)
    with closing(sqlite3.connect(copy)) as connection:
        assert list(connection.iterdump()) == content
    Database(copy).migrate()
    assert responses(copy) == responses(imported_demo)


def test_service_logs_that_it_migrated_an_old_file(old: Path) -> None:
    before = version(old)
    server = Server(old)
    status = server.request("GET", PATHS[0])[0].status
    server.process.terminate()
    _, log = server.process.communicate(timeout=10)
    assert status == 200
    assert log == (
        f"Migrated {old} from schema version {before} to {SCHEMA_VERSION}. "
        f"The old file was copied to {old}.schema-{before}.\n"
    )


def block_the_copy(old: Path) -> str:
    old.with_name(f"catalog.db.schema-{version(old)}").mkdir()
    return "Is a directory."


def block_the_tables(old: Path) -> str:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("CREATE TABLE old_version (id INTEGER)")
    return "there is already another table or index with this name: old_version."


@pytest.mark.parametrize("block", [block_the_copy, block_the_tables])
def test_failed_migration_leaves_the_old_file_unchanged(
    old: Path, block: Callable[[Path], str]
) -> None:
    before_version = version(old)
    reason = block(old)
    with closing(sqlite3.connect(old)) as connection:
        before = list(connection.iterdump())
    with pytest.raises(DatabaseError) as error:
        Database(old).migrate()
    assert str(error.value) == f"{old} cannot be migrated and is unchanged: {reason}"
    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before
    assert version(old) == before_version


@pytest.mark.parametrize("exists", [True, False], ids=["over a catalog", "without a catalog"])
def test_backup_of_an_earlier_release_can_be_restored(
    old: Path, tmp_path: Path, imported_demo: Path, exists: bool
) -> None:
    new = tmp_path / "new.db"
    if exists:
        create_demo(new)
    before = version(old), old.read_bytes()
    backups.restore(Database(new), old)
    assert responses(new) == responses(imported_demo)
    assert (version(old), old.read_bytes()) == before
