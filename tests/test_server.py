"""The service as a process: how it starts, what it prints, how it ends, when it refuses."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import document
from conftest import ROOT, Server

from app import create_app
from catalog.documents import check_document
from catalog.settings import SettingError
from catalog.store import writes
from catalog.store.database import Database

PROGRAMS = {
    "python app.py": [sys.executable, str(ROOT / "app.py")],
    "flask serve": [sys.executable, "-m", "flask", "--app", str(ROOT / "app.py"), "serve"],
}


TIMES_AND_LIMITS = ["BACKLOG", "MAX_CONNECTIONS", "MAX_HEAD_BYTES", "MAX_BODY_BYTES"]
TIMES_AND_LIMITS += ["REQUEST_TIMEOUT", "IDLE_TIMEOUT", "STOP_TIMEOUT"]


def create(path: Path, *documents: dict[str, object]) -> Path:
    Database(path).create(writes.put_documents(map(check_document, documents)))
    return path


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program with settings; whatever still runs at the end of the test is ended."""
    processes = []

    def start_process(program: str, directory: Path, **settings: object) -> subprocess.Popen[str]:
        # Whoever runs the tests may ignore interrupts, and a child inherits that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            PROGRAMS[program],
            cwd=directory,
            env={
                **os.environ,
                "CATALOG_PORT": "0",
                "CATALOG_LOG_LEVEL": "error",
                **{name: str(value) for name, value in settings.items()},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        signal.signal(signal.SIGINT, before)
        processes.append(process)
        return process

    yield start_process
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def refusal(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """What a service that must not start says on standard error."""

    def refused(program: str, directory: Path, **settings: object) -> str:
        process = start(program, directory, **settings)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (1, "")
        return err

    return refused


def get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("python app.py", signal.SIGTERM),
        ("python app.py", signal.SIGINT),
        ("flask serve", signal.SIGTERM),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_it_prints_its_address_serves_the_file_it_is_given_and_ends_cleanly(
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    program: str,
    ending: signal.Signals,
) -> None:
    create(tmp_path / "mine.db", document("acme/only-here"))
    create(tmp_path / "catalog.db", document("acme/not-this-one"))
    process = start(program, tmp_path, CATALOG_DATABASE="mine.db")
    line = process.stdout.readline()
    printed = re.fullmatch(r"Serving mine\.db on http://127\.0\.0\.1:([0-9]+)\n", line)
    assert printed
    found = json.loads(get(int(printed[1]), "/api/v1/widgets/search"))
    process.send_signal(ending)
    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == 0
    assert [widget["name"] for widget in found["widgets"]] == ["only-here"]
    assert set(files(tmp_path)) == {"mine.db", "catalog.db"}


def test_an_install_that_was_answered_survives_a_kill(tmp_path: Path) -> None:
    path = create(tmp_path / "mine.db", document("acme/clock", downloadCount=41))
    running = Server(path)
    _, answer = running.request("POST", "/api/v1/widgets/acme/clock")
    running.process.kill()
    running.process.communicate()
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT download_count FROM widget").fetchone()
    connection.close()
    assert (json.loads(answer), count) == ({"success": True}, 42)


def test_a_port_that_is_taken_is_named(
    refusal: Callable[..., str], tmp_path: Path, taken_port: int
) -> None:
    database = create(tmp_path / "mine.db")
    said = refusal("python app.py", tmp_path, CATALOG_DATABASE=database, CATALOG_PORT=taken_port)
    named = f"CATALOG_HOST 127.0.0.1 with CATALOG_PORT {taken_port}"
    assert said == f"Error: {named} cannot be served on: Address already in use.\n"


def make_text(path: Path) -> None:
    path.write_bytes(b"A letter, not a database.\n" * 400)


def make_foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE widget (scope, name)")
    connection.commit()
    connection.close()


def make_foreign_with_log(path: Path) -> None:
    """What a program that was cut off leaves: its last writes are in the log alone."""
    source = path.with_name("source")
    connection = sqlite3.connect(source)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE widget (scope, name)")
    connection.commit()
    for end in ("", "-wal"):
        shutil.copy(f"{source}{end}", f"{path}{end}")
    connection.close()
    source.unlink()


def make_newer(path: Path) -> None:
    create(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1000")
    connection.close()


BAD_DATABASES = {
    "missing": (lambda path: None, "does not exist"),
    "text": (make_text, "not a database"),
    "foreign": (make_foreign, "not one of a widget catalog"),
    "foreign with a log": (make_foreign_with_log, "not one of a widget catalog"),
    "newer": (make_newer, "schema version 1000"),
    "directory": (Path.mkdir, "is not a file"),
}


@pytest.mark.parametrize("kind", BAD_DATABASES)
def test_a_file_that_cannot_be_served_is_named_and_left_as_it_is(
    refusal: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    make, reason = BAD_DATABASES[kind]
    path = tmp_path / "given.db"
    make(path)
    before = files(tmp_path)
    said = refusal("python app.py", tmp_path, CATALOG_DATABASE=path)
    assert said.startswith(f"Error: {path} ")
    assert reason in said
    assert said.count("\n") == 1
    assert files(tmp_path) == before


def test_flask_serve_refuses_a_file_as_python_does(
    refusal: Callable[..., str], tmp_path: Path
) -> None:
    make_newer(tmp_path / "given.db")
    said = refusal("flask serve", tmp_path, CATALOG_DATABASE="given.db")
    assert said.startswith("Error: given.db has schema version 1000")
    assert said.count("\n") == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_bad_setting_stops_the_start_in_one_sentence(
    refusal: Callable[..., str], tmp_path: Path, program: str
) -> None:
    said = refusal(program, tmp_path, CATALOG_THREADS="many")
    assert said == "Error: CATALOG_THREADS must be a whole number from 1 to 64, not 'many'.\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("PORT", value) for value in ("", "http", "-1", "65536", " 80", "8_0", "８０", "80.0")),
        *(("THREADS", value) for value in ("", "0", "65", "two")),
        *((name, value) for name in TIMES_AND_LIMITS for value in ("", "-1", "1e3", "10000000")),
        *((name, "0") for name in TIMES_AND_LIMITS if name != "MAX_BODY_BYTES"),
        *(("MAX_CONNECTIONS_PER_CLIENT", value) for value in ("", "-1", "few", "100001")),
        *(("LOG_LEVEL", value) for value in ("", "INFO", "debug")),
        *(("LOG_FORMAT", value) for value in ("", "xml")),
        *(
            ("TRUSTED_PROXY", value)
            for value in ("*", "proxy.example", "10.0.0.1/8", "10.0.0.0 ::1")
        ),
        *(("MINIMUM_CLI_VERSION", value) for value in ("", "1", "v1.0.0", "1.0.0 ", "latest")),
        *(("MIRROR_WORKERS", value) for value in ("", "0", "33", "few")),
        *(
            ("PUBLIC_URL", value)
            for value in ("w.example", "//w.example", "ftp://w.example", "a b")
        ),
        *(("PUBLIC_URL", f"https://w.example/{end}") for end in ("?", "?x=1", "#", "#x", " ")),
        ("DATABASE", ""),
        ("HOST", ""),
        pytest.param("PORT", "9" * 5000, id="PORT-5000 digits"),
        pytest.param("THREADS", "9" * 5000, id="THREADS-5000 digits"),
    ],
)
def test_a_bad_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"CATALOG_{name}", value)
    with pytest.raises(SettingError, match=f"^CATALOG_{name} must be .+[.]$"):
        create_app()


def test_a_host_that_is_none_is_named(refusal: Callable[..., str], tmp_path: Path) -> None:
    database = create(tmp_path / "mine.db")
    said = refusal("python app.py", tmp_path, CATALOG_DATABASE=database, CATALOG_HOST="a..b")
    assert "CATALOG_HOST" in said
    assert said.count("\n") == 1
    assert not said.endswith("..\n")


@pytest.mark.parametrize("path", ["/api/v1/widgets/search", "/api/health", "/api/me"])
def test_the_server_does_not_say_what_it_is_made_of(server: Server, path: str) -> None:
    response, _ = server.request("GET", path)
    usual = {"content-type", "content-length", "date", "etag", "cache-control"}
    usual |= {"x-content-type-options"}
    asked_for = {"access-control-allow-origin", "www-authenticate"}
    assert {name.lower() for name in response.headers} <= usual | asked_for


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/api/v1/widgets/acme/clock", "/api/stats", "/api/me", "/none"])
def test_no_answer_is_to_be_taken_for_what_it_does_not_say_it_is(
    server: Server, method: str, path: str
) -> None:
    response, _ = server.request(method, path)
    assert response.headers.get_all("X-Content-Type-Options") == ["nosniff"]


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}, {"Range": "bytes=0-9"}], ids=str)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    ["/", "/openapi.json", "/static/catalog.css", "/api/v1/widgets/search", "/api/v1/widgets/a/b"],
)
def test_no_header_comes_twice(
    server: Server, path: str, method: str, headers: dict[str, str]
) -> None:
    response, body = server.request(method, path, **headers)
    names = sorted(name.lower() for name, _ in response.getheaders())
    assert names == sorted(set(names))
    assert {"content-length", "date", "x-content-type-options"} <= set(names)
    assert len(body) == (0 if method == "HEAD" else int(response.headers["Content-Length"]))
