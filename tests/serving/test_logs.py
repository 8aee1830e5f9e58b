"""The log: no client can forge a line, and no request waits for the reader."""

import contextlib
import fcntl
import http.client
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest
from conftest import ROOT, Server, create_demo

from catalog.serving.access_log import AccessLog, LogWriter, escape_field, timestamp

SEARCH = "/api/v1/widgets/search"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def logged(database: Path) -> Callable[..., tuple[list[str], str]]:
    """Runs a service while a function uses it; returns its log lines and its errors."""

    def run(use: Callable[[Server], object], **settings: str) -> tuple[list[str], str]:
        server = Server(database, **{"CATALOG_LOG_LEVEL": "info", **settings})
        use(server)
        server.process.terminate()
        out, err = server.process.communicate(timeout=10)
        assert server.process.returncode == 0
        return out.splitlines(), err

    return run


def send(server: Server, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(data)
        while connection.recv(65536):
            pass


def damage(database: Path) -> None:
    """Make every response that contains a version fail with 500."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("DROP VIEW version_entry")
    connection.execute("DROP TABLE summary")
    connection.close()


def test_a_line_has_time_client_request_status_size_and_duration(
    logged: Callable[..., tuple],
) -> None:
    sizes = []

    def use(server: Server) -> None:
        sizes.append(len(server.request("GET", f"{SEARCH}?q=clock&limit=1")[1]))
        server.request("POST", "/api/v1/widgets/acme/clock")
        server.request("HEAD", "/api/health")
        server.request("GET", "/api/v1/nowhere")

    lines, errors = logged(use)
    patterns = [
        rf"{TIME} 127\.0\.0\.1 GET {SEARCH}\?q=clock&limit=1 200 {sizes[0]} \d+\.\d",
        rf"{TIME} 127\.0\.0\.1 POST /api/v1/widgets/acme/clock 200 17 \d+\.\d",
        rf"{TIME} 127\.0\.0\.1 HEAD /api/health 200 0 \d+\.\d",
        rf"{TIME} 127\.0\.0\.1 GET /api/v1/nowhere 404 46 \d+\.\d",
    ]
    # An install is logged by another thread than reads, so the order may differ.
    assert len(lines) == len(patterns)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    assert errors == ""


def test_lines_in_json(logged: Callable[..., tuple]) -> None:
    lines, _ = logged(
        lambda server: server.request("GET", f'{SEARCH}?q="a\\b"'), CATALOG_LOG_FORMAT="json"
    )
    (line,) = map(json.loads, lines)
    assert list(line) == ["time", "client", "method", "path", "status", "bytes", "milliseconds"]
    assert re.fullmatch(TIME, line["time"])
    assert (line["client"], line["method"], line["status"]) == ("127.0.0.1", "GET", 200)
    assert line["path"] == rf'{SEARCH}?q="a\\b"'
    assert line["milliseconds"] > 0


def test_requests_that_the_server_refuses_are_logged(logged: Callable[..., tuple]) -> None:
    def use(server: Server) -> None:
        send(server, b"what is this\r\n\r\n")
        send(server, b"GET /a?b=" + b"c" * 40_000 + b" HTTP/1.1\r\n\r\n")
        send(
            server,
            f"POST {SEARCH} HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n".encode(),
        )

    lines, _ = logged(use)
    shown = [line.split(" ")[2:5] for line in lines]
    assert shown[0] == ["-", r"what\x20is\x20this", "400"]
    assert shown[1][0] == "-"
    assert shown[1][1].startswith(r"GET\x20/a?b=ccc")
    assert shown[1][1].endswith("ccc...")
    assert shown[1][2] == "414"
    assert shown[2] == ["POST", SEARCH, "413"]


def test_level_warning_logs_only_failures_and_no_query(
    logged: Callable[..., tuple], database: Path
) -> None:
    def use(server: Server) -> None:
        server.request("GET", "/api/health?secret=1")
        server.request("GET", f"{SEARCH}?page=0&secret=2")
        damage(database)
        server.request("GET", f"{SEARCH}?q=clock&secret=3")

    lines, errors = logged(use, CATALOG_LOG_LEVEL="warning")
    assert [line.split(" ")[3:5] for line in lines] == [[SEARCH, "500"]]
    assert "secret" not in errors


def test_level_error_logs_no_requests(logged: Callable[..., tuple], database: Path) -> None:
    damage(database)
    lines, errors = logged(lambda server: server.request("GET", SEARCH), CATALOG_LOG_LEVEL="error")
    assert lines == []
    assert errors.count(" ERROR ") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failure_has_one_request_id_in_response_log_and_traceback(
    logged: Callable[..., tuple], database: Path, form: str
) -> None:
    damage(database)
    responses = []
    lines, errors = logged(
        lambda server: responses.append(server.request("GET", SEARCH)), CATALOG_LOG_FORMAT=form
    )
    ((response, body),) = responses
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


def test_each_failure_has_another_request_id(logged: Callable[..., tuple], database: Path) -> None:
    damage(database)
    lines, _ = logged(lambda server: [server.request("GET", SEARCH) for _ in range(3)])
    assert len({line.split()[-1] for line in lines}) == 3


# Each could look like another line, or change how a terminal shows the lines.
FORGERIES = [
    "/a%0A2026-01-01T00:00:00.000Z 127.0.0.1 GET /forged 200 1 0.1",
    "/a\r\n2026-01-01T00:00:00.000Z",
    "/a\u2028b",
    "/a\x85b",
    "/a\x1b[2K\x1b[1A",
    "/a\x00b\x07\x08\x7f",
    "/a\u202egnp.exe",
    "/a 200 1 0.1",
    "/天気",
    "/\ud800",
    "",
]


@pytest.mark.parametrize("target", FORGERIES, ids=ascii)
def test_an_escaped_field_is_one_word_of_printable_ascii(target: str) -> None:
    field = escape_field(target)
    assert re.fullmatch("[!-~]+", field)
    assert field != target


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_field_can_add_a_line(form: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        log = AccessLog("info", form, LogWriter(file.fileno()))
        for text in FORGERIES:
            log.add(text, text, text, 200, 1, 0.1)
    written = (tmp_path / "log").read_bytes()
    assert re.fullmatch(rb"[\n -~]+", written)
    assert written.count(b"\n") == len(FORGERIES)
    if form == "text":
        assert {line.count(b" ") for line in written.splitlines()} == {6}
    else:
        keys = ["time", "client", "method", "path", "status", "bytes", "milliseconds"]
        assert [list(json.loads(line)) for line in written.splitlines()] == [keys] * len(FORGERIES)


def test_the_text_of_an_escape_is_escaped_too() -> None:
    assert escape_field("/a\nb") == r"/a\nb"
    assert escape_field(r"/a\nb") == r"/a\\nb"


class Pipe:
    """A pipe for a log; nothing reads it but read()."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)

    def shrink(self) -> None:
        """Reduce it to four pages, after a writer has enlarged it."""
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4 * 4096)

    def read(self) -> str:
        """Return all that is in the pipe now."""
        text = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._reading, 1 << 20):
                text += part
        return text.decode()

    def close(self) -> None:
        os.close(self._reading)
        os.close(self.writing)


