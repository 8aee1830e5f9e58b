"""Faults of the file while it is served: 503 as long as they last, then recovery."""

import json
import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from conftest import Server, create_demo, flask, run_here

from catalog.store.connection.database_file import CatalogFile
from catalog.store.connection.wal import WAL_LIMIT

CLOCK = "/api/v1/widgets/acme/clock"
REQUESTS_FOR_THE_FILE = [
    ("GET", "/api/v1/widgets/search"),
    ("GET", CLOCK),
    ("GET", "/api/widgets/acme/registry.json"),
    ("GET", "/api/stats"),
    ("POST", CLOCK),
]
UNAVAILABLE = (503, "5", {"error": "The catalog is not available now."})


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


def send(server: Server, method: str, path: str) -> tuple[int, str | None, object]:
    response, body = server.request(method, path)
    return response.status, response.headers["Retry-After"], json.loads(body)


def count(server: Server) -> int:
    return int(json.loads(server.request("GET", CLOCK)[1])["widget"]["downloadCount"])


def use(server: Server) -> None:
    """Make every thread open the file, fill the cache, and leave writes in the WAL."""
    for method, path in REQUESTS_FOR_THE_FILE:
        assert send(server, method, path)[0] == 200


def remove(catalog: Path) -> None:
    catalog.unlink()


def move_away(catalog: Path) -> None:
    catalog.rename(catalog.with_name("away.db"))


def truncate(catalog: Path) -> None:
    os.truncate(catalog, 50_000)


def truncate_in_the_first_page(catalog: Path) -> None:
    os.truncate(catalog, 1000)


def empty(catalog: Path) -> None:
    os.truncate(catalog, 0)


def put_text(catalog: Path) -> None:
    text = catalog.with_name("text")
    text.write_text("not a database\n" * 1000)
    text.replace(catalog)


def put_another_database(catalog: Path) -> None:
    other = catalog.with_name("bookmarks.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE widget (id)")
    other.replace(catalog)


def put_a_directory(catalog: Path) -> None:
    catalog.unlink()
    catalog.mkdir()


FAULTS = [
    remove,
    move_away,
    truncate,
    truncate_in_the_first_page,
    empty,
    put_text,
    put_another_database,
    put_a_directory,
]


@pytest.mark.parametrize("damage", FAULTS)
def test_requests_are_refused_until_a_sound_file_is_at_the_path(
    catalog: Path, damage: Callable[[Path], None]
) -> None:
    spare = create_demo(catalog.with_name("spare.db"))
    with Server(catalog) as server:
        before = count(server)
        use(server)
        damage(catalog)
        for _ in range(2):
            for method, path in REQUESTS_FOR_THE_FILE:
                assert send(server, method, path) == UNAVAILABLE, (method, path)
            health, _, body = send(server, "GET", "/api/health")
            assert (health, body["status"]) == (503, "unavailable")
            assert send(server, "GET", "/api/version")[0] == 200
        if catalog.is_dir():
            catalog.rmdir()
        spare.replace(catalog)
        assert count(server) == before
        use(server)
        assert count(server) == before + 1
        assert send(server, "GET", "/api/health") == (200, None, {"status": "ok"})
        assert server.stop() == 0
        assert "Traceback" not in server.errors
    assert_sound(catalog, before + 1)


@pytest.mark.parametrize("damage", [remove, truncate, truncate_in_the_first_page, empty, put_text])
def test_restore_repairs_a_running_service(catalog: Path, damage: Callable[[Path], None]) -> None:
    backup = catalog.with_name("backup.db")
    with Server(catalog) as server:
        use(server)
        flask(catalog, "backup", backup)
        expected = count(server)
        use(server)
        damage(catalog)
        assert send(server, *REQUESTS_FOR_THE_FILE[0]) == UNAVAILABLE
        flask(catalog, "restore", backup, "--yes")
        assert count(server) == expected
        use(server)
        assert send(server, "GET", "/api/health") == (200, None, {"status": "ok"})
        assert server.stop() == 0
    assert_sound(catalog, expected + 1)


