"""The database file: files that cannot be used, links, snapshots, durability, size of the WAL."""

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import create_catalog, error_message, run_on, running
from flask import Flask

from app import create_app
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DeadlineExceeded
from catalog.store.connection.transaction import Transaction
from catalog.store.schema.schema import SCHEMA_VERSION

CLOCK = "/api/v1/widgets/acme/clock"
COUNT = "SELECT download_count FROM widget WHERE name = 'clock'"
ADD_ONE = running("UPDATE widget SET download_count = download_count + 1")


def create(path: Path, *names: str) -> Path:
    widgets = (document(f"acme/{name}", version(), downloadCount=1) for name in names)
    return create_catalog(path, *widgets)


def read(database: Database, sql: str) -> list[tuple[object, ...]]:
    with database.read() as connection:
        return [tuple(row) for row in connection.execute(sql)]


def count(app: Flask) -> int:
    return int(app.test_client().get(CLOCK).json["widget"]["downloadCount"])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(create(tmp_path / "catalog.db", "clock", "notes"))
    yield database
    database.close()


def test_read_sees_one_state_to_its_end_and_cannot_write(database: Database) -> None:
    with database.read() as connection:
        first = connection.execute(COUNT).fetchone()[0]
        database.transact(ADD_ONE)
        second = connection.execute(COUNT).fetchone()[0]
        with pytest.raises(sqlite3.OperationalError, match="readonly database"):
            connection.execute("DELETE FROM widget")
    assert (first, second, read(database, COUNT)) == (1, 1, [(2,)])


# FULL is 2.
PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


def test_connections_have_the_pragmas_that_durability_needs(database: Database) -> None:
    for pragma, value in PRAGMAS.items():
        assert read(database, f"SELECT * FROM pragma_{pragma}") == [(value,)]
        database.transact(running(f"UPDATE widget SET icon = (SELECT * FROM pragma_{pragma})"))
        assert set(read(database, "SELECT icon FROM widget")) == {(str(value),)}


BUSY_TIMEOUT = running("UPDATE widget SET icon = (SELECT * FROM pragma_busy_timeout)")


def test_an_install_waits_for_the_rest_of_its_time_and_the_next_one_as_long_as_before(
    tmp_path: Path,
) -> None:
    database = Database(create(tmp_path / "catalog.db", "clock"))
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # It waited in the queue for longer than the busy timeout.
        database.deadline.arrived_at = time.monotonic() - 10
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            database.transact(ADD_ONE)
    database.deadline.arrived_at = time.monotonic() - 1
    database.transact(BUSY_TIMEOUT)
    ((left,),) = read(database, "SELECT icon FROM widget")
    assert 1000 < int(str(left)) <= 4000
    database.deadline.arrived_at = time.monotonic()
    database.transact(BUSY_TIMEOUT)
    assert read(database, "SELECT download_count, icon FROM widget") == [(1, "5000")]
    database.close()


def test_a_command_that_found_the_file_locked_waits_for_a_minute(database: Database) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        database.on_wait = other.rollback
        database.transact(BUSY_TIMEOUT)
    assert set(read(database, "SELECT icon FROM widget")) == {("60000",)}


def test_a_write_waits_for_another_thread_until_its_deadline(database: Database) -> None:
    begun, refused = threading.Event(), threading.Event()

    def write_slowly(transaction: Transaction) -> None:
        begun.set()
        refused.wait(10)

    with ThreadPoolExecutor(1) as other:
        written = other.submit(database.transact, write_slowly)
        begun.wait()
        database.deadline.set(0.01, is_final=True)
        with pytest.raises(DeadlineExceeded):
            database.transact(ADD_ONE)
        refused.set()
        written.result()


def test_file_in_another_journal_mode_is_switched_to_wal(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    run_sql(create(copy, "clock"), "PRAGMA journal_mode = DELETE")
    assert run_on(copy, "unlist", "acme/clock").exit_code == 0
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


MISSING = "does not exist. Create it with: widget-catalog init"
SCHEMAS = (
    f"but this release reads versions 2 and {SCHEMA_VERSION}. Run export with the release that "
    "wrote the file, and import with this one."
)
NEWER, OLDER = SCHEMA_VERSION + 1, SCHEMA_VERSION - 1
# What is done to a path, and why it is refused.
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "foreign": (
        lambda path: run_sql(path, "CREATE TABLE widget (id INTEGER)"),
        "is an SQLite file, but not a widget catalog.",
    ),
    "newer": (
        lambda path: run_sql(create(path), f"PRAGMA user_version = {NEWER}"),
        f"has schema version {NEWER}, {SCHEMAS}",
    ),
    "older": (
        lambda path: run_sql(create(path), f"PRAGMA user_version = {OLDER}"),
        f"has schema version {OLDER}, {SCHEMAS}",
    ),
    "text": (
        lambda path: path.write_text("not a database\n" * 1000),
        "cannot be opened: file is not a database.",
    ),
    "empty": (Path.touch, MISSING),
    "missing": (lambda path: None, MISSING),
}


