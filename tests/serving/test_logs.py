"""The log: no client can forge a line, and no request waits for the reader."""

import fcntl
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import ROOT, Server, create_catalog, create_demo

SEARCH, CLOCK = "/api/v1/widgets/search", "/api/v1/widgets/acme/clock"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

Logged = Callable[..., tuple[list[str], str]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def logged(database: Path) -> Logged:
    """Runs a service while a function uses it; returns its log lines and its errors."""

    def run(use: Callable[[Server], object], **settings: str) -> tuple[list[str], str]:
        server = Server(database, **{"CATALOG_LOG_LEVEL": "info", **settings})
        use(server)
        server.process.terminate()
        out, err = server.process.communicate(timeout=60)
        assert server.process.returncode == 0
        return out.splitlines(), err

    return run


def send(server: Server, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        while connection.recv(65536):
            pass


def damage(database: Path) -> None:
    """Make every response that contains a version fail with 500."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript("DROP VIEW version_entry; DROP TABLE summary")


def test_a_line_has_time_client_request_status_size_and_duration(
    logged: Logged,
) -> None:
    sizes = []

    def use(server: Server) -> None:
        sizes.append(len(server.request("GET", f"{SEARCH}?q=clock&limit=1")[1]))
        server.request("POST", CLOCK)
        server.request("HEAD", "/api/version")
        server.request("GET", "/api/v1/nowhere")

    lines, errors = logged(use)
    patterns = [
        rf"{TIME} 127\.0\.0\.1 GET {SEARCH}\?q=clock&limit=1 200 {sizes[0]} \d+\.\d",
        rf"{TIME} 127\.0\.0\.1 POST {CLOCK} 200 17 \d+\.\d",
        rf"{TIME} 127\.0\.0\.1 HEAD /api/version 200 0 \d+\.\d",
        rf"{TIME} 127\.0\.0\.1 GET /api/v1/nowhere 404 46 \d+\.\d",
    ]
    # An install is logged by another thread than reads, so the order may differ.
    assert len(lines) == len(patterns)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    assert errors == ""


@pytest.mark.parametrize(
    ("level", "expected"),
    [("info", ["503"]), ("debug", ["200", "200", "503"]), ("warning", ["503"])],
)
def test_successful_health_checks_are_logged_at_the_level_debug_only(
    logged: Logged, database: Path, level: str, expected: list[str]
) -> None:
    def use(server: Server) -> None:
        for method in ("GET", "HEAD"):
            server.request(method, "/api/health")
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("DROP TABLE version")
        server.request("GET", "/api/health")

    lines, _ = logged(use, CATALOG_LOG_LEVEL=level)
    assert [line.split(" ")[4] for line in lines if "/api/health " in line] == expected


def test_requests_that_the_server_refuses_are_logged(logged: Logged) -> None:
    def use(server: Server) -> None:
        send(server, b"what is this\r\n\r\n")
        send(server, b"GET /a?b=" + b"c" * 40_000 + b" HTTP/1.1\r\n\r\n")
        fields = "Host: a\r\nContent-Length: 99999999\r\n"
        send(server, f"POST {SEARCH} HTTP/1.1\r\n{fields}\r\n".encode())

    lines, _ = logged(use)
    shown = [line.split(" ")[2:5] for line in lines]
    assert shown[0] == ["-", r"what\x20is\x20this", "400"]
    assert re.fullmatch(r"- GET\\x20/a\?b=c+\.\.\. 414", " ".join(shown[1]))
    assert shown[2] == ["POST", SEARCH, "413"]


@pytest.mark.parametrize(
    ("level", "expected"), [("warning", [[SEARCH, "500"]]), ("error", [])], ids=["warning", "error"]
)
def test_other_levels_log_at_most_failures_and_no_query(
    logged: Logged, database: Path, level: str, expected: list[list[str]]
) -> None:
    def use(server: Server) -> None:
        server.request("GET", "/api/health?secret=1")
        server.request("GET", f"{SEARCH}?page=0&secret=2")
        damage(database)
        server.request("GET", f"{SEARCH}?q=clock&secret=3")

    lines, errors = logged(use, CATALOG_LOG_LEVEL=level)
    assert [line.split(" ")[3:5] for line in lines] == expected
    assert errors.count(" ERROR ") == 1
    assert "secret" not in errors


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failure_has_one_request_id_in_response_log_and_traceback(
    logged: Logged, database: Path, form: str
) -> None:
    damage(database)
    responses: list[Any] = []

    def use(server: Server) -> None:
        responses.extend(server.request("GET", path) for path in (SEARCH, "/api/version"))

    lines, errors = logged(use, CATALOG_LOG_FORMAT=form)
    (response, body), (next_response, _) = responses
    assert next_response.headers["X-Request-Id"] is None
    request_id = response.headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{16}", request_id)
    assert json.loads(body)["error"].endswith(f" It is in the log under {request_id}.")
    if form == "text":
        assert lines[0].endswith(f" {request_id}")
        first, *trace = errors.splitlines()
        assert re.fullmatch(rf"{TIME} ERROR GET '{SEARCH}' failed: {request_id}", first)
        assert all(line.startswith(" ") for line in trace)
        assert trace[0] == " Traceback (most recent call last):"
    else:
        assert json.loads(lines[0])["requestId"] == request_id
        error = json.loads(errors)
        assert list(error) == ["time", "level", "message", "traceback"]
        assert request_id in error["message"]
        assert error["traceback"].startswith("Traceback")


# Each could look like another line, or change how a terminal shows the lines.
FORGERIES = [
    "GET /a%0A2026-01-01T00:00:00.000Z 127.0.0.1 GET /forged 200 1 0.1 HTTP/1.1",
    "GET /a\n2026-01-01T00:00:00.000Z HTTP/1.1",
    "GET /a\u2028b\x85c HTTP/1.1",
    "GET /a\x1b[2K\x1b[1A HTTP/1.1",
    "GET /\\x1b HTTP/1.1",
    'GET /","status":200,"x":" HTTP/1.1',
    "\x1b[2J",
]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_client_can_forge_a_line(logged: Logged, form: str) -> None:
    def use(server: Server) -> None:
        for text in FORGERIES:
            send(server, f"{text}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())

    lines, _ = logged(use, CATALOG_LOG_FORMAT=form)
    assert len(lines) == len(FORGERIES)
    assert all(re.fullmatch("[ -~]+", line) for line in lines)
    if form == "text":
        assert {line.count(" ") for line in lines} == {6}
        # The text of an escape is escaped too.
        assert r" /\\x1b " in lines[-3]
    else:
        keys = ["time", "client", "method", "path", "status", "bytes", "milliseconds"]
        assert [list(json.loads(line)) for line in lines] == [keys] * len(FORGERIES)
        *_, quoted, _ = map(json.loads, lines)
        assert (quoted["method"], quoted["path"]) == ("GET", '/","status":200,"x":"')
        assert (quoted["client"], quoted["status"]) == ("127.0.0.1", 404)


def test_a_response_that_is_not_read_is_logged_with_what_was_sent(
    logged: Logged, tmp_path: Path
) -> None:
    notes = [version(f"1.{number}.0", releaseNotes="x" * 65_536) for number in range(128)]
    path = create_catalog(tmp_path / "large.db", document("acme/clock", *notes))

    def use(server: Server) -> None:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(f"GET {CLOCK} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            with connection.makefile("rb") as file:
                assert len(file.read(10_000)) == 10_000
        # The service reads the end of that connection before it stops.
        server.request("GET", "/api/version")

    lines, _ = logged(use, CATALOG_DATABASE=str(path))
    (line,) = (line.split(" ") for line in lines if CLOCK in line)
    assert (line[4], 0 < int(line[5]) < 8_000_000) == ("200", True)


def test_lines_that_are_not_read_in_time_are_dropped_and_counted(database: Path) -> None:
    server = Server(database, CATALOG_LOG_LEVEL="info")
    output = server.process.stdout
    assert output is not None
    fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, 4096)
    for number in range(10):
        assert server.request("GET", f"/{number}{'a' * 1_900}")[0].status == 404
    text = os.read(output.fileno(), 1 << 20).decode()
    assert server.request("GET", "/api/version")[0].status == 200
    server.process.terminate()
    text += server.process.communicate(timeout=60)[0]
    counts = re.findall(
        r"^(\d+) lines? w.* lost: the log was not read in time\.$", text, re.MULTILINE
    )
    logged = re.findall(r"^\S+ 127\.0\.0\.1 GET /\S+ \d+ \d+ \d+\.\d$", text, re.MULTILINE)
    assert text.count("\n") == len(counts) + len(logged)
    assert sum(map(int, counts)) == 11 - len(logged) > 0
    assert server.process.returncode == 0


def test_a_service_whose_log_is_a_socket_that_is_not_read_responds_and_ends(
    database: Path,
) -> None:
    # As under systemd: both outputs are one socket.
    reading, writing = socket.socketpair()
    with reading, reading.makefile() as output:
        process = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env={**os.environ, "CATALOG_DATABASE": str(database), "CATALOG_PORT": "0"},
            stdout=writing.fileno(),
            stderr=writing.fileno(),
        )
        writing.close()
        url = output.readline().split()[-1]
        with urllib.request.urlopen(f"{url}/api/version", timeout=60):
            assert " GET /api/version 200 " in output.readline()
        # More than the buffer of a socket takes.
        for _ in range(300):
            with urllib.request.urlopen(f"{url}/api/version?{'a' * 1_900}", timeout=60) as response:
                assert response.status == 200
        process.terminate()
        assert process.wait(10) == 0