@pytest.fixture(params=["opened again", "not opened again"])
def pipe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """A pipe that the writer may open a second time, or may not, as if it were another user's."""
    if request.param == "not opened again":

        def refuse(path: str, flags: int) -> int:
            raise PermissionError

        monkeypatch.setattr(os, "open", refuse)
    opened = Pipe()
    yield opened
    opened.close()


LINE = "line {:03}, with some text to make it longer\n"
LOST = "{} lines were lost: the log was not read in time.\n"


def test_lines_that_do_not_fit_are_dropped_and_counted(pipe: Pipe) -> None:
    writer = LogWriter(pipe.writing)
    pipe.shrink()
    for number in range(1_000):
        writer.write(LINE.format(number))
    written = pipe.read().splitlines(keepends=True)
    assert 0 < len(written) < 1_000
    assert written == [LINE.format(number) for number in range(len(written))]
    writer.write("next\n")
    writer.write("last\n")
    assert pipe.read() == LOST.format(1_000 - len(written)) + "next\nlast\n"


def test_a_count_is_written_at_the_end_if_no_line_follows(pipe: Pipe) -> None:
    writer = LogWriter(pipe.writing)
    pipe.shrink()
    for _ in range(10):
        writer.write("x" * 4095 + "\n")
    written = pipe.read().count("\n")
    writer.close()
    assert pipe.read() == LOST.format(10 - written)


