"""The server process: its settings and options, the first line of output, exit codes, sockets."""

import http.client
import json
import os
import pty
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from click.testing import CliRunner
from conftest import ROOT, Limits, Server, create_catalog, run_on
from prepared_processes import start_python

from app import create_app
from catalog.__main__ import cli
from catalog.settings import SettingError

Serve = Callable[..., subprocess.Popen[str]]
ONLY_HERE = "/api/v1/widgets/acme/only-here"


PROGRAMS = {
    "widget-catalog serve": ["-m", "catalog", "serve"],
    "python app.py": [str(ROOT / "app.py")],
    "flask serve": ["-m", "flask", "--app", str(ROOT / "app.py"), "serve"],
}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts the service in a directory of its own; kills what still runs at the end."""
    processes = []

    def start(
        *options: str, program: str = "widget-catalog serve", **settings: str
    ) -> subprocess.Popen[str]:
        environment = {"PYTHONPATH": str(ROOT), "CATALOG_LOG_LEVEL": "error", **settings}
        # The tests may run with interrupts ignored, which a child process would inherit.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = start_python(
            [*PROGRAMS[program], *options], {**os.environ, **environment}, cwd=tmp_path
        )
        signal.signal(signal.SIGINT, before)
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
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def failure(process: subprocess.Popen[str]) -> str:
    """Return the sentence with which the service did not start."""
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, "")
    return errors


def get(path: str, target: str, **headers: str) -> bytes:
    """Return the body of a response over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(path)
        lines = [f"GET {target} HTTP/1.1", "Host: a", *map(": ".join, headers.items())]
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.read()


def test_on_a_terminal_it_names_the_pages_and_the_reference(database: Path) -> None:
    terminal, end = pty.openpty()
    settings = {"CATALOG_DATABASE": str(database.absolute()), "CATALOG_PORT": "0"}
    with (
        subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=end,
        ) as process,
        open(terminal, encoding="utf-8") as screen,
    ):
        first, *others = (screen.readline().rstrip() for _ in range(3))
        process.terminate()
    os.close(end)
    url = first.split()[-1]
    assert others == [f"Pages: {url}/", f"API reference: {url}/docs"]


@pytest.mark.parametrize(
    ("program", "number"),
    [
        ("widget-catalog serve", signal.SIGTERM),
        ("python app.py", signal.SIGINT),
        ("flask serve", signal.SIGTERM),
    ],
)
def test_it_prints_its_address_serves_the_configured_file_and_exits_with_0(
    serve: Serve, database: Path, program: str, number: signal.Signals
) -> None:
    before = database.rename("mine.db").read_bytes()
    # A catalog that is there is not replaced by the demo.
    options = ["--demo"] if program == "widget-catalog serve" else []
    process = serve(*options, program=program, CATALOG_DATABASE="mine.db", CATALOG_PORT="0")
    line = first_line(process)
    printed = re.fullmatch(r"Serving mine\.db on (http://127\.0\.0\.1:[0-9]+)\n", line)
    assert printed
    with urllib.request.urlopen(f"{printed[1]}/api/v1/widgets/search", timeout=60) as response:
        (widget,) = json.load(response)["widgets"]
    assert widget["name"] == "only-here"
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
    assert (os.listdir(), Path("mine.db").read_bytes()) == (["mine.db"], before)


def test_an_acknowledged_install_survives_a_kill(tmp_path: Path) -> None:
    path = create_catalog(tmp_path / "mine.db", document("acme/clock", downloadCount=41))
    with Server(path) as running:
        _, body = running.request("POST", "/api/v1/widgets/acme/clock")
        running.process.kill()
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT download_count FROM widget").fetchone()
    assert (json.loads(body), count) == ({"success": True}, 42)


