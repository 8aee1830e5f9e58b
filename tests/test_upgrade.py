"""A database of an earlier release: upgraded in place, or left exactly as it was."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Server, create_demo

from app import create_app
from catalog import backups
from catalog.db import Database
from catalog.sqlite_file import SCHEMA_VERSION, DatabaseError

DATA = Path(__file__).parent / "data"
PATHS = [
    "/api/v1/widgets/search?limit=100",
    "/api/v1/widgets/search?q=weather&compatSdk=1.4.0",
    "/api/v1/widgets/search?q=天気",
    "/api/v1/widgets/acme/clock",
    "/api/widgets/acme/registry.json",
    "/api/stats",
]


@pytest.fixture(params=[1, 2])
def schema(request: pytest.FixtureRequest) -> int:
    """Each schema version that an earlier file can have."""
    number: int = request.param
    return number


@pytest.fixture
def old(tmp_path: Path, demo_database: Path, schema: int) -> Path:
    """The demo catalog in an earlier schema, with ids that have been given away since."""
    path = tmp_path / "catalog.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript((DATA / f"schema-{schema}.sql").read_text())
        connection.execute("ATTACH ? AS demo", (str(demo_database),))
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


def answers(path: Path) -> list[bytes]:
    app = create_app({"DATABASE": path})
    try:
        return [app.test_client().get(each).data for each in PATHS]
    finally:
        app.extensions["database"].close()


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_old_file_answers_as_a_new_one_of_the_same_catalog(old: Path, demo_database: Path) -> None:
    assert answers(old) == answers(demo_database)
    assert version(old) == SCHEMA_VERSION


def test_upgraded_file_is_made_like_a_new_one(old: Path, demo_database: Path) -> None:
    Database(old).check()
    made = []
    for path in (old, demo_database):
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
            made.append(connection.execute(query).fetchall())
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert made[0] == made[1]


def test_ids_that_were_given_away_do_not_come_again(old: Path) -> None:
    Database(old).check()
    with closing(sqlite3.connect(old)) as connection:
        sequences = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    assert sequences == {"widget": 5000, "version": 5000}


def test_the_file_as_it_was_is_kept_beside_for_its_owner_only(old: Path, schema: int) -> None:
    with closing(sqlite3.connect(old)) as connection:
        rows = connection.execute("SELECT * FROM widget ORDER BY id").fetchall()
    Database(old).check()
    kept = old.with_name(f"catalog.db.schema-{schema}")
    assert version(kept) == schema
    assert kept.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT * FROM widget ORDER BY id").fetchall() == rows


def test_service_that_starts_on_an_old_file_says_that_it_upgraded_it(
    old: Path, schema: int
) -> None:
    server = Server(old)
    status = server.request("GET", PATHS[0])[0].status
    server.process.terminate()
    _, said = server.process.communicate(timeout=10)
    assert status == 200
    assert (
        f"Upgraded {old} to schema version {SCHEMA_VERSION}; as it was, it is {old}.schema-{schema}"
        in said
    )


def spoil_the_copy(old: Path) -> str:
    old.with_name(f"catalog.db.schema-{version(old)}").mkdir()
    return "Is a directory."


def spoil_the_tables(old: Path) -> str:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("CREATE TABLE old_version (id INTEGER)")
    return "there is already another table or index with this name: old_version."


@pytest.mark.parametrize("spoil", [spoil_the_copy, spoil_the_tables])
def test_failed_upgrade_leaves_the_old_file(old: Path, schema: int, spoil) -> None:  # type: ignore[no-untyped-def]
    reason = spoil(old)
    with closing(sqlite3.connect(old)) as connection:
        before = list(connection.iterdump())
    with pytest.raises(DatabaseError) as failed:
        Database(old).check()
    assert str(failed.value) == f"{old} cannot be upgraded, and is as it was: {reason}"
    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before
    assert version(old) == schema


def test_backup_of_an_earlier_release_can_be_restored(
    old: Path, schema: int, tmp_path: Path, demo_database: Path
) -> None:
    new = create_demo(tmp_path / "new.db")
    before = old.read_bytes()
    backups.restore(Database(new), old)
    assert answers(new) == answers(demo_database)
    assert (version(old), old.read_bytes()) == (schema, before)