def test_file_that_grows_in_a_checkpoint_is_not_taken_for_a_truncated_one(catalog: Path) -> None:
    with closing(CatalogFile(catalog, catalog.name, 1, 0, WAL_LIMIT)) as file:
        before = catalog.stat()
        # A checkpoint writes the new length into the first page, then the pages in their order.
        with catalog.open("r+b") as content:
            content.seek(28)
            content.write((before.st_size // 4096 + 10).to_bytes(4))
            content.seek(0, os.SEEK_END)
            content.write(bytes(4096))
        assert file.is_at_path(catalog.stat())
        # Of another thread, which has waited for the GIL since it read the status.
        assert file.is_at_path(before)


def test_restored_smaller_catalog_is_not_taken_for_a_truncated_one(
    catalog: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small.db"
    flask(small, "init")
    with Server(catalog) as server:
        use(server)
        size = catalog.stat().st_size
        flask(catalog, "restore", small, "--yes")
        assert catalog.stat().st_size < size
        for _ in range(2):
            assert send(server, "GET", "/api/stats")[2]["widgets"] == 0
            assert send(server, "POST", CLOCK)[0] == 404
            assert send(server, "GET", "/api/health")[0] == 200
        assert server.stop() == 0


def open_files(server: Server) -> list[str]:
    """Return the paths of all files that the service has open."""
    paths = []
    for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
        # The service may have closed it meanwhile.
        with suppress(FileNotFoundError):
            paths.append(os.readlink(descriptor))
    return paths


NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")


@NEEDS_PROC
def test_replaced_file_is_closed_by_every_thread(catalog: Path) -> None:
    away = catalog.with_name("away.db")
    with Server(catalog) as server:
        use(server)
        for _ in range(10):
            assert server.request("GET", "/")[0].status == 200
        catalog.rename(away)
        create_demo(catalog.with_name("new.db")).replace(catalog)
        assert send(server, "GET", CLOCK)[0] == 200
        paths = open_files(server)
        assert [path for path in paths if "away" in path or "deleted" in path] == []
        assert server.stop() == 0


@NEEDS_PROC
def test_number_of_open_files_is_bounded_after_many_replacements(catalog: Path) -> None:
    spare = create_demo(catalog.with_name("spare.db"))
    # Connections: the first one, the I/O thread, the writer and two pool threads.
    limit = 5 * len(["catalog.db", "catalog.db-wal", "catalog.db-shm"])
    with Server(catalog) as server:
        for _ in range(20):
            shutil.copy(spare, catalog.with_name("copy.db")).replace(catalog)
            use(server)
        assert len([path for path in open_files(server) if str(catalog) in path]) <= limit
        assert server.stop() == 0


@pytest.mark.parametrize("suffixes", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids=" and ".join)
def test_installs_after_the_wal_was_removed_survive_a_kill(
    catalog: Path, suffixes: list[str]
) -> None:
    with Server(catalog) as server:
        use(server)
        before = count(server)
        for suffix in suffixes:
            Path(f"{catalog}{suffix}").unlink()
        for number in range(1, 21):
            assert send(server, "POST", CLOCK)[0] == 200
            assert count(server) == before + number
        assert send(server, "GET", "/api/health")[0] == 200
        # Another process reads the same file.
        flask(catalog, "show", "acme/clock")
        server.process.kill()
        server.process.wait()
    with Server(catalog) as server:
        assert count(server) == before + 20
        assert server.stop() == 0
    assert_sound(catalog, before + 20)


def test_health_check_recovers_a_removed_wal(catalog: Path) -> None:
    with Server(catalog) as server:
        use(server)
        before = count(server)
        Path(f"{catalog}-wal").unlink()
        assert send(server, "GET", "/api/health")[0] == 200
        server.process.kill()
        server.process.wait()
    assert_sound(catalog, before)


def test_installs_are_refused_while_the_wal_is_that_of_another_process(catalog: Path) -> None:
    wal = Path(f"{catalog}-wal")
    with Server(catalog) as server:
        use(server)
        before = count(server)
        wal.unlink()
        wal.write_bytes(b"of another process")
        for _ in range(2):
            assert send(server, "POST", CLOCK) == UNAVAILABLE
            health, _, body = send(server, "GET", "/api/health")
            assert (health, body["status"]) == (503, "read-only")
            assert count(server) == before
        wal.unlink()
        assert send(server, "POST", CLOCK)[0] == 200
        assert send(server, "GET", "/api/health")[0] == 200
        assert server.stop() == 0
    assert_sound(catalog, before + 1)


def test_installs_are_refused_until_a_restart_after_another_process_replaced_the_wal_index(
    catalog: Path,
) -> None:
    with Server(catalog) as server:
        use(server)
        before = count(server)
        Path(f"{catalog}-shm").unlink()
        # A separate process, since SQLite shares the index within a process.
        flask(catalog, "show", "acme/clock")
        assert send(server, "POST", CLOCK) == UNAVAILABLE
        health, _, body = send(server, "GET", "/api/health")
        assert (health, body["status"]) == (503, "read-only")
        assert count(server) == before
        assert server.stop() == 0
    with Server(catalog) as server:
        assert send(server, "POST", CLOCK)[0] == 200
        assert server.stop() == 0
    assert_sound(catalog, before + 1)


def test_service_does_not_start_with_a_truncated_file(catalog: Path) -> None:
    truncate(catalog)
    before = catalog.read_bytes()
    process = run_here(catalog, "app.py")
    assert (process.returncode, process.stderr) == (
        1,
        f"Error: {catalog} cannot be opened: database disk image is malformed.\n",
    )
    assert catalog.read_bytes() == before


class LimitedFiles:
    """A limit on the size of files, like a quota; any user can set it."""

    def __init__(self, catalog: Path) -> None:
        self._wal = catalog.with_name(f"{catalog.name}-wal")

    def fill(self, server: Server) -> None:
        limit = self._wal.stat().st_size
        before = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, before[1]))

    def free(self, server: Server) -> None:
        _, limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, limit))


