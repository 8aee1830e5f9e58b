"""Permissions: files are for their owner only, and the service needs no privileges."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT, Server, flask, import_demo, run_here
from users import IS_ROOT, UNPRIVILEGED, give_to_nobody, home_of_nobody

CLOCK = "/api/v1/widgets/acme/clock"
SCHEMA_1 = ROOT / "tests" / "data" / "schema-1.sql"


@pytest.fixture
def home() -> Iterator[Path]:
    with home_of_nobody() as directory:
        yield directory


@pytest.fixture
def catalog(home: Path) -> Path:
    path = import_demo(home / "catalog.db")
    give_to_nobody(path)
    return path


def refused_start(database: Path) -> str:
    """Return the message of a service that does not start; it runs without privileges."""
    process = run_here(database, "app.py", run_by=UNPRIVILEGED)
    assert (process.returncode, process.stdout) == (1, "")
    return process.stderr


def create_with_schema_1(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA_1.read_text(encoding="utf-8"))
    path.chmod(0o600)


def test_every_created_file_is_for_its_owner_only(tmp_path: Path) -> None:
    catalog, old = tmp_path / "catalog.db", tmp_path / "old.db"
    umask = os.umask(0)
    try:
        create_with_schema_1(old)
        for database, command in (
            (catalog, ["init", "--demo"]),
            (catalog, ["backup", tmp_path / "backup.db"]),
            (catalog, ["export", tmp_path / "export.jsonl"]),
            (catalog, ["pack", tmp_path / "all.pack"]),
            (tmp_path / "new.db", ["restore", tmp_path / "backup.db"]),
            (old, ["migrate"]),
        ):
            flask(database, *command)
        with Server(catalog) as server:
            assert server.request("POST", CLOCK)[0].status == 200
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
            bundles = (tmp_path / "catalog.db-bundles").iterdir()
            held = {stat.S_IMODE(each.stat().st_mode) for each in bundles}
    finally:
        os.umask(umask)
    served = ("catalog.db", "catalog.db-wal", "catalog.db-shm")
    written = ("backup.db", "export.jsonl", "all.pack", "new.db", "old.db", "old.db.schema-1")
    created = (*served, *written)
    assert modes == {**dict.fromkeys(created, 0o600), "catalog.db-bundles": 0o700}
    assert held == {0o600}


def test_service_runs_as_a_user_who_owns_only_the_catalog(catalog: Path) -> None:
    with Server(catalog, run_by=UNPRIVILEGED) as server:
        statuses = [
            server.request(method, path)[0].status
            for method, path in (("GET", CLOCK), ("POST", CLOCK), ("GET", "/api/health"))
        ]
        owners = {each.stat().st_uid for each in catalog.parent.iterdir()}
        assert (server.stop(), server.errors) == (0, "")
    assert statuses == [200, 200, 200]
    assert owners == {catalog.stat().st_uid}


def forbid_to_write(catalog: Path) -> str:
    catalog.chmod(0o400)
    return "cannot be written: this user may not read and write catalog.db."


def forbid_to_read(catalog: Path) -> str:
    catalog.chmod(0)
    return "cannot be written: this user may not read and write catalog.db."


def forbid_the_directory(catalog: Path) -> str:
    catalog.parent.chmod(0o500)
    return (
        "cannot be written: this user may not write to its directory, where SQLite creates the WAL."
    )


def forbid_the_wal(catalog: Path) -> str:
    wal = catalog.with_name("catalog.db-wal")
    wal.touch(0)
    give_to_nobody(wal)
    return "cannot be written: this user may not read and write catalog.db-wal."


def hide_the_directory(catalog: Path) -> str:
    catalog.parent.chmod(0)
    return "cannot be accessed: Permission denied."


def give_to_root(catalog: Path) -> str:
    if not IS_ROOT:
        pytest.skip("only root can give a file away")
    os.chown(catalog, 0, 0)
    return "cannot be written: this user may not read and write catalog.db."


@pytest.mark.parametrize(
    "forbid",
    [
        forbid_to_write,
        forbid_to_read,
        forbid_the_directory,
        forbid_the_wal,
        hide_the_directory,
        give_to_root,
    ],
)
def test_service_does_not_start_without_permission_to_write_and_says_why(
    catalog: Path, forbid: Callable[[Path], str]
) -> None:
    reason = forbid(catalog)
    assert refused_start(catalog) == f"Error: {catalog} {reason}\n"
    catalog.parent.chmod(0o700)
    assert {each.name for each in catalog.parent.iterdir()} <= {"catalog.db", "catalog.db-wal"}


def test_command_without_permission_names_the_file(catalog: Path) -> None:
    catalog.chmod(0)
    process = run_here(catalog, "-m", "flask", "list", run_by=UNPRIVILEGED)
    assert (process.returncode, process.stderr) == (
        1,
        f"Error: {catalog} cannot be opened: this user may not read and write catalog.db.\n",
    )
