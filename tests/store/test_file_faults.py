"""Faults of the file while it is served: one that is gone, damaged, shorter, or on a full disk."""

import json
import os
import resource
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Limits, Server, create_demo, flask, run_here

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


# What is done to the file, and what is said about it.
CHANGES: dict[Callable[[Path], object], str] = {
    Path.unlink: " was removed",
    replace: " was replaced",
    replace_by_a_directory: " was replaced",
    remove_wal: "-wal was removed or replaced",
    remove_wal_index: "-shm was removed or replaced",
    let_another_process_create_both: "-wal was removed or replaced",
    replace_the_wal: "-wal was removed or replaced",
}


@pytest.mark.parametrize(("change", "gone"), CHANGES.items())
def test_service_ends_with_one_sentence_when_its_file_is_gone_and_loses_no_install(
    catalog: Path, change: Callable[[Path], object], gone: str
) -> None:
    # The opened file keeps a name.
    opened = catalog.with_name("opened.db")
    os.link(catalog, opened)
    with Server(catalog) as server:
        use(server)
        acknowledged = count(server)
        change(catalog)
        _, errors = server.process.communicate(timeout=20)
        assert server.process.returncode == 1
        (line,) = errors.splitlines()
        assert line.endswith(
            f" ERROR {catalog}{gone} while it was open. The service must be started again."
        )
    assert_sound(opened, acknowledged)


def test_serve_does_not_create_a_catalog_in_place_of_one_that_was_removed(catalog: Path) -> None:
    with Server(catalog) as server:
        use(server)
        acknowledged = count(server)
        moved = catalog.rename(catalog.with_name("moved.db"))
        server.process.communicate(timeout=20)
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


def test_wal_of_a_replaced_file_is_not_applied_to_the_new_one(catalog: Path) -> None:
    with Server(catalog) as server:
        before = count(server)
        for _ in range(20):
            use(server)
        replace(catalog)
        server.process.communicate(timeout=20)
    assert not Path(f"{catalog}-wal").exists()
    assert_sound(catalog, before)
    with Server(catalog) as server:
        use(server)
        assert server.stop() == 0
    assert_sound(catalog, before + 1)


@pytest.mark.parametrize(("change", "gone"), CHANGES.items())
def test_once_the_file_is_gone_reads_go_on_and_installs_are_refused(
    catalog: Path, change: Callable[[Path], object], gone: str, limits: Limits
) -> None:
    # The server looks at its file only before a write, and for health.
    unwatched = limits.set("serving.event_loop", CHECK_INTERVAL=3600)
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
        sentence = f"{catalog}{gone} while it was open."
        assert server.errors.count(sentence) == len(server.errors.splitlines()) == 1
    assert_sound(opened, acknowledged)


def test_request_in_flight_gets_its_response_when_the_file_is_gone(catalog: Path) -> None:
    with (
        Server(catalog) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as client,
    ):
        client.sendall(f"GET {CLOCK} HTTP/1.1\r\n".encode())
        use(server)
        remove_wal(catalog)
        # The service has noticed it.
        assert server.process.stderr is not None
        assert server.process.stderr.readline().endswith("must be started again.\n")
        client.sendall(b"Host: localhost\r\n\r\n")
        head = client.recv(4096).decode()
        assert head.startswith("HTTP/1.1 200 ")
        assert "\r\nConnection: close\r\n" in head
        assert server.process.wait(20) == 1


@pytest.mark.parametrize("size", [0, 50_000])
def test_service_ends_when_its_file_is_truncated_and_does_not_start_with_it(
    catalog: Path, size: int
) -> None:
    with Server(catalog) as server:
        use(server)
        os.truncate(catalog, size)
        _, errors = server.process.communicate(timeout=20)
        assert server.process.returncode == 1
        assert f"{catalog} was truncated while it was open." in errors
    before = catalog.read_bytes()
    process = run_here(catalog, "app.py")
    assert (process.returncode, process.stderr.count("\n")) == (1, 1)
    assert catalog.read_bytes() == before


ROOT_PAGE = "SELECT rootpage FROM sqlite_schema WHERE name = :name"


def overwrite(catalog: Path, table: str) -> None:
    """Damage the first page of a table."""
    with closing(sqlite3.connect(catalog)) as connection:
        (page,) = connection.execute(ROOT_PAGE, {"name": table}).fetchone()
    with catalog.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def test_after_a_damaged_page_was_read_health_is_503_until_a_restart(catalog: Path) -> None:
    overwrite(catalog, "version")
    with Server(catalog) as server:
        assert send(server, "GET", "/api/health")[0] == 200
        for _ in range(3):
            assert send(server, "GET", CLOCK) == UNAVAILABLE
            assert send(server, "GET", "/api/health") == (
                503,
                None,
                {"status": "unavailable", "error": "The database is damaged."},
            )
        assert server.stop() == 0
        advice = "The database is damaged: database disk image is malformed. Look at it with"
        assert server.errors.count(advice) == 1
        assert "Traceback" not in server.errors


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
                {"status": "read-only", "error": "The database cannot be written."},
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
        assert send(server, "POST", CLOCK)[0] == 200
        # While installs succeed, it writes nothing.
        wal = os.stat(f"{catalog}-wal").st_mtime_ns
        assert send(server, "GET", "/api/health")[0] == 200
        assert os.stat(f"{catalog}-wal").st_mtime_ns == wal
        assert server.stop() == 0
        assert "Traceback" not in server.errors
    assert_sound(catalog, before + 1)
