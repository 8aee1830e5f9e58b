"""The server process: start, first line of output, exit codes, and errors at the start."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import document
from conftest import ROOT, Server, create_catalog
from prepared_processes import start_python

from app import create_app
from catalog.settings import SettingError

PROGRAMS = {
    "python app.py": [str(ROOT / "app.py")],
    "flask serve": ["-m", "flask", "--app", str(ROOT / "app.py"), "serve"],
}


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program with settings; kills what still runs at the end of the test."""
    processes = []

    def start_process(program: str, directory: Path, **settings: object) -> subprocess.Popen[str]:
        # The tests may run with interrupts ignored, which a child process would inherit.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        environment = {
            **os.environ,
            "CATALOG_PORT": "0",
            "CATALOG_LOG_LEVEL": "error",
            **{name: str(value) for name, value in settings.items()},
        }
        process = start_python(PROGRAMS[program], environment, cwd=directory)
        signal.signal(signal.SIGINT, before)
        processes.append(process)
        return process

    yield start_process
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def refusal(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Starts a service that must fail; returns what it writes to standard error."""

    def start_and_fail(program: str, directory: Path, **settings: object) -> str:
        process = start(program, directory, **settings)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (1, "")
        return err

    return start_and_fail


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("program", "stop_signal"),
    [
        ("python app.py", signal.SIGTERM),
        ("python app.py", signal.SIGINT),
        ("flask serve", signal.SIGTERM),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_it_prints_its_address_serves_the_configured_file_and_exits_with_0(
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    program: str,
    stop_signal: signal.Signals,
) -> None:
    create_catalog(tmp_path / "mine.db", document("acme/only-here"))
    create_catalog(tmp_path / "catalog.db", document("acme/not-this-one"))
    process = start(program, tmp_path, CATALOG_DATABASE="mine.db")
    line = process.stdout.readline()
    printed = re.fullmatch(r"Serving mine\.db on http://127\.0\.0\.1:([0-9]+)\n", line)
    assert printed
    url = f"http://127.0.0.1:{printed[1]}/api/v1/widgets/search"
    with urllib.request.urlopen(url, timeout=10) as response:
        (widget,) = json.load(response)["widgets"]
    process.send_signal(stop_signal)
    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == 0
    assert widget["name"] == "only-here"
    assert set(files(tmp_path)) == {"mine.db", "catalog.db"}


def test_an_acknowledged_install_survives_a_kill(tmp_path: Path) -> None:
    path = create_catalog(tmp_path / "mine.db", document("acme/clock", downloadCount=41))
    running = Server(path)
    _, body = running.request("POST", "/api/v1/widgets/acme/clock")
    running.process.kill()
    running.process.communicate()
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT download_count FROM widget").fetchone()
    connection.close()
    assert (json.loads(body), count) == ({"success": True}, 42)


def make_text(path: Path) -> None:
    path.write_bytes(b"A letter, not a database.\n" * 400)


def make_foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE widget (scope, name)")
    connection.commit()
    connection.close()


def make_newer(path: Path) -> None:
    create_catalog(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1000")
    connection.close()


BAD_DATABASES = {
    "missing": (lambda path: None, "does not exist"),
    "text": (make_text, "not a database"),
    "foreign": (make_foreign, "not one of a widget catalog"),
    "newer": (make_newer, "schema version 1000"),
    "directory": (Path.mkdir, "is not a file"),
}


@pytest.mark.parametrize("kind", BAD_DATABASES)
def test_a_file_that_cannot_be_served_is_named_and_not_changed(
    refusal: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    make, reason = BAD_DATABASES[kind]
    path = tmp_path / "given.db"
    make(path)
    before = files(tmp_path)
    message = refusal("python app.py", tmp_path, CATALOG_DATABASE=path)
    assert message.startswith(f"Error: {path} ")
    assert reason in message
    assert message.count("\n") == 1
    assert files(tmp_path) == before


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_invalid_setting_stops_the_start_with_one_sentence(
    refusal: Callable[..., str], tmp_path: Path, program: str
) -> None:
    message = refusal(program, tmp_path, CATALOG_PORT="many")
    assert message == "Error: CATALOG_PORT must be a whole number from 0 to 65535, not 'many'.\n"


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


def test_an_invalid_host_is_named(refusal: Callable[..., str], tmp_path: Path) -> None:
    database = create_catalog(tmp_path / "mine.db")
    message = refusal("python app.py", tmp_path, CATALOG_DATABASE=database, CATALOG_HOST="a..b")
    assert message == "Error: CATALOG_HOST a..b is not an address to serve on.\n"


def test_options_of_the_whole_server_are_its_methods(server: Server) -> None:
    response, body = server.request("OPTIONS", "*")
    assert (response.status, body) == (200, b"")
    assert response.headers["Allow"] == "GET, HEAD, PATCH, POST, PUT, OPTIONS"
    assert response.headers["Content-Length"] == "0"


@pytest.mark.parametrize("path", ["/api/v1/widgets/search", "/api/health", "/api/me"])
def test_no_header_names_the_server_software(server: Server, path: str) -> None:
    response, _ = server.request("GET", path)
    usual = {"content-type", "content-length", "date", "etag", "cache-control", "vary"}
    usual |= {"x-content-type-options"}
    usual |= {"access-control-allow-origin", "www-authenticate"}
    assert {name.lower() for name in response.headers} <= usual
