"""The log: a line for each request, which no caller can forge and no reader can hold up."""

import json
import os
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Server, create_demo

from catalog.serving.access_log import MAX_LINES, AccessLog, Lines, escaped, timestamp

SEARCH = "/api/v1/widgets/search"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def logged(database: Path) -> Callable[..., tuple[list[str], str]]:
    """Runs a service while the given function uses it; answers its log and its errors."""

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
    """Make each answer with a version in it fail, through no fault of the caller."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("DROP VIEW version_entry")
    connection.execute("DROP TABLE summary")
    connection.close()


def test_a_line_says_when_who_what_and_how_it_went(logged: Callable[..., tuple]) -> None:
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
    # An install is logged by another thread than reads, after its answer.
    assert len(lines) == len(patterns)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    assert errors == ""


def test_a_line_can_be_json(logged: Callable[..., tuple]) -> None:
    lines, _ = logged(
        lambda server: server.request("GET", f'{SEARCH}?q="a\\b"'), CATALOG_LOG_FORMAT="json"
    )
    (line,) = map(json.loads, lines)
    assert list(line) == ["time", "client", "method", "path", "status", "bytes", "milliseconds"]
    assert re.fullmatch(TIME, line["time"])
    assert (line["client"], line["method"], line["status"]) == ("127.0.0.1", "GET", 200)
    assert line["path"] == rf'{SEARCH}?q="a\\b"'
    assert line["milliseconds"] > 0


def test_what_never_reached_the_app_is_logged(logged: Callable[..., tuple]) -> None:
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


def test_at_a_higher_level_only_failures_are_logged_and_nothing_that_was_asked(
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


def test_at_the_highest_level_there_are_no_lines_but_errors(
    logged: Callable[..., tuple], database: Path
) -> None:
    damage(database)
    lines, errors = logged(lambda server: server.request("GET", SEARCH), CATALOG_LOG_LEVEL="error")
    assert lines == []
    assert errors.count(" ERROR ") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failure_has_a_number_in_its_answer_its_line_and_its_traceback(
    logged: Callable[..., tuple], database: Path, form: str
) -> None:
    damage(database)
    answers = []
    lines, errors = logged(
        lambda server: answers.append(server.request("GET", SEARCH)), CATALOG_LOG_FORMAT=form
    )
    ((response, body),) = answers
    number = response.headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{16}", number)
    assert json.loads(body)["error"].endswith(f" It is in the log under {number}.")
    if form == "text":
        assert lines[0].endswith(f" {number}")
        first, *trace = errors.splitlines()
        assert re.fullmatch(rf"{TIME} ERROR GET '{SEARCH}' failed: {number}", first)
        assert all(line.startswith(" ") for line in trace)
        assert trace[0] == " Traceback (most recent call last):"
    else:
        assert json.loads(lines[0])["requestId"] == number
        said = json.loads(errors)
        assert list(said) == ["time", "level", "message", "traceback"]
        assert number in said["message"]
        assert said["traceback"].startswith("Traceback")


def test_each_failure_has_a_number_of_its_own(logged: Callable[..., tuple], database: Path) -> None:
    damage(database)
    lines, _ = logged(lambda server: [server.request("GET", SEARCH) for _ in range(3)])
    assert len({line.split()[-1] for line in lines}) == 3


# Each could look like a line of its own, or change how a terminal shows the others.
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
def test_whatever_is_in_a_field_it_is_one_word_of_plain_ascii(target: str) -> None:
    word = escaped(target)
    assert re.fullmatch("[!-~]+", word)
    assert word != target


@pytest.mark.parametrize("form", ["text", "json"])
def test_whatever_a_caller_sends_makes_one_line(form: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        lines = Lines(file.fileno())
        log = AccessLog("info", form, lines)
        for text in FORGERIES:
            log.add(text, text, text, 200, 1, 0.1)
        lines.close()
    written = (tmp_path / "log").read_bytes()
    assert re.fullmatch(rb"[\n -~]+", written)
    assert written.count(b"\n") == len(FORGERIES)
    if form == "text":
        assert {line.count(b" ") for line in written.splitlines()} == {6}
    else:
        keys = ["time", "client", "method", "path", "status", "bytes", "milliseconds"]
        assert [list(json.loads(line)) for line in written.splitlines()] == [keys] * len(FORGERIES)


def test_an_escaped_text_cannot_be_had_by_typing_it() -> None:
    assert escaped("/a\nb") == r"/a\nb"
    assert escaped(r"/a\nb") == r"/a\\nb"


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe that nobody reads, full to the brim."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    yield reading, writing
    for descriptor in (reading, writing):
        os.close(descriptor)


LINE = re.compile(r"line (\d+)\n")
LOST = re.compile(r"(\d+) lines were lost: the log was not read in time\.\n")


def test_a_log_that_is_not_read_holds_nobody_up_and_says_what_was_lost(
    full_pipe: tuple[int, int],
) -> None:
    reading, writing = full_pipe
    lines = Lines(writing)
    for number in range(MAX_LINES * 3):
        lines.add(f"line {number}\n")
    text = b""
    kept, lost = [], []
    while len(kept) + sum(lost) < MAX_LINES * 3:
        text += os.read(reading, 1 << 20)
        written = text.lstrip(b"x").decode().splitlines(keepends=True)
        kept = [int(found[1]) for line in written if (found := LINE.fullmatch(line))]
        lost = [int(found[1]) for line in written if (found := LOST.fullmatch(line))]
    lines.close()
    assert len(kept) + sum(lost) == MAX_LINES * 3
    assert len(kept) <= MAX_LINES * 2  # those that were being written, and those that waited
    assert kept[0] == 0
    assert kept == sorted(set(kept))


def test_what_was_added_while_a_reader_was_slow_is_written_at_the_end(
    full_pipe: tuple[int, int],
) -> None:
    reading, writing = full_pipe
    lines = Lines(writing)
    lines.add("first\n")
    while lines._waiting:  # until it is being written
        time.sleep(0.01)
    lines.add("last\n")
    ended = threading.Thread(target=lines.close)
    ended.start()
    while not lines._closed:
        time.sleep(0.01)
    text = os.read(reading, 1 << 20)
    ended.join()
    os.set_blocking(reading, False)
    assert (text + os.read(reading, 1 << 20)).endswith(b"xfirst\nlast\n")


def test_a_service_whose_log_is_not_read_answers_and_ends(database: Path) -> None:
    server = Server(database, CATALOG_LOG_LEVEL="info")
    for _ in range(100):  # more than any pipe takes
        assert server.request("GET", "/" + "a" * 1_900)[0].status == 404
    server.process.terminate()
    assert server.process.wait(10) == 0
    server.process.communicate()


def test_nobody_left_to_read_is_no_reason_to_end(database: Path) -> None:
    server = Server(database, CATALOG_LOG_LEVEL="info")
    server.process.stdout.close()
    for _ in range(3):
        assert server.request("GET", "/api/version")[0].status == 200
    server.process.terminate()
    assert server.process.wait(10) == 0
    with server.process.stderr as errors:
        assert errors.read() == ""


def test_a_time_is_told_in_utc_to_the_millisecond() -> None:
    assert timestamp(0.0005) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1_700_000_000.9996) == "2023-11-14T22:13:20.999Z"
    assert timestamp(951_782_399.5) == "2000-02-28T23:59:59.500Z"
