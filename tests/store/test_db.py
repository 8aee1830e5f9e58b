"""Database: reads, writes, files that cannot be used, links, the size of the WAL."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from builders import document, version
from conftest import putting

from catalog.documents import check_document
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DatabaseError, DeadlineExceeded, Statement
from catalog.store.connection.transaction import Transaction
from catalog.store.schema.schema import SCHEMA_VERSION

COUNT = "SELECT download_count FROM widget WHERE name = 'clock'"


def put(*names: str) -> Callable[[Transaction], None]:
    documents = (document(f"acme/{name}", version(), downloadCount=1) for name in names)
    return putting(map(check_document, documents))


def set_count(value: str) -> Statement:
    return f"UPDATE widget SET download_count = {value} WHERE name = 'clock'", {}


def read(database: Database, sql: str) -> list[tuple[object, ...]]:
    with database.read() as connection:
        return [tuple(row) for row in connection.execute(sql)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "catalog.db")
    database.create(put("clock", "notes"))
    yield database
    database.close()


def write(database: Database, *statements: Statement) -> None:
    """Run the statements in one transaction."""

    def run(transaction: Transaction) -> None:
        for sql, values in statements:
            transaction.execute(sql, values)

    database.transact(run)


def test_transact_returns_the_result_of_the_function(database: Database) -> None:
    rows = database.transact(lambda transaction: transaction.read(COUNT))
    assert [tuple(row) for row in rows] == [(1,)]


def test_dry_run_sees_its_own_changes_and_leaves_none(database: Database) -> None:
    def change(transaction: Transaction) -> int:
        transaction.execute(*set_count("7"))
        return int(transaction.read(COUNT)[0][0])

    assert database.transact(change, dry_run=True) == 7
    assert read(database, COUNT) == [(1,)]


def test_transaction_without_a_change_keeps_the_revision(database: Database) -> None:
    before = read(database, "SELECT * FROM revision")
    database.transact(lambda transaction: transaction.read(COUNT))
    assert read(database, "SELECT * FROM revision") == before


FAILURES = {
    "constraint": (("UPDATE widget SET listed = 5", {}), sqlite3.IntegrityError),
    "foreign key": (("UPDATE version SET widget_id = 99", {}), sqlite3.IntegrityError),
    "syntax": (("UPDATE", {}), sqlite3.OperationalError),
    "parameter": (("UPDATE widget SET icon = :icon", {}), sqlite3.ProgrammingError),
}


@pytest.mark.parametrize(("bad", "error"), FAILURES.values(), ids=FAILURES)
def test_failed_write_changes_nothing(
    database: Database, bad: Statement, error: type[Exception]
) -> None:
    with pytest.raises(error):
        write(database, set_count("7"), bad, set_count("8"))
    assert read(database, COUNT) == [(1,)]
    write(database, set_count("9"))
    assert read(database, COUNT) == [(9,)]


def test_error_in_the_function_leaves_nothing_written(database: Database) -> None:
    def change(transaction: Transaction) -> None:
        transaction.execute(*set_count("7"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.transact(change)
    assert read(database, COUNT) == [(1,)]
    write(database, set_count("9"))


def test_read_sees_one_state_to_its_end(database: Database) -> None:
    with database.read() as connection:
        first = connection.execute(COUNT).fetchone()[0]
        write(database, set_count("5"))
        second = connection.execute(COUNT).fetchone()[0]
    assert (first, second, read(database, COUNT)) == (1, 1, [(5,)])


def test_reader_cannot_write(database: Database) -> None:
    with (
        database.read() as connection,
        pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"),
    ):
        connection.execute("DELETE FROM widget")
    assert read(database, "SELECT count(*) FROM widget") == [(2,)]


def test_reader_is_usable_after_an_error(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.read():
        raise ZeroDivisionError
    assert read(database, COUNT) == [(1,)]


PRAGMAS = {
    "journal_mode": "wal",
    # FULL
    "synchronous": 2,
    "foreign_keys": 1,
    "busy_timeout": 5000,
}


@pytest.mark.parametrize(("pragma", "value"), PRAGMAS.items())
def test_connections_have_the_pragmas_that_durability_needs(
    database: Database, pragma: str, value: object
) -> None:
    assert read(database, f"SELECT * FROM pragma_{pragma}") == [(value,)]
    write(database, (f"UPDATE widget SET icon = (SELECT * FROM pragma_{pragma})", {}))
    assert set(read(database, "SELECT icon FROM widget")) == {(str(value),)}


def test_file_in_another_journal_mode_is_switched_to_wal(
    database: Database, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    restored = Database(copy)
    write(restored, set_count("2"))
    assert read(restored, "SELECT * FROM pragma_journal_mode") == [("wal",)]
    restored.close()


NOT_A_CATALOG = "is a SQLite file, but not one of a widget catalog."
MISSING = "does not exist. Create it with: widget-catalog init"


def make_foreign(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE widget (id INTEGER)")
    return NOT_A_CATALOG


def make_of_schema(number: int) -> Callable[[Path], str]:
    def make(path: Path) -> str:
        Database(path).create()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {number}")
        return (
            f"has schema version {number}, and this release reads versions 1 to {SCHEMA_VERSION}."
        )

    return make


def make_text(path: Path) -> str:
    path.write_text("not a database\n" * 1000)
    return "cannot be opened: file is not a database."


def make_empty(path: Path) -> str:
    path.touch()
    return MISSING


def make_nothing(path: Path) -> str:
    return MISSING


def make_directory(path: Path) -> str:
    path.mkdir()
    return "is not a file."


REFUSED = {
    "foreign": make_foreign,
    "newer": make_of_schema(SCHEMA_VERSION + 1),
    "older": make_of_schema(0),
    "text": make_text,
    "empty": make_empty,
    "missing": make_nothing,
    "directory": make_directory,
}
USES: dict[str, Callable[[Database], object]] = {
    "check": Database.check,
    "write": lambda database: database.transact(put("clock")),
}


def bytes_under(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, except -shm files, which hold no data."""
    files = (path for path in folder.iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in files if not path.name.endswith("-shm")}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_file_that_cannot_be_used_is_refused_and_unchanged(
    tmp_path: Path, make: Callable[[Path], str], use: Callable[[Database], object]
) -> None:
    path = tmp_path / "catalog.db"
    reason = make(path)
    before = bytes_under(tmp_path)
    database = Database(path)
    with pytest.raises(DatabaseError) as error:
        use(database)
    database.close()
    assert str(error.value) == f"{path} {reason}"
    assert bytes_under(tmp_path) == before


