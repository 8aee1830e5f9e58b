"""Faults of the file: one that is gone, damaged, on a full disk, or created twice."""

import fcntl
import json
import os
import resource
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from conftest import (
    ROOT,
    Limits,
    Server,
    create_catalog,
    create_demo,
    flask,
    run_here,
    run_on,
)
from scrapes import MeasuredServer

from catalog.system.atomic_files import file_size

CLOCK = "/api/v1/widgets/acme/clock"
REQUESTS_FOR_THE_FILE = [
    ("GET", "/api/v1/widgets/search"),
    ("GET", CLOCK),
    ("GET", "/api/widgets/acme/registry.json"),
    ("GET", "/api/stats"),
    ("POST", CLOCK),
]
UNAVAILABLE = (503, "5", {"error": "The catalog is temporarily unavailable."})


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def watched(limits: Limits) -> dict[str, str]:
    """The environment of a server that looks at its file more often than once a second."""
    return limits.set("serving.event_loop", CHECK_INTERVAL=0.02)


@pytest.fixture
def unwatched(limits: Limits) -> dict[str, str]:
    """The environment of a server that looks at its file only before a write, and for health.

    A longer interval would not do: a signal that arrives just before the event loop waits is
    noticed when the interval ends.
    """
    return limits.run(
        "import catalog.serving.server as server\nserver.stop_if_gone = lambda *_: None\n"
    )


def send(server: Server, method: str, path: str) -> tuple[int, str | None, object]:
    response, body = server.request(method, path)
    return response.status, response.headers["Retry-After"], json.loads(body)


def count(server: Server) -> int:
    return int(json.loads(server.request("GET", CLOCK)[1])["widget"]["downloadCount"])


def use(server: Server) -> None:
    """Send a request of each kind, and leave an install in the WAL."""
    for method, path in REQUESTS_FOR_THE_FILE:
        assert send(server, method, path)[0] == 200