def run_sql(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


def bytes_under(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, except -shm files, which hold no data."""
    files = (path for path in folder.iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in files if not path.name.endswith("-shm")}


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_file_that_cannot_be_used_is_refused_and_unchanged(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "catalog.db"
    make(path)
    before = bytes_under(tmp_path)
    commands = [["list"], ["unlist", "acme/clock"]]
    commands += [["init", "--demo"]] if reason != MISSING else []
    for arguments in commands:
        message = error_message(run_on(path, *arguments))
        # For a missing file, it may go on with advice.
        assert message.startswith(f"{path} {reason}")
    assert bytes_under(tmp_path) == before


def test_path_may_be_relative_or_a_link(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.db").symlink_to(database.path)
    monkeypatch.chdir(tmp_path / "other")
    app = create_app({"DATABASE": "link.db"})
    for _ in range(2):
        # The second write finds the WAL of the first in place.
        assert app.test_client().post(CLOCK).status_code == 200
    assert count(app) == 3
    app.extensions["database"].close()
    assert read(database, COUNT) == [(3,)]


@pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
def test_wal_of_a_removed_file_is_not_applied_to_a_new_catalog(
    database: Database, tmp_path: Path, is_link: bool
) -> None:
    database.transact(ADD_ONE)
    wal = Path(f"{database.path}-wal").read_bytes()
    database.close()
    database.path.unlink()
    Path(f"{database.path}-wal").write_bytes(wal)
    path = database.path
    if is_link:
        (tmp_path / "links").mkdir()
        path = tmp_path / "links" / "catalog.db"
        path.symlink_to(database.path)
    assert run_on(path, "init").exit_code == 0
    assert run_on(path, "export").stdout == ""


# A megabyte. Random, since unchanged pages are not written to the WAL.
LARGE = running("UPDATE widget SET icon = hex(randomblob(500000)) WHERE name = 'notes'")
# Bytes to which a WAL is cut.
MAX_WAL = 32 * 1024 * 1024


def wal_size(database: Database) -> int:
    return Path(f"{database.path}-wal").stat().st_size


def test_reads_that_overlap_do_not_delay_writes_and_after_them_the_wal_is_cut(
    tmp_path: Path,
) -> None:
    path = create(tmp_path / "catalog.db", "notes")
    # A write that waited for a read would not end.
    database = Database(path)
    database.busy_timeout_ms = 3_600_000
    readers = [sqlite3.connect(path, isolation_level=None) for _ in range(2)]
    readers[1].execute("BEGIN")
    for number in range(40):
        readers[number % 2].execute("BEGIN")
        readers[number % 2].execute(COUNT).fetchall()
        readers[number % 2 - 1].execute("ROLLBACK")
        database.transact(LARGE)
    assert wal_size(database) > MAX_WAL
    for reader in readers:
        reader.close()
    # The first commit finds no read, and the second begins the WAL again.
    for _ in range(2):
        database.transact(LARGE)
    assert wal_size(database) <= MAX_WAL
    database.close()


def test_a_file_that_became_shorter_is_still_in_place(tmp_path: Path) -> None:
    small = create(tmp_path / "small.db", "clock")
    database = Database(create(tmp_path / "catalog.db", "clock", "notes"))
    database.transact(LARGE)
    checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
    database.reader().execute(checkpoint).fetchall()
    before = database.path.stat().st_size
    database.check_in_place()
    with closing(sqlite3.connect(small)) as source:
        database.replace_pages(source)
    database.reader().execute(checkpoint).fetchall()
    assert database.path.stat().st_size < before
    database.check_in_place()
    database.transact(ADD_ONE)
    assert read(database, COUNT) == [(2,)]
    database.close()


def test_file_in_the_middle_of_a_checkpoint_can_be_opened(database: Database) -> None:
    database.transact(running("CREATE TABLE large AS SELECT zeroblob(100000) AS bytes"))
    database.reader().execute("PRAGMA wal_checkpoint")
    copy = database.path.with_name("copy.db")
    for suffix in ("", "-wal"):
        shutil.copy(f"{database.path}{suffix}", f"{copy}{suffix}")
    # The checkpoint has written the first page, but not the last ones.
    os.truncate(copy, copy.stat().st_size - 50_000)
    app = create_app({"DATABASE": copy})
    assert count(app) == 1
    reader = app.extensions["database"].reader()
    assert len(reader.execute("SELECT bytes FROM large").fetchone()[0]) == 100_000
    app.extensions["database"].close()