def test_a_file_that_cannot_be_served_is_named_and_not_changed(
    serve: Serve, tmp_path: Path
) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_bytes(b"A letter, not a database.\n" * 400)
    message = failure(serve("--unix", "s", CATALOG_DATABASE="letter.txt"))
    assert message.startswith("Error: letter.txt ")
    assert "not a database" in message
    assert message.count("\n") == 1
    # Not even a socket is there.
    assert os.listdir(tmp_path) == ["letter.txt"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_invalid_setting_stops_the_start_with_one_sentence(serve: Serve, program: str) -> None:
    message = failure(serve(program=program, CATALOG_PORT="many"))
    assert message == "Error: CATALOG_PORT must be a whole number from 0 to 65535, not 'many'.\n"


def test_print_json_prints_the_address_and_demo_creates_the_catalog(
    serve: Serve, tmp_path: Path
) -> None:
    process = serve("--demo", "--port", "0", "--print-json", CATALOG_PORT="1")
    line = json.loads(first_line(process))
    url = line.pop("url")
    with urllib.request.urlopen(f"{url}/api/stats", timeout=60) as response:
        assert json.load(response)["widgets"] == 33
    assert line == {"database": str(tmp_path / "catalog.db"), "pid": process.pid}
    assert stop(process) == (0, "Created catalog.db with 34 widgets and 205 versions.\n")


def test_init_creates_an_empty_catalog_and_host_overrides_the_setting(
    serve: Serve, tmp_path: Path
) -> None:
    process = serve("--init", "--host", "127.0.0.2", "--port", "0", CATALOG_HOST="not an address")
    assert first_line(process).startswith("Serving catalog.db on http://127.0.0.2:")
    assert stop(process) == (0, "Created catalog.db with 0 widgets and 0 versions.\n")


def test_a_service_on_a_port_in_use_ends_before_it_migrates_the_file(
    serve: Serve, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        connection.executescript((ROOT / "tests/data/schema-1.0.0.sql").read_text(encoding="utf-8"))
    before = (tmp_path / "catalog.db").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        message = failure(serve("--port", str(port)))
    reason = "Address already in use. Choose another port with --port or CATALOG_PORT."
    assert message == f"Error: Cannot listen on 127.0.0.1:{port}: {reason}\n"
    assert (tmp_path / "catalog.db").read_bytes() == before
    # On another port it is migrated.
    assert first_line(serve("--port", "0")).startswith("Serving catalog.db on ")
    assert (tmp_path / "catalog.db.schema-2").exists()


def test_a_unix_socket_replaces_that_of_a_killed_process_and_is_removed_at_the_end(
    serve: Serve, database: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind("s")
    process = serve("--unix", "s")
    assert first_line(process) == "Serving catalog.db on unix:s\n"
    # For its owner and group.
    assert stat.filemode(os.lstat("s").st_mode) == "srw-rw----"
    assert b'"only-here"' in get("s", "/api/v1/widgets/search")
    assert stop(process) == (0, "")
    assert not os.path.lexists("s")


def test_a_request_whose_client_is_gone_is_read_to_its_end(serve: Serve, database: Path) -> None:
    process = serve("--unix", "s")
    first_line(process)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("s")
        # More than is read at once.
        fields = f"Host: a\r\nX: {'x' * 6000}\r\n"
        client.sendall(f"POST {ONLY_HERE} HTTP/1.1\r\n{fields}\r\n".encode())
    assert stop(process) == (0, "")
    assert json.loads(run_on(database, "export").stdout)["widget"]["downloadCount"] == 1


@pytest.mark.parametrize(("setting", "prefix"), [("unix", "/prefix/"), ("127.0.0.1", "/")])
def test_forwarded_headers_over_a_unix_socket_need_the_word_unix(
    serve: Serve, database: Path, setting: str, prefix: str
) -> None:
    first_line(serve("--unix", "s", CATALOG_TRUSTED_PROXY=setting))
    page = get("s", "/", **{"X-Forwarded-Prefix": "/prefix"}).decode()
    assert f'href="{prefix}docs"' in page


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("used", "Cannot listen on {path}: another process listens on it. Choose another path."),
        ("catalog.db", "Cannot listen on {path}: the file exists and is not a socket."),
        ("none/s", "Cannot listen on {path}: No such file or directory."),
        ("s" * 200, "Cannot listen on {path}: AF_UNIX path too long."),
    ],
)
def test_a_path_where_no_socket_can_be_is_refused(
    serve: Serve, database: Path, path: str, message: str
) -> None:
    before = database.read_bytes()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("used")
        other.listen()
        error = failure(serve("--unix", path))
    assert error == f"Error: {message.format(path=path)}\n"
    assert database.read_bytes() == before


def test_a_unix_socket_and_an_address_are_wrong_usage() -> None:
    result = CliRunner().invoke(cli, ["serve", "--unix", "s", "--port", "0"])
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: --unix cannot be combined with --host or --port.\n")


NUMBERS = ["MAX_CONNECTIONS", "MAX_CONNECTIONS_PER_CLIENT", "MAX_BODY_BYTES"]
NUMBERS += ["REQUEST_TIMEOUT", "IDLE_TIMEOUT", "STOP_TIMEOUT"]
INVALID = {
    **{name: ["", "-1", "1e3", "10000000"] for name in NUMBERS},
    "PORT": ["", "http", "65536", " 80", "8_0", "８０", "80.0", "9" * 5000],
    "LOG_LEVEL": ["", "INFO"],
    "LOG_FORMAT": ["", "xml"],
    "TRUSTED_PROXY": ["*", "proxy.example", "10.0.0.1/8", "10.0.0.0 ::1"],
    "MINIMUM_CLI_VERSION": ["", "1", "v1.0.0", "1.0.0 "],
    "PUBLIC_URL": ["w.example", "//w.example", "ftp://w.example", "https://w.example/?", "a b"],
    "DATABASE": [""],
    "HOST": [""],
    "METRICS": ["9090", ":9090", "::1:9090", "127.0.0.1:65536", "a b:1", "[a]:1"],
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for value in INVALID[name]:
        monkeypatch.setenv(f"CATALOG_{name}", value)
        with pytest.raises(SettingError, match=f"^CATALOG_{name} must be .+[.]$"):
            create_app()


def test_an_invalid_host_is_named(serve: Serve, database: Path) -> None:
    message = failure(serve("--host", "a..b", "--port", "0"))
    assert message == "Error: Cannot listen on a..b: unknown host name or address.\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_does_not_matter(database: Path, closed: str) -> None:
    command = f"exec {sys.executable} -m catalog serve --unix s {closed}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CATALOG_LOG_LEVEL": "info"}
    with subprocess.Popen(
        ["bash", "-c", command], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        with socket.socket(socket.AF_UNIX) as connection:
            while connection.connect_ex("s") and process.poll() is None:
                pass
            connection.sendall(f"GET {ONLY_HERE} HTTP/1.0\r\n\r\n".encode())
            assert connection.recv(4096).startswith(b"HTTP/1.0 200 OK\r\n")
        process.terminate()
        assert (process.wait(timeout=60), process.stderr.read()) == (0, "")
    assert run_on(database, "check").exit_code == 0


# Each name also has an address that this machine does not have, as localhost has ::1 without IPv6.
OTHER_ADDRESS = """
import socket
original = socket.getaddrinfo
def find(host, *arguments, **options):
    others = original("192.0.2.1", *arguments, **options)
    return others if host == "away" else [*others, *original(host, *arguments, **options)]
socket.getaddrinfo = find
"""


def test_an_address_that_this_machine_does_not_have_is_skipped(
    serve: Serve, database: Path, limits: Limits
) -> None:
    folder = limits.run(OTHER_ADDRESS)["PYTHONPATH"].partition(":")[0]
    settings = {"PYTHONPATH": f"{folder}:{ROOT}", "CATALOG_PORT": "0"}
    service = serve("--host", "127.0.0.1", **settings)
    url = first_line(service).split()[-1]
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{url}/api/health", timeout=60) as response:
        assert response.status == 200
    assert stop(service) == (0, "")
    error = failure(serve("--host", "away", "--port", "8080", **settings))
    assert error == "Error: Cannot listen on away:8080: Cannot assign requested address.\n"


def test_a_request_for_the_whole_server_is_refused(server: Server) -> None:
    response, body = server.request("OPTIONS", "*")
    assert response.status == 400
    assert b"the target must be a path or an http or https URL" in body


@pytest.mark.parametrize("path", ["/api/v1/widgets/search", "/api/health", "/api/me"])
def test_no_header_names_the_server_software(server: Server, path: str) -> None:
    response, _ = server.request("GET", path)
    usual = {"content-type", "content-length", "date", "etag", "cache-control", "vary"}
    usual |= {"x-content-type-options"}
    usual |= {"access-control-allow-origin", "access-control-expose-headers", "www-authenticate"}
    assert {name.lower() for name in response.headers} <= usual
