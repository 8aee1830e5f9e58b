"""What becomes of the file while it is served: refused for as long as it lasts, then well again."""

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

CLOCK = "/api/v1/widgets/acme/clock"
NEEDS_THE_FILE = [
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


def ask(server: Server, method: str, path: str) -> tuple[int, str | None, object]:
    response, body = server.request(method, path)
    return response.status, response.headers["Retry-After"], json.loads(body)


def count(server: Server) -> int:
    return int(json.loads(server.request("GET", CLOCK)[1])["widget"]["downloadCount"])


def use(server: Server) -> None:
    """Have every thread open the file, keep answers, and leave writes in the log."""
    for method, path in NEEDS_THE_FILE:
        assert ask(server, method, path)[0] == 200


def remove(catalog: Path) -> None:
    catalog.unlink()


def move_away(catalog: Path) -> None:
    catalog.rename(catalog.with_name("away.db"))


def cut_off(catalog: Path) -> None:
    os.truncate(catalog, 50_000)


def cut_off_in_the_first_page(catalog: Path) -> None:
    os.truncate(catalog, 1000)


def empty(catalog: Path) -> None:
    os.truncate(catalog, 0)


def put_text(catalog: Path) -> None:
    letter = catalog.with_name("letter")
    letter.write_text("not a database\n" * 1000)
    letter.replace(catalog)


def put_another_program_s(catalog: Path) -> None:
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
    cut_off,
    cut_off_in_the_first_page,
    empty,
    put_text,
    put_another_program_s,
    put_a_directory,
]


@pytest.mark.parametrize("break_it", FAULTS)
def test_what_needs_the_file_is_refused_until_another_is_moved_into_its_place(
    catalog: Path, break_it: Callable[[Path], None]
) -> None:
    spare = create_demo(catalog.with_name("spare.db"))
    with Server(catalog) as server:
        before = count(server)
        use(server)
        break_it(catalog)
        for _ in range(2):
            for method, path in NEEDS_THE_FILE:
                assert ask(server, method, path) == UNAVAILABLE, (method, path)
            health, _, said = ask(server, "GET", "/api/health")
            assert (health, said["status"]) == (503, "unavailable")
            assert ask(server, "GET", "/api/version")[0] == 200
        if catalog.is_dir():
            catalog.rmdir()
        spare.replace(catalog)
        assert count(server) == before
        use(server)
        assert count(server) == before + 1
        assert ask(server, "GET", "/api/health") == (200, None, {"status": "ok"})
        assert server.stop() == 0
        assert "Traceback" not in server.errors
    assert_sound(catalog, before + 1)


@pytest.mark.parametrize("break_it", [remove, cut_off, cut_off_in_the_first_page, empty, put_text])
def test_flask_restore_brings_a_running_service_back(
    catalog: Path, break_it: Callable[[Path], None]
) -> None:
    backup = catalog.with_name("backup.db")
    with Server(catalog) as server:
        use(server)
        flask(catalog, "backup", backup)
        kept = count(server)
        use(server)
        break_it(catalog)
        assert ask(server, *NEEDS_THE_FILE[0]) == UNAVAILABLE
        flask(catalog, "restore", backup, "--yes")
        assert count(server) == kept
        use(server)
        assert ask(server, "GET", "/api/health") == (200, None, {"status": "ok"})
        assert server.stop() == 0
    assert_sound(catalog, kept + 1)