class SmallDisk:
    """A small file system, with a file that fills it."""

    def __init__(self, catalog: Path) -> None:
        self._filler = catalog.with_name("filler")

    def fill(self, server: Server) -> None:
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self, server: Server) -> None:
        self._filler.unlink()


@pytest.fixture(params=[LimitedFiles, SmallDisk])
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, object]]:
    """A catalog on a disk that can be filled, and the object that fills it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    mounted = request.param is SmallDisk
    if mounted and subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        catalog = create_demo(disk / "catalog.db")
        yield catalog, request.param(catalog)
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


Limited = tuple[Path, LimitedFiles | SmallDisk]


def test_full_disk_refuses_installs_but_not_reads_and_health_reports_it(
    limited: Limited,
) -> None:
    catalog, disk = limited
    with Server(catalog) as server:
        before = count(server)
        # The WAL is still empty.
        disk.fill(server)
        for _ in range(2):
            assert send(server, "POST", CLOCK) == UNAVAILABLE
            health, _, body = send(server, "GET", "/api/health")
            assert (health, body) == (
                503,
                {"status": "read-only", "error": "The database cannot be written."},
            )
            assert count(server) == before
            for method, path in REQUESTS_FOR_THE_FILE[:-1]:
                assert send(server, method, path)[0] == 200
        # An install of a missing widget writes nothing, so it does not clear the fault.
        assert send(server, "POST", "/api/v1/widgets/acme/none")[0] == 404
        assert send(server, "GET", "/api/health")[0] == 503
        disk.free(server)
        assert send(server, "GET", "/api/health") == (200, None, {"status": "ok"})
        assert count(server) == before
        assert send(server, "POST", CLOCK)[0] == 200
        assert server.stop() == 0
        assert "Traceback" not in server.errors
    assert_sound(catalog, before + 1)


@pytest.mark.parametrize("limited", [SmallDisk], indirect=True)
def test_on_a_full_disk_installs_reuse_the_space_of_the_wal(limited: Limited) -> None:
    catalog, disk = limited
    with Server(catalog) as server:
        use(server)
        before = count(server)
        disk.fill(server)
        for _ in range(20):
            assert send(server, "POST", CLOCK)[0] == 200
        assert send(server, "GET", "/api/health")[0] == 200
        assert count(server) == before + 20
        assert server.stop() == 0
    assert_sound(catalog, before + 20)


def test_health_check_writes_nothing_while_installs_succeed(catalog: Path) -> None:
    disk = LimitedFiles(catalog)
    with Server(catalog) as server:
        count(server)
        disk.fill(server)
        assert send(server, "POST", CLOCK) == UNAVAILABLE
        disk.free(server)
        assert send(server, "POST", CLOCK)[0] == 200
        wal = os.stat(f"{catalog}-wal")
        assert send(server, "GET", "/api/health")[0] == 200
        assert os.stat(f"{catalog}-wal").st_mtime_ns == wal.st_mtime_ns
        assert server.stop() == 0


def assert_sound(catalog: Path, installs: int) -> None:
    with closing(sqlite3.connect(catalog)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        row = connection.execute(
            "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
        ).fetchone()
    assert row == (installs,)