def assert_sound(catalog: Path, installs: int) -> None:
    with closing(sqlite3.connect(catalog)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        row = connection.execute(
            "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
        ).fetchone()
    assert row == (installs,)


def replace(catalog: Path) -> None:
    create_demo(catalog.with_name("new.db")).replace(catalog)


def replace_by_a_directory(catalog: Path) -> None:
    catalog.unlink()
    catalog.mkdir()


def remove_wal(catalog: Path) -> None:
    Path(f"{catalog}-wal").unlink()


def remove_wal_index(catalog: Path) -> None:
    Path(f"{catalog}-shm").unlink()


def let_another_process_create_both(catalog: Path) -> None:
    remove_wal_index(catalog)
    remove_wal(catalog)
    flask(catalog, "show", "acme/clock")


def replace_the_wal(catalog: Path) -> None:
    remove_wal(catalog)
    Path(f"{catalog}-wal").write_bytes(b"of another process")


def put_a_link_in_its_place(catalog: Path) -> None:
    # The link leads to the same file, whose WAL has the name of the link.
    catalog.rename(catalog.with_name("real.db"))
    catalog.symlink_to("real.db")


# What is done to the file, and the suffix of the file that is named.
CHANGES: dict[Callable[[Path], object], str] = {
    Path.unlink: "",
    replace: "",
    replace_by_a_directory: "",
    remove_wal: "-wal",
    remove_wal_index: "-shm",
    let_another_process_create_both: "-wal",
    replace_the_wal: "-wal",
    put_a_link_in_its_place: "",
}


@pytest.mark.parametrize(("change", "gone"), CHANGES.items())
def test_service_ends_with_one_sentence_when_its_file_is_gone_and_loses_no_install(
    catalog: Path, change: Callable[[Path], object], gone: str, watched: dict[str, str]
) -> None:
    # The opened file keeps a name.
    opened = catalog.with_name("opened.db")
    os.link(catalog, opened)
    with Server(catalog, **watched) as server:
        use(server)
        acknowledged = count(server)
        change(catalog)
        _, errors = server.process.communicate(timeout=60)
        assert server.process.returncode == 1
        (line,) = errors.splitlines()
        assert line.endswith(
            f" ERROR {catalog}{gone} was removed or replaced while it was open. The service must be"
            " restarted."
        )
    assert_sound(opened, acknowledged)


def remove_all(catalog: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{catalog}{suffix}").unlink()


@pytest.mark.parametrize("remove", [remove_all, Path.unlink, replace])
def test_service_saves_the_last_copy_of_a_file_that_was_deleted(
    catalog: Path, remove: Callable[[Path], object], watched: dict[str, str]
) -> None:
    earlier = Path(f"{catalog}.rescued")
    earlier.write_bytes(b"of another day")
    with Server(catalog, **watched) as server:
        use(server)
        acknowledged = count(server)
        remove(catalog)
        _, errors = server.process.communicate(timeout=60)
        assert server.process.returncode == 1
    rescued = Path(f"{catalog}.rescued.2")
    assert (
        f"{catalog} was deleted while it was open. Its content was saved as {rescued}; restore it "
        "with widget-catalog restore."
    ) in errors
    assert_sound(rescued, acknowledged)
    assert stat.S_IMODE(rescued.stat().st_mode) == 0o600
    assert earlier.read_bytes() == b"of another day"


def test_service_saves_the_last_copy_even_if_it_is_damaged(
    catalog: Path, watched: dict[str, str]
) -> None:
    with catalog.open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\xff" * 4096)
    damaged = catalog.read_bytes()
    with Server(catalog, **watched) as server:
        catalog.unlink()
        server.process.communicate(timeout=60)
    rescued = Path(f"{catalog}.rescued").read_bytes()
    assert (len(rescued), rescued[-4096:]) == (len(damaged), b"\xff" * 4096)


def test_serve_does_not_create_a_catalog_in_place_of_one_that_was_removed(
    catalog: Path, watched: dict[str, str]
) -> None:
    with Server(catalog, **watched) as server:
        use(server)
        acknowledged = count(server)
        moved = catalog.rename(catalog.with_name("moved.db"))
        server.process.communicate(timeout=60)
    process = run_here(catalog, "-m", "flask", "serve", "--init")
    assert (process.returncode, process.stderr) == (
        1,
        f"Error: {catalog} was removed, but catalog.db-wal was not. Put the file back, or create a "
        "new one: widget-catalog init\n",
    )
    assert not catalog.exists()
    moved.rename(catalog)
    with Server(catalog) as server:
        assert count(server) == acknowledged


def test_wal_of_a_replaced_file_is_not_applied_to_the_new_one(
    catalog: Path, watched: dict[str, str]
) -> None:
    with Server(catalog, **watched) as server:
        before = count(server)
        for _ in range(20):
            use(server)
        replace(catalog)
        server.process.communicate(timeout=60)
    assert not Path(f"{catalog}-wal").exists()
    assert_sound(catalog, before)
    with Server(catalog) as server:
        use(server)
        assert server.stop() == 0
    assert_sound(catalog, before + 1)


@pytest.mark.parametrize(("change", "gone"), CHANGES.items())
def test_once_the_file_is_gone_reads_go_on_and_installs_are_refused(
    catalog: Path, change: Callable[[Path], object], gone: str, unwatched: dict[str, str]
) -> None:
    opened = catalog.with_name("opened.db")
    os.link(catalog, opened)
    with Server(catalog, **unwatched) as server:
        use(server)
        acknowledged = count(server)
        change(catalog)
        for _ in range(2):
            assert count(server) == acknowledged
            assert send(server, "POST", CLOCK) == UNAVAILABLE
            status, _, body = send(server, "GET", "/api/health")
            assert (status, body["status"]) == (503, "unavailable")
        assert server.stop() == 0
        sentence = f"{catalog}{gone} was removed or replaced while it was open."
        assert {line.partition(": ")[2] for line in server.errors.splitlines()} == {sentence}
    assert_sound(opened, acknowledged)


def move_the_file_over_the_link(catalog: Path) -> None:
    (catalog.parent / "real.db").replace(catalog)


def move_the_file_over_the_second_link(catalog: Path) -> None:
    (catalog.parent / "real.db").replace(catalog.parent / "second.db")


def let_the_link_lead_elsewhere(catalog: Path) -> None:
    other = create_catalog(catalog.parent / "other.db", document("acme/clock"))
    catalog.unlink()
    catalog.symlink_to(other)


# What is done to the link or its file, and the name in the message.
LINK_CHANGES: dict[Callable[[Path], object], str] = {
    move_the_file_over_the_link: "catalog.db",
    move_the_file_over_the_second_link: "real.db",
    let_the_link_lead_elsewhere: "catalog.db",
    Path.unlink: "catalog.db",
}


@pytest.mark.parametrize(("change", "gone"), LINK_CHANGES.items())
def test_no_install_is_acknowledged_when_the_path_is_no_longer_the_link_that_was_opened(
    catalog: Path, change: Callable[[Path], object], gone: str, unwatched: dict[str, str]
) -> None:
    second = catalog.with_name("second.db")
    real = catalog.rename(catalog.with_name("real.db"))
    Path(f"{catalog}-bundles").rename(f"{real}-bundles")
    second.symlink_to("real.db")
    catalog.symlink_to("second.db")
    opened = catalog.with_name("opened.db")
    os.link(real, opened)
    with Server(catalog, **unwatched) as server:
        use(server)
        acknowledged = count(server)
        change(catalog)
        assert send(server, "POST", CLOCK) == UNAVAILABLE
        assert server.stop() == 0
    assert f"{catalog.with_name(gone)} was removed or replaced while it was open." in server.errors
    assert_sound(opened, acknowledged)


def test_request_in_flight_gets_its_response_when_the_file_is_gone(
    catalog: Path, watched: dict[str, str]
) -> None:
    with (
        Server(catalog, **watched) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as client,
    ):
        client.sendall(f"GET {CLOCK} HTTP/1.1\r\n".encode())
        use(server)
        remove_wal(catalog)
        # The service has noticed it.
        assert server.process.stderr is not None
        assert server.process.stderr.readline().endswith("must be restarted.\n")
        client.sendall(b"Host: localhost\r\n\r\n")
        head = client.recv(4096).decode()
        assert head.startswith("HTTP/1.1 200 ")
        assert "\r\nConnection: close\r\n" in head
        assert server.process.wait(20) == 1
        # It has noticed it again meanwhile, and said it once.
        assert server.process.stderr.read() == ""


ROOT_PAGE = "SELECT rootpage FROM sqlite_schema WHERE name = :name"


def overwrite(catalog: Path, table: str) -> None:
    """Damage the first page of a table."""
    with closing(sqlite3.connect(catalog)) as connection:
        (page,) = connection.execute(ROOT_PAGE, {"name": table}).fetchone()
    with catalog.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def test_after_a_damaged_page_was_read_health_is_503_until_a_restart(catalog: Path) -> None:
    overwrite(catalog, "about")
    with MeasuredServer(catalog) as server:
        assert send(server, "GET", "/api/health")[0] == 200
        assert server.value("widget_catalog_database_readable") == 1
        for _ in range(3):
            assert send(server, "GET", f"{CLOCK}/about") == UNAVAILABLE
            assert send(server, "GET", "/api/health") == (
                503,
                None,
                {"status": "unavailable", "error": "The database is damaged."},
            )
        assert server.value("widget_catalog_database_readable") == 0
        assert server.stop() == 0
        advice = "The database is damaged: database disk image is malformed. Run widget-catalog"
        assert server.errors.count(advice) == 1
        assert "Traceback" not in server.errors


def test_health_is_503_if_the_versions_are_damaged(catalog: Path) -> None:
    overwrite(catalog, "version")
    with Server(catalog) as server:
        assert send(server, "GET", "/api/health") == (
            503,
            None,
            {"status": "unavailable", "error": "The database cannot be read."},
        )


def limit_files(server: Server, size: int | None) -> None:
    """Limit the size of the server's files, like a quota, or end that; any user can do it."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    soft = hard if size is None else size
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_refuses_installs_but_not_reads_and_health_reports_it(catalog: Path) -> None:
    with Server(catalog) as server:
        before = count(server)
        # The WAL is still empty.
        limit_files(server, Path(f"{catalog}-wal").stat().st_size)
        for _ in range(2):
            assert send(server, "POST", CLOCK) == UNAVAILABLE
            health, _, body = send(server, "GET", "/api/health")
            assert (health, body) == (
                503,
                {"status": "read-only", "error": "Cannot write to the database."},
            )
            assert count(server) == before
            for method, path in REQUESTS_FOR_THE_FILE[:-1]:
                assert send(server, method, path)[0] == 200
        # An install of a missing widget writes nothing, so it does not clear the fault.
        assert send(server, "POST", "/api/v1/widgets/acme/none")[0] == 404
        assert send(server, "GET", "/api/health")[0] == 503
        limit_files(server, None)
        assert send(server, "GET", "/api/health") == (200, None, {"status": "ok"})
        assert count(server) == before
        # So does an install that succeeds.
        limit_files(server, 0)
        assert send(server, "POST", CLOCK) == UNAVAILABLE
        limit_files(server, None)
        assert send(server, "POST", CLOCK)[0] == 200
        # While installs succeed, it writes nothing.
        wal = os.stat(f"{catalog}-wal").st_mtime_ns
        assert send(server, "GET", "/api/health")[0] == 200
        assert os.stat(f"{catalog}-wal").st_mtime_ns == wal
        assert server.stop() == 0
        assert "Traceback" not in server.errors
    assert_sound(catalog, before + 1)


def test_full_disk_refuses_no_install_while_the_wal_can_be_used_again(tmp_path: Path) -> None:
    catalog = create_catalog(tmp_path / "catalog.db", document("acme/clock", downloadCount=0))
    with Server(catalog) as server:
        installs = 0
        while file_size(Path(f"{catalog}-wal")) <= catalog.stat().st_size:
            assert send(server, "POST", CLOCK)[0] == 200
            installs += 1
        limit_files(server, file_size(Path(f"{catalog}-wal")))
        assert send(server, "POST", CLOCK)[0] == 200
        assert server.stop() == 0
    assert_sound(catalog, installs + 1)


def test_health_is_ok_when_an_install_succeeds_while_it_waits_to_write(catalog: Path) -> None:
    with (
        Server(catalog) as server,
        closing(sqlite3.connect(catalog, isolation_level=None)) as other,
        ThreadPoolExecutor(2) as clients,
    ):
        for _ in range(10):
            limit_files(server, 0)
            assert send(server, "POST", CLOCK) == UNAVAILABLE
            limit_files(server, None)
            other.execute("BEGIN IMMEDIATE")
            waiting = []
            for method, path in (("POST", CLOCK), ("GET", "/api/health")):
                waiting.append(clients.submit(send, server, method, path))
                # It passes through the thread of this request before it waits in another one.
                assert send(server, "DELETE", CLOCK)[0] == 405
            other.execute("ROLLBACK")
            assert [each.result()[0] for each in waiting] == [200, 200]


def test_of_two_inits_at_once_the_second_does_not_replace_the_file_of_the_first(
    tmp_path: Path,
) -> None:
    path, bundles = tmp_path / "catalog.db", tmp_path / "catalog.db-bundles"
    bundles.mkdir()
    command = [sys.executable, "-m", "flask", "init", "--demo"]
    environment = {**os.environ, "CATALOG_DATABASE": str(path)}
    descriptor = os.open(bundles, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as second:
        assert second.stderr is not None
        # It waits in the middle of its work.
        assert second.stderr.readline().startswith("Another command is writing to ")
        assert run_on(path, "init").exit_code == 0
        created = path.stat().st_ino, path.read_bytes()
        os.close(descriptor)
        assert second.stderr.read() == f"Error: {path} already exists.\n"
    assert second.returncode == 1
    assert (path.stat().st_ino, path.read_bytes()) == created


def test_an_init_that_waits_for_another_one_does_not_replace_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, first, lock = tmp_path / "catalog.db", create_demo(tmp_path / "first.db"), fcntl.flock
    created = first.stat().st_ino

    def lock_after_the_first(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            first.replace(path)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_the_first)
    assert run_on(path, "init").stderr == f"Error: {path} already exists.\n"
    assert path.stat().st_ino == created


# Kills the process before the step with this number that gives the catalog or another file a name.
KILL_AT = """
import os, sys
steps = 0
def count(event, arguments):
    global steps
    if event in ("os.rename", "os.link") and CATALOG in map(str, arguments):
        steps += 1
        if steps == NUMBER:
            os.kill(os.getpid(), 9)
sys.addaudithook(count)
"""


def test_restore_over_a_damaged_file_leaves_a_file_whenever_it_is_killed(
    catalog: Path, tmp_path: Path
) -> None:
    backup, damaged = create_demo(tmp_path / "backup.db"), b"scratched " * 1000
    for number in range(1, 10):
        catalog.write_bytes(damaged)
        code = KILL_AT.replace("CATALOG", repr(str(catalog))).replace("NUMBER", str(number))
        arguments = ["restore", str(backup), "--yes"]
        code += f"import runpy; sys.argv = {['flask', *arguments]!r}\n"
        code += "runpy.run_module('flask', run_name='__main__')\n"
        process = run_here(catalog, "-c", code)
        if process.returncode != -signal.SIGKILL:
            break
        assert catalog.read_bytes() == damaged
        served = run_here(catalog, "-m", "flask", "serve", "--init")
        assert (served.returncode, served.stderr) == (
            1,
            f"Error: {catalog} cannot be opened: file is not a database.\n",
        )
    assert (process.returncode, number) == (0, 3)
    assert Path(f"{catalog}.damaged").read_bytes() == damaged
    assert run_on(catalog, "export").stdout == run_on(backup, "export").stdout