def test_one_dropped_line_is_counted_in_the_singular(pipe: Pipe) -> None:
    writer = LogWriter(pipe.writing)
    pipe.shrink()
    for _ in range(5):
        writer.write("x" * 4095 + "\n")
    assert pipe.read().count("\n") == 4
    writer.write("next\n")
    assert pipe.read() == "1 line was lost: the log was not read in time.\nnext\n"


def test_the_rest_of_a_line_that_did_not_fit_precedes_the_next_line(pipe: Pipe) -> None:
    writer = LogWriter(pipe.writing)
    pipe.shrink()
    long = "x" * 60_000 + "\n"
    writer.write(long)
    text = pipe.read()
    assert 0 < len(text) < len(long)
    dropped = -1
    while not text.endswith("next\n"):
        writer.write("next\n")
        text += pipe.read()
        dropped += 1
    assert dropped > 0
    assert text == long + LOST.format(dropped) + "next\n"


def test_a_pipe_takes_thousands_of_lines_before_any_is_dropped(pipe: Pipe) -> None:
    writer = LogWriter(pipe.writing)
    for number in range(5_000):
        writer.write(LINE.format(number))
    assert pipe.read() == "".join(LINE.format(number) for number in range(5_000))


def test_other_processes_that_share_the_pipe_may_still_block(pipe: Pipe) -> None:
    LogWriter(pipe.writing).write("line\n")
    assert os.get_blocking(pipe.writing)


def test_lines_in_a_file_follow_what_others_wrote_to_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as file:
        file.write(b"first\n")
        LogWriter(file.fileno()).write("second\n")
        file.write(b"third\n")
    assert path.read_text() == "first\nsecond\nthird\n"


@pytest.fixture
def on_socket(database: Path) -> Iterator[tuple[TextIO, int, subprocess.Popen[bytes]]]:
    """A service whose outputs are one socket, as under systemd: the socket, its port, itself."""
    reading, writing = socket.socketpair()
    with reading, writing:
        process = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env={**os.environ, "CATALOG_DATABASE": str(database), "CATALOG_PORT": "0"},
            stdout=writing,
            stderr=writing,
        )
        writing.close()
        with reading.makefile() as file:
            yield file, int(file.readline().rsplit(":", 1)[1]), process
    process.kill()
    process.wait()


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_log_can_be_a_socket(
    on_socket: tuple[TextIO, int, subprocess.Popen[bytes]], database: Path
) -> None:
    output, port, process = on_socket
    assert get(port, "/api/version") == 200
    damage(database)
    assert get(port, SEARCH) == 500
    process.terminate()
    first, error, *trace, last = output.read().splitlines()
    assert " GET /api/version 200 " in first
    assert " ERROR GET " in error
    assert all(line.startswith(" ") for line in trace)
    assert f" GET {SEARCH} 500 " in last
    assert process.wait(10) == 0


def test_a_service_whose_log_socket_is_not_read_responds_and_ends(
    on_socket: tuple[TextIO, int, subprocess.Popen[bytes]],
) -> None:
    _, port, process = on_socket
    # More than the buffer of a socket takes.
    for _ in range(300):
        assert get(port, "/" + "a" * 1_900) == 404
    process.terminate()
    assert process.wait(10) == 0


def test_a_service_whose_log_pipe_is_not_read_responds_and_ends(database: Path) -> None:
    server = Server(database, CATALOG_LOG_LEVEL="info")
    fcntl.fcntl(server.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    for _ in range(10):
        assert server.request("GET", "/" + "a" * 1_900)[0].status == 404
    server.process.terminate()
    assert server.process.wait(10) == 0
    server.process.communicate()


def test_the_service_goes_on_when_the_reader_of_its_log_has_ended(database: Path) -> None:
    server = Server(database, CATALOG_LOG_LEVEL="info")
    server.process.stdout.close()
    for _ in range(3):
        assert server.request("GET", "/api/version")[0].status == 200
    server.process.terminate()
    assert server.process.wait(10) == 0
    with server.process.stderr as errors:
        assert errors.read() == ""


def test_timestamps_are_in_utc_with_milliseconds() -> None:
    assert timestamp(0.0005) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1_700_000_000.9996) == "2023-11-14T22:13:20.999Z"
    assert timestamp(951_782_399.5) == "2000-02-28T23:59:59.500Z"
