"""widget-catalog backup and widget-catalog restore, also while the service runs."""

import json
import os
import pty
import select
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from builders import document, version
from conftest import (
    ROOT,
    Server,
    create_catalog,
    error_message,
    putting,
    run_on,
    running,
    start_command,
)
from publishers import OPERATOR

from app import create_app
from catalog.domain.documents import check_document
from catalog.store.connection.database import Database
from catalog.store.connection.transaction import Transaction
from catalog.store.schema.schema import SCHEMA_VERSION


def run_successfully(path: Path, *arguments: object) -> bytes:
    result = run_on(path, *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def refused(path: Path, *arguments: object) -> str:
    """Return the error message of the command, one sentence."""
    return error_message(run_on(path, *arguments))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def overwrite_an_index(path: Path) -> None:
    """Damage the file in a place that opening it does not read."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'version_newest'"
        (page,) = connection.execute(query).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xaa" * 4096)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A catalog with installs, alone in its folder."""
    (tmp_path / "service").mkdir()
    clock = document("acme/clock", version(), downloadCount=5)
    return create_catalog(
        tmp_path / "service" / "catalog.db", clock, document("acme/notes", listed=False)
    )


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return create_catalog(
        tmp_path / "other.db", document("lab/météo", version("2.0.0"), downloadCount=9)
    )


@pytest.fixture
def backup(other: Path, tmp_path: Path) -> Path:
    """A backup of the other catalog, alone in its folder."""
    (tmp_path / "backups").mkdir()
    run_successfully(other, "backup", tmp_path / "backups" / "monday.db")
    return tmp_path / "backups" / "monday.db"


def test_backup_is_one_file_for_its_owner_only(catalog: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups" / "monday.db"
    target.parent.mkdir()
    before = os.umask(0)
    try:
        result = run_on(catalog, "backup", target)
    finally:
        os.umask(before)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"Backed up {catalog} to {target}.\n"
    assert list(target.parent.iterdir()) == [target]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with closing(sqlite3.connect(f"file:{target}?immutable=1", uri=True)) as copy:
        assert copy.execute("SELECT sum(download_count) FROM widget").fetchone() == (5,)


@contextmanager
def installing(path: Path) -> Iterator[list[int]]:
    """Install two widgets at a time, again and again; yield how often, in a list."""
    database, counted, stop = Database(path), [0], threading.Event()
    both = running("UPDATE widget SET download_count = download_count + 1 WHERE name < 'c'")

    def count() -> None:
        while not stop.is_set():
            database.transact(both)
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield counted
    finally:
        stop.set()
        thread.join()
        database.close()


def test_backup_during_installs_is_consistent(tmp_path: Path) -> None:
    filler = [document(f"acme/w{n}", version(releaseNotes="x" * 5000)) for n in range(200)]
    both = [document(f"acme/{name}", downloadCount=0) for name in "ab"]
    busy = create_catalog(tmp_path / "busy.db", *both, *filler)
    copy = tmp_path / "copy.db"
    with installing(busy) as counted:
        minimum = counted[0]
        with start_command(busy, "backup", copy) as running:
            assert running.communicate(timeout=30)[1] == f"Backed up {busy} to {copy}.\n"
        # One install may be committed but not yet counted.
        maximum = counted[0] + 1
    counts = "SELECT download_count FROM widget WHERE name < 'c'"
    with closing(sqlite3.connect(copy)) as connection:
        (a,), (b,) = connection.execute(counts).fetchall()
    assert minimum <= a == b <= maximum
    assert run_on(copy, "check").stderr == f"{copy} is in order.\n"


def test_backup_replaces_an_older_one(catalog: Path, backup: Path) -> None:
    old = backup.read_bytes()
    # A process that reads the old backup is not disturbed.
    with backup.open("rb") as reader:
        run_successfully(catalog, "backup", backup)
        assert reader.read() == old
    assert list(backup.parent.iterdir()) == [backup]
    assert run_successfully(backup, "export") == run_successfully(catalog, "export")


def test_backup_into_a_missing_directory_names_the_file(catalog: Path, tmp_path: Path) -> None:
    target = tmp_path / "none" / "monday.db"
    assert str(target) in refused(catalog, "backup", target)


def test_backup_of_a_damaged_catalog_does_not_replace_the_older_one(
    catalog: Path, backup: Path
) -> None:
    overwrite_an_index(catalog)
    before = files(backup.parent)
    assert str(catalog) in refused(catalog, "backup", backup)
    assert files(backup.parent) == before


def on_a_full_disk(path: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """Run a command whose files cannot grow beyond 64 blocks."""
    shell = ["sh", "-c", 'ulimit -f 64; exec "$@"', "sh"]
    return subprocess.run(
        [*shell, sys.executable, "-m", "flask", *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_backup_to_a_full_disk_does_not_replace_the_older_one(catalog: Path, backup: Path) -> None:
    before = files(backup.parent)
    result = on_a_full_disk(catalog, "backup", backup)
    assert files(backup.parent) == before
    (line,) = result.stderr.splitlines()
    assert (result.returncode, line.startswith("Error: "), str(backup) in line) == (1, True, True)


def test_restore_on_a_full_disk_does_not_change_the_catalog(catalog: Path, backup: Path) -> None:
    before = run_successfully(catalog, "export")
    result = on_a_full_disk(catalog, "restore", backup, "--yes")
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert run_successfully(catalog, "export") == before
    assert run_on(catalog, "check").exit_code == 0


@pytest.mark.parametrize("link", [False, True], ids=["by its name", "by a link"])
def test_backup_onto_the_catalog_itself_is_refused(catalog: Path, link: bool) -> None:
    target = catalog.with_name("link.db") if link else catalog
    if link:
        target.symlink_to(catalog)
    file = catalog.stat().st_ino
    refused(catalog, "backup", target)
    assert catalog.stat().st_ino == file


def test_backup_does_not_replace_a_device(catalog: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(catalog, "backup", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_restore_without_a_catalog_does_not_ask(other: Path, backup: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new, before = tmp_path / "new" / "catalog.db", files(backup.parent)
    result = run_on(new, "restore", backup)
    assert (result.exit_code, result.output) == (0, f"Restored {new} from {backup}.\n")
    assert list(new.parent.iterdir()) == [new]
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert run_successfully(new, "export") == run_successfully(other, "export")
    assert files(backup.parent) == before


def test_restore_replaces_the_whole_catalog(catalog: Path, other: Path, backup: Path) -> None:
    before = files(backup.parent)
    assert (
        run_on(catalog, "restore", backup, "--yes").output == f"Restored {catalog} from {backup}.\n"
    )
    assert run_successfully(catalog, "export") == run_successfully(other, "export")
    assert run_on(catalog, "check").stderr == f"{catalog} is in order.\n"
    assert files(backup.parent) == before


def test_restore_without_a_terminal_needs_yes(catalog: Path, backup: Path) -> None:
    before = files(catalog.parent)
    assert refused(catalog, "restore", backup) == (
        f"Replace all of {catalog} with {backup}? "
        "Standard input is not a terminal; use --yes to confirm."
    )
    assert files(catalog.parent) == before


@pytest.mark.parametrize(("answer", "replaced"), [(b"y\n", True), (b"\n", False)])
def test_restore_asks_at_a_terminal(
    catalog: Path, backup: Path, answer: bytes, replaced: bool
) -> None:
    before = run_successfully(catalog, "export")
    keyboard, end = pty.openpty()
    os.write(keyboard, answer)
    with start_command(catalog, "restore", backup, stdin=end) as restore:
        _, output = restore.communicate(timeout=30)
    os.close(end)
    os.close(keyboard)
    assert output.startswith(f"Replace all of {catalog} with {backup}? [y/N]:")
    assert restore.returncode == (0 if replaced else 1)
    assert (run_successfully(catalog, "export") != before) == replaced


def make_text(path: Path, backup: Path) -> str:
    path.write_bytes(b"not a database\n" * 1000)
    return f"{path} cannot be restored: file is not a database."


def make_foreign(path: Path, backup: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE widget (id)")
    return f"{path} is an SQLite file, but not a widget catalog."


def make_newer(path: Path, backup: Path) -> str:
    path.write_bytes(backup.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    return (
        f"{path} has schema version 99, but this release reads versions 2 and {SCHEMA_VERSION}. "
        "Run export with the release that wrote the file, and import with this one."
    )


def make_damaged(path: Path, backup: Path) -> str:
    path.write_bytes(backup.read_bytes())
    overwrite_an_index(path)
    return f"{path} cannot be restored: it is damaged: "


def make_short(path: Path, backup: Path) -> str:
    path.write_bytes(backup.read_bytes()[:-4096])
    return f"{path} cannot be restored: "


BAD = [make_text, make_foreign, make_newer, make_damaged, make_short]


@pytest.mark.parametrize("make_bad", BAD)
@pytest.mark.parametrize("exists", [True, False], ids=["over a catalog", "without a catalog"])
def test_bad_backup_is_refused_and_nothing_changes(
    catalog: Path, backup: Path, make_bad: Callable[[Path, Path], str], exists: bool
) -> None:
    bad = backup.with_name("bad.db")
    message = make_bad(bad, backup)
    if not exists:
        catalog.unlink()
    before = files(catalog.parent), files(backup.parent)
    result = run_on(catalog, "restore", bad, "--yes")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {message}")
    assert (files(catalog.parent), files(backup.parent)) == before


def test_wal_of_a_removed_catalog_is_not_applied_to_the_restored_one(
    catalog: Path, backup: Path
) -> None:
    database = Database(catalog)
    database.transact(putting([check_document(document("acme/late"))]))
    wal = files(catalog.parent)["catalog.db-wal"]
    database.close()
    catalog.unlink()
    catalog.with_name("catalog.db-wal").write_bytes(wal)
    run_successfully(catalog, "restore", backup)
    assert run_successfully(catalog, "export") == run_successfully(backup, "export")


def test_restore_waits_for_a_locked_catalog_and_keeps_what_it_did_to_tokens(
    catalog: Path, backup: Path
) -> None:
    run_successfully(catalog, "token", "create", "ci", "--scope", "acme")
    # The backup has a valid token of the same name.
    run_successfully(backup, "token", "create", "ci", "--scope", "lab")
    database, commands = Database(catalog), []

    def start_and_revoke(transaction: Transaction) -> None:
        restore = start_command(catalog, "restore", backup, "--yes")
        commands.append(restore)
        assert restore.stderr is not None
        assert select.select([restore.stderr], [], [], 20)[0], "no message"
        assert restore.stderr.readline() == "The database is busy; waiting.\n"
        transaction.execute("UPDATE token SET revoked_at = :at", {"at": "2025-01-02T03:04:05.000Z"})
        transaction.record("revoke token")

    try:
        database.transact(start_and_revoke, OPERATOR)
        assert commands[0].communicate(timeout=30)[1] == f"Restored {catalog} from {backup}.\n"
    finally:
        for command in commands:
            command.kill()
        database.close()
    (token,) = json.loads(run_successfully(catalog, "token", "list", "--json"))
    assert (token["scopes"], token["status"]) == (["acme"], "revoked")
    actions = [each["action"] for each in json.loads(run_successfully(catalog, "log", "--json"))]
    assert actions == ["create token", "revoke token", "restore"]


def test_running_service_serves_the_restored_catalog(catalog: Path, tmp_path: Path) -> None:
    server = Server(catalog)

    def install(name: str) -> int:
        return server.request("POST", f"/api/v1/widgets/acme/{name}")[0].status

    def count_is(number: int) -> bool:
        body = server.request("GET", "/api/v1/widgets/acme/clock")[1]
        return b'"downloadCount":%d,' % number in body.replace(b" ", b"")

    try:
        assert (install("clock"), count_is(6)) == (200, True)
        run_successfully(catalog, "backup", tmp_path / "monday.db")
        assert (install("clock"), count_is(7)) == (200, True)
        run_successfully(catalog, "delete", "acme/notes", "--yes")
        assert install("notes") == 404
        run_successfully(catalog, "restore", tmp_path / "monday.db", "--yes")
        assert (count_is(6), install("clock"), count_is(7)) == (True, 200, True)
        assert install("notes") == 200
    finally:
        server.stop()


def test_wal_of_a_replaced_file_is_not_applied_to_the_backup(catalog: Path, tmp_path: Path) -> None:
    target = create_catalog(tmp_path / "older.db", document("acme/older"))
    wal = Path(f"{target}-wal")
    with closing(sqlite3.connect(target)) as writer:
        writer.execute("UPDATE widget SET icon = 'mdi:old'")
        writer.commit()
        content = wal.read_bytes()
    # A killed process does not remove its WAL.
    wal.write_bytes(content)
    run_successfully(catalog, "backup", target)
    assert run_successfully(target, "export") == run_successfully(catalog, "export")


def overwrite(path: Path) -> None:
    path.write_bytes(b"scratched " * 1000)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20_000])


@pytest.mark.parametrize("damage", [overwrite, truncate, overwrite_an_index])
def test_restore_renames_a_damaged_catalog(
    catalog: Path, other: Path, backup: Path, damage: Callable[[Path], None]
) -> None:
    damage(catalog)
    before = catalog.read_bytes()
    result = run_on(catalog, "restore", backup, "--yes")
    damaged = catalog.with_name(catalog.name + ".damaged")
    assert (result.exit_code, result.stderr) == (
        0,
        f"Restored {catalog} from {backup}.\n"
        f"The old database is damaged; it was moved to {damaged}.\n"
        f"Tokens and the audit log come from {backup}. Tokens that were revoked after that "
        "backup are valid again: see widget-catalog token list.\n",
    )
    assert damaged.read_bytes() == before
    assert run_successfully(catalog, "export") == run_successfully(other, "export")
    assert run_on(catalog, "check").exit_code == 0


def test_restore_behind_a_link_renames_the_file_and_leaves_no_wal_of_it(
    catalog: Path, backup: Path, tmp_path: Path
) -> None:
    link = tmp_path / "links" / "catalog.db"
    link.parent.mkdir()
    link.symlink_to(catalog)
    catalog.write_bytes(b"scratched " * 1000)
    catalog.chmod(0o640)
    Path(f"{catalog}-wal").write_bytes(b"of the damaged file")
    assert run_on(link, "restore", backup, "--yes").exit_code == 0
    assert link.is_symlink()
    assert stat.S_IMODE(catalog.stat().st_mode) == 0o640
    assert catalog.with_name(catalog.name + ".damaged").read_bytes() == b"scratched " * 1000
    assert not Path(f"{catalog}-wal").exists()
    assert run_on(link, "check").exit_code == 0


def test_restore_over_a_damaged_header_keeps_the_wal_with_the_newest_commits(
    catalog: Path, backup: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "crashed"
    folder.mkdir()
    path = folder / "catalog.db"
    # A process that was killed leaves its WAL behind.
    app = create_app({"DATABASE": catalog})
    assert app.test_client().post("/api/v1/widgets/acme/clock").status_code == 200
    for suffix in ("", "-wal"):
        shutil.copy(f"{catalog}{suffix}", f"{path}{suffix}")
    app.extensions["database"].close()
    content = path.read_bytes()
    path.write_bytes(b"x" * 100 + content[100:])

    for name in ("catalog.db.damaged", "catalog.db.damaged.2"):
        assert str(folder / name) in run_on(path, "restore", backup, "--yes").stderr
        # The second restore replaces a file that is damaged too.
        path.write_bytes(b"scratched " * 1000)

    damaged = folder / "catalog.db.damaged"
    damaged.write_bytes(content[:100] + damaged.read_bytes()[100:])
    with closing(sqlite3.connect(damaged)) as connection:
        counts = dict(connection.execute("SELECT name, download_count FROM widget"))
    assert counts["clock"] == 6
    assert (folder / "catalog.db.damaged.2").read_bytes() == b"scratched " * 1000


READING = ("list", "show acme/clock", "export", "log", "check", "token list", "pack all.pack")


@pytest.mark.parametrize("line", READING)
def test_a_command_that_reads_leaves_a_backup_as_it_is(
    catalog: Path, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "backups"
    folder.mkdir()
    backup = folder / "monday.db"
    run_successfully(catalog, "backup", backup)
    before = backup.read_bytes()
    assert run_on(backup, *line.split()).exit_code == 0
    assert (backup.read_bytes() == before, [*folder.iterdir()]) == (True, [backup])


def test_a_backup_can_be_changed_after_it_was_read(catalog: Path, tmp_path: Path) -> None:
    backup = tmp_path / "monday.db"
    run_successfully(catalog, "backup", backup)
    run_successfully(backup, "yank", "acme/clock@1.0.0")
    assert json.loads(run_successfully(backup, "show", "acme/clock", "--json"))["versions"][0][
        "yanked"
    ]


def test_restore_over_the_file_of_another_program_is_refused(tmp_path: Path, backup: Path) -> None:
    other = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE bookmark (address TEXT)")
        connection.commit()
    before = other.read_bytes()
    assert refused(other, "restore", backup, "--yes") == (
        f"{other} is an SQLite file, but not a widget catalog."
    )
    assert other.read_bytes() == before
    assert not other.with_name("bookmarks.db.damaged").exists()
