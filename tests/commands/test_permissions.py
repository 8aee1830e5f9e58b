"""Permissions: files are for their owner only, and the service needs no privileges."""

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT, Server, flask, import_demo, run_here
from users import IS_ROOT, UNPRIVILEGED, give_to_nobody, home_of_nobody

CLOCK = "/api/v1/widgets/acme/clock"
SCHEMA_1_0_0 = ROOT / "tests" / "data" / "schema-1.0.0.sql"


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


def create_with_schema_1_0_0(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA_1_0_0.read_text(encoding="utf-8"))
    path.chmod(0o600)


def test_every_created_file_is_for_its_owner_only(tmp_path: Path) -> None:
    catalog, old = tmp_path / "catalog.db", tmp_path / "old.db"
    umask = os.umask(0)
    try:
        create_with_schema_1_0_0(old)
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
    written = ("backup.db", "export.jsonl", "all.pack", "new.db", "old.db", "old.db.schema-2")
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
    return "cannot be written: this user cannot read and write catalog.db."


def forbid_to_read(catalog: Path) -> str:
    catalog.chmod(0)
    return "cannot be written: this user cannot read and write catalog.db."


def forbid_the_directory(catalog: Path) -> str:
    catalog.parent.chmod(0o500)
    return (
        "cannot be written: this user cannot write to its directory, where SQLite creates the WAL."
    )


def forbid_the_wal(catalog: Path) -> str:
    wal = catalog.with_name("catalog.db-wal")
    wal.touch(0)
    give_to_nobody(wal)
    return "cannot be written: this user cannot read and write catalog.db-wal."


def hide_the_directory(catalog: Path) -> str:
    catalog.parent.chmod(0)
    return "cannot be accessed: Permission denied."


def give_to_root(catalog: Path) -> str:
    if not IS_ROOT:
        pytest.skip("only root can give a file away")
    os.chown(catalog, 0, 0)
    return "cannot be written: this user cannot read and write catalog.db."


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


def forbid_the_bundles(bundles: Path) -> None:
    bundles.chmod(0)


def forbid_a_bundle(bundles: Path) -> None:
    for file in bundles.iterdir():
        file.chmod(0)


@pytest.mark.parametrize("forbid", [forbid_the_bundles, forbid_a_bundle])
def test_service_is_not_healthy_if_it_may_not_read_its_bundles(
    home: Path, forbid: Callable[[Path], None]
) -> None:
    database, bundles = home / "catalog.db", home / "catalog.db-bundles"
    flask(database, "init", "--demo")
    for path in (database, bundles, *bundles.iterdir()):
        give_to_nobody(path)
    forbid(bundles)
    with Server(database, run_by=UNPRIVILEGED) as server:
        response, body = server.request("GET", "/api/health")
    bundles.chmod(0o700)
    assert (response.status, json.loads(body)) == (
        503,
        {"status": "unavailable", "error": "A stored bundle cannot be read."},
    )


def test_health_reports_a_bundle_that_is_missing(tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    flask(database, "init", "--demo")
    for file in (tmp_path / "catalog.db-bundles").iterdir():
        file.unlink()
    with Server(database) as server:
        response, body = server.request("GET", "/api/health")
    assert (response.status, json.loads(body)) == (
        200,
        {"status": "ok", "warning": "A bundle is missing from CATALOG_BUNDLES."},
    )


@pytest.mark.parametrize("is_backup", [True, False], ids=["backup", "file in WAL mode"])
def test_command_reads_a_file_that_it_may_not_write(catalog: Path, is_backup: bool) -> None:
    copy = catalog.parent / "archive" / "monday.db"
    copy.parent.mkdir()
    if is_backup:
        flask(catalog, "backup", copy)
    else:
        shutil.copy(catalog, copy)
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    before = copy.read_bytes()
    give_to_nobody(copy)
    give_to_nobody(copy.parent)
    copy.chmod(0o400)
    copy.parent.chmod(0o500)
    process = run_here(copy, "-m", "flask", "export", run_by=UNPRIVILEGED)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.count("\n") == 34
    assert (copy.read_bytes() == before, [*copy.parent.iterdir()]) == (True, [copy])
    copy.parent.chmod(0o700)


def test_command_without_permission_names_the_file(catalog: Path) -> None:
    catalog.chmod(0)
    process = run_here(catalog, "-m", "flask", "list", run_by=UNPRIVILEGED)
    assert (process.returncode, process.stderr) == (
        1,
        f"Error: {catalog} cannot be opened: this user cannot read and write catalog.db.\n",
    )
