"""widget-catalog serve: its options for the address, the Unix socket, the database, the output."""

import http.client
import json
import os
import socket
import sqlite3
import stat
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from activation import start_with
from builders import document
from click.testing import CliRunner
from conftest import ROOT, create_catalog
from prepared_processes import start_python

from catalog.__main__ import cli

Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts `widget-catalog serve` in an own directory and waits for its first line."""
    processes = []

    def start(*options: str, **settings: str) -> subprocess.Popen[str]:
        environment = {"PYTHONPATH": str(ROOT), "CATALOG_LOG_LEVEL": "error", **settings}
        arguments = ["-m", "catalog", "serve", *options]
        process = start_python(arguments, {**os.environ, **environment}, cwd=tmp_path)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog that is the default in the current directory."""
    monkeypatch.chdir(tmp_path)
    return create_catalog(tmp_path / "catalog.db", document("acme/only-here"))


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline() or process.communicate()[1]


def stop(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Stop the service; return the exit code and standard error."""
    process.terminate()
    _, errors = process.communicate(timeout=10)
    return process.returncode, errors


def failure(process: subprocess.Popen[str]) -> str:
    """Return the sentence with which the service did not start."""
    output, errors = process.communicate(timeout=10)
    assert (process.returncode, output) == (1, "")
    return errors


def get(path: str, target: str, **headers: str) -> bytes:
    """Return the body of a response over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        lines = [f"GET {target} HTTP/1.1", "Host: a", *map(": ".join, headers.items())]
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.read()


def test_print_json_prints_the_address_and_demo_creates_the_catalog(
    serve: Serve, tmp_path: Path
) -> None:
    process = serve("--demo", "--port", "0", "--print-json", CATALOG_PORT="1")
    line = json.loads(first_line(process))
    url = line.pop("url")
    with urllib.request.urlopen(f"{url}/api/stats", timeout=10) as response:
        assert json.load(response)["widgets"] == 33
    assert line == {"database": str(tmp_path / "catalog.db"), "pid": process.pid}
    assert stop(process) == (0, "Created catalog.db with 34 widgets and 205 versions.\n")


def test_init_creates_an_empty_catalog_and_host_overrides_the_setting(
    serve: Serve, tmp_path: Path
) -> None:
    process = serve("--init", "--host", "127.0.0.2", "--port", "0", CATALOG_HOST="not an address")
    assert first_line(process).startswith("Serving catalog.db on http://127.0.0.2:")
    assert stop(process) == (0, "Created catalog.db with 0 widgets and 0 versions.\n")


def test_an_existing_catalog_is_served_unchanged(serve: Serve, database: Path) -> None:
    before = database.read_bytes()
    process = serve("--demo", "--port", "0")
    assert first_line(process).startswith("Serving catalog.db on http://127.0.0.1:")
    assert stop(process) == (0, "")
    assert database.read_bytes() == before


def test_a_service_on_a_port_in_use_ends_before_it_migrates_the_file(
    serve: Serve, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        connection.executescript((ROOT / "tests/data/schema-1.sql").read_text(encoding="utf-8"))
    before = (tmp_path / "catalog.db").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        message = failure(serve("--port", str(port)))
    reason = "cannot be served on: Address already in use; set another port."
    assert message == f"Error: CATALOG_HOST 127.0.0.1 with CATALOG_PORT {port} {reason}\n"
    assert (tmp_path / "catalog.db").read_bytes() == before
    # On another port it is migrated.
    assert first_line(serve("--port", "0")).startswith("Serving catalog.db on ")
    assert (tmp_path / "catalog.db.schema-1").exists()


def test_a_service_that_cannot_start_leaves_no_unix_socket(serve: Serve, tmp_path: Path) -> None:
    assert failure(serve("--unix", "s")).startswith("Error: catalog.db does not exist")
    assert not os.path.lexists(tmp_path / "s")


def test_a_unix_socket_is_served_to_owner_and_group_and_removed_at_the_end(
    serve: Serve, database: Path
) -> None:
    process = serve("--unix", "s")
    assert first_line(process) == "Serving catalog.db on unix:s\n"
    status = os.lstat("s")
    assert (stat.S_ISSOCK(status.st_mode), stat.S_IMODE(status.st_mode)) == (True, 0o660)
    assert b'"only-here"' in get("s", "/api/v1/widgets/search")
    assert stop(process) == (0, "")
    assert not os.path.lexists("s")


def test_a_socket_of_a_killed_process_is_replaced(serve: Serve, database: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind("s")
    process = serve("--unix", "s")
    assert first_line(process) == "Serving catalog.db on unix:s\n"
    assert b"version" in get("s", "/api/version")


def test_a_socket_at_the_path_of_another_process_is_left_at_the_end(
    serve: Serve, database: Path
) -> None:
    process = serve("--unix", "s")
    first_line(process)
    os.unlink("s")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("s")
        assert stop(process) == (0, "")
    assert os.path.lexists("s")


@pytest.mark.parametrize(("setting", "prefix"), [("unix", "/prefix/"), ("127.0.0.1", "/")])
def test_forwarded_headers_over_a_unix_socket_need_the_word_unix(
    serve: Serve, database: Path, setting: str, prefix: str
) -> None:
    first_line(serve("--unix", "s", CATALOG_TRUSTED_PROXY=setting))
    page = get("s", "/", **{"X-Forwarded-Prefix": "/prefix"}).decode()
    assert f'href="{prefix}docs"' in page


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("used", "is in use by another process; choose another path."),
        ("catalog.db", "exists and is not a socket; choose another path."),
        ("none/s", "cannot be served on: No such file or directory."),
        ("s" * 200, "cannot be served on: AF_UNIX path too long."),
    ],
    ids=["in use", "a file", "missing directory", "too long"],
)
def test_a_path_where_no_socket_can_be_is_refused(
    serve: Serve, database: Path, path: str, reason: str
) -> None:
    before = database.read_bytes()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("used")
        other.listen()
        message = failure(serve("--unix", path))
    assert message == f"Error: {path} {reason}\n"
    assert database.read_bytes() == before


@pytest.mark.parametrize("options", [("--host", "127.0.0.1"), ("--port", "0")], ids=" ".join)
def test_a_unix_socket_and_an_address_are_wrong_usage(options: tuple[str, str]) -> None:
    result = CliRunner().invoke(cli, ["serve", "--unix", "s", *options])
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: --unix cannot be combined with --host or --port.\n")


def test_sockets_passed_by_systemd_take_precedence_over_a_unix_socket(database: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as passed:
        port = passed.getsockname()[1]
        process = start_with(
            database,
            passed,
            program=("-m", "catalog", "serve", "--unix", str(database.parent / "s")),
        )
        try:
            assert first_line(process).endswith(f" on http://127.0.0.1:{port}\n")
            assert not (database.parent / "s").exists()
        finally:
            process.kill()
            process.communicate()


def test_a_response_after_a_failed_request_has_no_request_id(serve: Serve, database: Path) -> None:
    process = serve("--port", "0", "--print-json")
    url = urlsplit(json.loads(first_line(process))["url"])
    with closing(sqlite3.connect(database)) as connection:
        # Every search fails.
        connection.execute("DROP TABLE summary")
    ids = []
    for target in ("/api/v1/widgets/search", "/api/v1/widgets/acme/none"):
        client = http.client.HTTPConnection("127.0.0.1", url.port or 0, timeout=10)
        with closing(client):
            client.request("GET", target)
            ids.append(client.getresponse().headers["X-Request-Id"])
    assert ids[0] is not None
    assert ids[1] is None