@pytest.mark.parametrize("make", [make_foreign, make_text, make_of_schema(9)])
def test_create_does_not_change_an_existing_file(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    path = tmp_path / "catalog.db"
    make(path)
    before = bytes_under(tmp_path)
    with pytest.raises(DatabaseError, match="exists already"):
        Database(path).create(put("clock"))
    assert bytes_under(tmp_path) == before


def test_failed_create_leaves_no_file(tmp_path: Path) -> None:
    database = Database(tmp_path / "new.db")

    def fill(transaction: Transaction) -> None:
        put("clock")(transaction)
        transaction.execute("UPDATE widget SET listed = 5")

    with pytest.raises(sqlite3.IntegrityError):
        database.create(fill)
    assert not database.exists()
    database.create(put("clock"))
    assert read(database, COUNT) == [(1,)]
    database.close()


ODD_NAMES = {
    "space": "a b.db",
    "query": "a?mode=memory",
    "fragment": "a#b.db",
    "percent": "a%41%.db",
    "quotes": "a'b\"c.db",
    "Unicode": "catalogue-météo-天気.db",
    "Latin-1": os.fsdecode(b"m\xe9t\xe9o.db"),
    "memory": ":memory:",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    database = Database(tmp_path / name)
    database.create(put("clock"))
    assert read(database, COUNT) == [(1,)]
    database.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_path_may_begin_with_two_slashes(tmp_path: Path) -> None:
    database = Database(f"/{tmp_path}/catalog.db")
    database.create(put("clock"))
    assert read(database, COUNT) == [(1,)]
    database.close()


def test_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database("catalog.db")
    database.create(put("clock"))
    assert read(database, COUNT) == [(1,)]
    database.close()


def test_path_may_be_a_link(database: Database, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.db").symlink_to(database.path)
    linked = Database(tmp_path / "other" / "link.db")
    for count in ("2", "3"):
        # The second write finds the WAL of the first in place.
        write(linked, set_count(count))
    assert read(linked, COUNT) == [(3,)]
    linked.close()


def test_link_that_is_changed_to_another_file_is_refused(
    database: Database, tmp_path: Path
) -> None:
    other = Database(tmp_path / "other.db")
    other.create(put("tasks"))
    (tmp_path / "link.db").symlink_to(database.path)
    linked = Database(tmp_path / "link.db")
    write(linked, set_count("2"))
    (tmp_path / "new-link.db").symlink_to(other.path)
    (tmp_path / "new-link.db").replace(linked.path)
    with pytest.raises(DatabaseError, match="was replaced while it was open"):
        write(linked, set_count("3"))
    linked.close()
    assert read(database, COUNT) == [(2,)]
    assert read(other, "SELECT name FROM widget") == [("tasks",)]


@pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
def test_wal_of_a_removed_file_is_not_applied_to_a_new_catalog(
    database: Database, tmp_path: Path, is_link: bool
) -> None:
    database.transact(put("late"))
    wal = Path(f"{database.path}-wal").read_bytes()
    database.close()
    database.path.unlink()
    Path(f"{database.path}-wal").write_bytes(wal)
    path = database.path
    if is_link:
        (tmp_path / "links").mkdir()
        path = tmp_path / "links" / "catalog.db"
        path.symlink_to(database.path)
    new = Database(path)
    new.create(put("tasks"))
    assert read(new, "SELECT name FROM widget") == [("tasks",)]
    new.close()


def test_closed_database_opens_again(database: Database) -> None:
    write(database, set_count("2"))
    assert read(database, COUNT) == [(2,)]
    database.close()
    database.close()
    assert [path.name for path in database.path.parent.iterdir()] == ["catalog.db"]
    assert read(database, COUNT) == [(2,)]
    write(database, set_count("3"))


def test_close_closes_the_readers_of_other_threads(database: Database) -> None:
    connections: list[sqlite3.Connection] = []

    def read_in_thread() -> None:
        with database.read() as connection:
            connections.append(connection)

    thread = threading.Thread(target=read_in_thread)
    thread.start()
    thread.join()
    database.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connections[0].execute(COUNT)


def test_two_databases_on_one_file_see_each_other(database: Database) -> None:
    other = Database(database.path)
    write(database, set_count("2"))
    assert read(other, COUNT) == [(2,)]
    write(other, set_count("download_count + 1"))
    assert read(database, COUNT) == [(3,)]
    other.close()


def test_no_increment_is_lost_between_threads(database: Database) -> None:
    others = [Database(database.path) for _ in range(2)]

    def count(through: Database) -> None:
        for _ in range(25):
            assert through.count_install("acme", "clock", 20_000)

    threads = [threading.Thread(target=count, args=(each,)) for each in (*others, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(database, COUNT) == [(101,)]
    for other in others:
        other.close()


# Random, since unchanged pages are not written to the WAL.
LARGE = ("UPDATE widget SET description = hex(randomblob(50000)) WHERE name = 'notes'", {})


def wal_size(database: Database) -> int:
    return Path(f"{database.path}-wal").stat().st_size


SMALL_WAL = 1_000_000  # bytes


def test_wal_stays_small_while_long_reads_overlap(tmp_path: Path) -> None:
    database = Database(tmp_path / "catalog.db", wal_limit=SMALL_WAL)
    database.create(put("notes"))
    stopped = threading.Event()

    def read_until_stopped() -> None:
        while not stopped.is_set():
            with suppress(DeadlineExceeded), database.read() as connection:
                database.set_deadline(0.02)
                while True:
                    connection.execute(COUNT).fetchone()
                    connection.check_deadline()

    threads = [threading.Thread(target=read_until_stopped) for _ in range(4)]
    for thread in threads:
        thread.start()
    sizes = []
    for _ in range(100):
        write(database, LARGE)
        sizes.append(wal_size(database))
    stopped.set()
    for thread in threads:
        thread.join()
    assert max(sizes) < 2 * SMALL_WAL
    database.close()


def test_long_read_of_another_process_does_not_stop_writes(
    tmp_path: Path,
) -> None:
    database = Database(tmp_path / "catalog.db", busy_timeout_ms=1, wal_limit=SMALL_WAL)
    database.create(put("notes"))
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute(COUNT).fetchall()
        for _ in range(50):
            write(database, LARGE)
        assert wal_size(database) > 2 * SMALL_WAL
    for _ in range(50):
        write(database, LARGE)
    assert wal_size(database) < 2 * SMALL_WAL
    database.close()


def test_file_in_the_middle_of_a_checkpoint_can_be_opened(database: Database) -> None:
    write(database, ("CREATE TABLE large AS SELECT zeroblob(100000) AS bytes", {}))
    database.reader().execute("PRAGMA wal_checkpoint")
    copy = database.path.with_name("copy.db")
    for suffix in ("", "-wal"):
        shutil.copy(f"{database.path}{suffix}", f"{copy}{suffix}")
    # The checkpoint has written the first page, but not the last ones.
    os.truncate(copy, copy.stat().st_size - 50_000)
    other = Database(copy)
    assert len(other.reader().execute("SELECT bytes FROM large").fetchone()[0]) == 100_000
    other.close()