def test_a_smaller_catalog_that_is_restored_is_not_taken_for_one_cut_off(
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
            assert ask(server, "GET", "/api/stats")[2]["widgets"] == 0
            assert ask(server, "POST", CLOCK)[0] == 404
            assert ask(server, "GET", "/api/health")[0] == 200
        assert server.stop() == 0


def open_files(server: Server) -> list[str]:
    """The paths of all that the service has open."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    return [os.readlink(descriptor) for descriptor in folder.iterdir()]


NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")


@NEEDS_PROC
def test_replaced_file_is_closed_by_every_thread(catalog: Path) -> None:
    away = catalog.with_name("away.db")
    with Server(catalog) as server:
        use(server)
        for _ in range(10):
            assert server.request("GET", "/")[0].status == 200
        catalog.rename(away)
        create_demo(catalog)
        assert ask(server, "GET", CLOCK)[0] == 200
        left = [path for path in open_files(server) if "away" in path or "deleted" in path]
        assert left == []
        assert server.stop() == 0


@NEEDS_PROC
def test_replacing_the_file_again_and_again_opens_no_more_files(catalog: Path) -> None:
    spare = create_demo(catalog.with_name("spare.db"))
    # Besides the first connection, of the I/O thread, the writer and two others.
    most = 5 * len(["catalog.db", "catalog.db-wal", "catalog.db-shm"])
    with Server(catalog, CATALOG_THREADS="2") as server:
        for _ in range(20):
            shutil.copy(spare, catalog.with_name("copy.db")).replace(catalog)
            use(server)
        assert len([path for path in open_files(server) if str(catalog) in path]) <= most
        assert server.stop() == 0


@pytest.mark.parametrize("suffixes", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids=" and ".join)
def test_installs_last_though_the_wal_was_removed_before(
    catalog: Path, suffixes: list[str]
) -> None:
    with Server(catalog) as server:
        use(server)
        before = count(server)
        for suffix in suffixes:
            Path(f"{catalog}{suffix}").unlink()
        for number in range(1, 21):
            assert ask(server, "POST", CLOCK)[0] == 200
            assert count(server) == before + number
        assert ask(server, "GET", "/api/health")[0] == 200
        # Another process sees them too.
        flask(catalog, "show", "acme/clock")
        server.process.kill()
        server.process.wait()
    with Server(catalog) as server:
        assert count(server) == before + 20
        assert server.stop() == 0
    assert_sound(catalog, before + 20)


def test_health_notices_and_mends_a_removed_wal(catalog: Path) -> None:
    with Server(catalog) as server:
        use(server)
        before = count(server)
        Path(f"{catalog}-wal").unlink()
        assert ask(server, "GET", "/api/health")[0] == 200
        server.process.kill()
        server.process.wait()
    assert_sound(catalog, before)


def test_installs_are_refused_while_the_wal_is_another_s(catalog: Path) -> None:
    wal = Path(f"{catalog}-wal")
    with Server(catalog) as server:
        use(server)
        before = count(server)
        wal.unlink()
        wal.write_bytes(b"of another process")
        for _ in range(2):
            assert ask(server, "POST", CLOCK) == UNAVAILABLE
            health, _, said = ask(server, "GET", "/api/health")
            assert (health, said["status"]) == (503, "read-only")
            assert count(server) == before
        wal.unlink()
        assert ask(server, "POST", CLOCK)[0] == 200
        assert ask(server, "GET", "/api/health")[0] == 200
        assert server.stop() == 0
    assert_sound(catalog, before + 1)


def test_installs_are_refused_until_a_restart_where_the_index_of_the_wal_is_another_s(
    catalog: Path,
) -> None:
    with Server(catalog) as server:
        use(server)
        before = count(server)
        Path(f"{catalog}-shm").unlink()
        # A process of its own: within one, SQLite shares what it has open.
        flask(catalog, "show", "acme/clock")
        assert ask(server, "POST", CLOCK) == UNAVAILABLE
        health, _, said = ask(server, "GET", "/api/health")
        assert (health, said["status"]) == (503, "read-only")
        assert count(server) == before
        assert server.stop() == 0
    with Server(catalog) as server:
        assert ask(server, "POST", CLOCK)[0] == 200
        assert server.stop() == 0
    assert_sound(catalog, before + 1)


def test_a_file_that_was_cut_off_stops_the_start_in_one_sentence(catalog: Path) -> None:
    cut_off(catalog)
    before = catalog.read_bytes()
    process = run_here(catalog, "app.py")
    assert (process.returncode, process.stderr) == (
        1,
        f"Error: {catalog} cannot be opened: database disk image is malformed.\n",
    )
    assert catalog.read_bytes() == before


class LimitedFiles:
    """No file of the process may grow: what a quota does, and any user can do it."""

    def __init__(self, catalog: Path) -> None:
        self._log = catalog.with_name(f"{catalog.name}-wal")

    def fill(self, server: Server) -> None:
        most = self._log.stat().st_size
        before = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, before[1]))

    def free(self, server: Server) -> None:
        _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))


class SmallDisc:
    """A file system with a file in it that takes all the room."""

    def __init__(self, catalog: Path) -> None:
        self._filler = catalog.with_name("filler")

    def fill(self, server: Server) -> None:
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self, server: Server) -> None:
        self._filler.unlink()


@pytest.fixture(params=[LimitedFiles, SmallDisc])
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, object]]:
    """A catalog on a disc that can be filled, and what fills it."""
    disc = tmp_path / "disc"
    disc.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disc)]
    mounted = request.param is SmallDisc
    if mounted and subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system, and not everywhere")
    try:
        catalog = create_demo(disc / "catalog.db")
        yield catalog, request.param(catalog)
    finally:
        if mounted:
            subprocess.run(["umount", str(disc)], check=True)


Limited = tuple[Path, LimitedFiles | SmallDisc]


def test_on_a_full_disc_reads_go_on_installs_are_refused_and_health_says_so(
    limited: Limited,
) -> None:
    catalog, disc = limited
    with Server(catalog) as server:
        before = count(server)
        disc.fill(server)  # before anything is in the log
        for _ in range(2):
            assert ask(server, "POST", CLOCK) == UNAVAILABLE
            health, _, said = ask(server, "GET", "/api/health")
            assert (health, said) == (
                503,
                {"status": "read-only", "error": "The database cannot be written."},
            )
            assert count(server) == before
            for method, path in NEEDS_THE_FILE[:-1]:
                assert ask(server, method, path)[0] == 200
        # An install of what is not there writes nothing, and proves nothing.
        assert ask(server, "POST", "/api/v1/widgets/acme/none")[0] == 404
        assert ask(server, "GET", "/api/health")[0] == 503
        disc.free(server)
        assert ask(server, "GET", "/api/health") == (200, None, {"status": "ok"})
        assert count(server) == before
        assert ask(server, "POST", CLOCK)[0] == 200
        assert server.stop() == 0
        assert "Traceback" not in server.errors
    assert_sound(catalog, before + 1)


@pytest.mark.parametrize("limited", [SmallDisc], indirect=True)
def test_on_a_full_disc_installs_go_on_in_the_room_that_the_log_has(limited: Limited) -> None:
    catalog, disc = limited
    with Server(catalog) as server:
        use(server)
        before = count(server)
        disc.fill(server)
        for _ in range(20):
            assert ask(server, "POST", CLOCK)[0] == 200
        assert ask(server, "GET", "/api/health")[0] == 200
        assert count(server) == before + 20
        assert server.stop() == 0
    assert_sound(catalog, before + 20)


def test_health_of_a_service_that_can_write_costs_no_write(catalog: Path) -> None:
    disc = LimitedFiles(catalog)
    with Server(catalog) as server:
        count(server)
        disc.fill(server)
        assert ask(server, "POST", CLOCK) == UNAVAILABLE
        disc.free(server)
        assert ask(server, "POST", CLOCK)[0] == 200
        written = os.stat(f"{catalog}-wal")
        assert ask(server, "GET", "/api/health")[0] == 200
        assert os.stat(f"{catalog}-wal").st_mtime_ns == written.st_mtime_ns
        assert server.stop() == 0


def assert_sound(catalog: Path, installs: int) -> None:
    with closing(sqlite3.connect(catalog)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute(
            "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
        ).fetchone()
    assert found == (installs,)
