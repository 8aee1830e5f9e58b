"""What a service, or something else at its address, cannot do to a command with --server."""

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from builders import document, version
from click.testing import CliRunner, Result
from ports import free_port

from catalog.__main__ import cli
from catalog.domain.token_text import generate_token

SEARCH = "/api/v1/widgets/search"
CLI_VERSION = "/api/widgets/cli-version"


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.remote.service.READ_WAITS", (0, 0, 0))


def run_remotely(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--server", url, *arguments])


def error_of(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert isinstance(result.exception, SystemExit)
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


@contextmanager
def responding(
    bodies: dict[str, bytes], *, missing: bytes = b"{}", status: int = 404, **headers: str
) -> Iterator[str]:
    """Serve these bodies by path, and another one with 404 elsewhere; yield the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bodies.get(self.path.partition("?")[0])
            self.send_response(status if body is None else 200)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            # The client may have read enough.
            with suppress(OSError):
                self.wfile.write(missing if body is None else body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@cache
def zeros(megabytes: int) -> bytes:
    """Return gzip that is a thousand times as large when it is decoded."""
    member = gzip.compress(bytes(2**20))
    return member * megabytes


def test_a_body_that_grows_when_it_is_decoded_is_refused() -> None:
    with responding({SEARCH: zeros(1024)}, Content_Encoding="gzip") as url:
        message = error_of(run_remotely(url, "list"))
    assert message == f"{url} sent a response of more than {32 * 2**20} bytes."


def test_a_body_that_cannot_be_decoded_is_named() -> None:
    with responding({SEARCH: b"{}"}, Content_Encoding="gzip") as url:
        message = error_of(run_remotely(url, "list"))
    assert message == f"{url} sent a response that cannot be decoded."


@contextmanager
def dripping(start: bytes, drop: bytes) -> Iterator[str]:
    """Send the start of a response and then a drop every few milliseconds, without an end."""
    is_over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            connection.recv(4096)
            try:
                connection.sendall(start)
                while not is_over.wait(0.005):
                    connection.sendall(drop)
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: drip(listener.accept()[0]))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        is_over.set()
        thread.join()


DRIPS = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{", b" "),
    "body without an end": (b"HTTP/1.1 200 OK\r\n\r\n{", b" "),
    "head": (b"HTTP/1.1 200 OK\r\nX-Header: ", b"x"),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
COMMANDS: dict[str, tuple[Callable[[str], Result], str]] = {
    "list": (lambda url: run_remotely(url, "list"), "0.2 s"),
    "health": (lambda url: CliRunner().invoke(cli, ["health", url, "--timeout", "0.1"]), "0.1 s"),
}


@pytest.mark.parametrize(("start", "drop"), DRIPS.values(), ids=DRIPS)
@pytest.mark.parametrize(("run", "limit"), COMMANDS.values(), ids=COMMANDS)
def test_a_response_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
    start: bytes,
    drop: bytes,
    run: Callable[[str], Result],
    limit: str,
) -> None:
    monkeypatch.setattr("catalog.remote.service.MAX_SECONDS", 0.2)
    with dripping(start, drop) as url:
        assert error_of(run(url)) == f"{url} did not respond within {limit}."


def test_a_refused_port_is_tried_for_four_seconds_by_a_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr("catalog.remote.service.READ_WAITS", (0, 2, 2))
    url = f"http://127.0.0.1:{free_port()}"
    result = run_remotely(url, "list")
    assert result.stderr.splitlines() == [
        f"{url} did not respond; retrying for 4 seconds.",
        f"Error: {url} cannot be reached: Connection refused; is the service running?",
    ]
    assert [wait for wait in waits if wait] == [2, 2]


ADVICE = "Try again later; repeating the command is safe."
DETAIL = "/api/v1/widgets/acme/clock"
MISSING = b'{"error": "No."}'
WIDGETS: dict[str, object] = {
    "no object": [],
    "no widgets": {},
    "a text as widgets": {"widgets": "none", "total": 4},
    "a number as widgets": {"widgets": 1, "total": 1},
    "a text as total": {"widgets": [{}], "total": "1"},
    "widgets without keys": {"widgets": [{}], "total": 1},
    "a number as a name": {
        "widgets": [{"scope": 1, "name": 2, "displayName": 3, "latestVersion": 4}],
        "total": 1,
    },
}


@pytest.mark.parametrize("content", WIDGETS.values(), ids=WIDGETS)
def test_a_list_of_another_service_is_a_sentence(content: object) -> None:
    with responding({SEARCH: json.dumps(content).encode()}) as url:
        message = error_of(run_remotely(url, "list"))
    assert message.startswith(f"The response from {url} ")
    assert message.endswith("; a proxy or another service may have sent it.")


WRONG: dict[str, object] = {
    "displayName": 1,
    "description": {},
    "isOfficial": "maybe",
    "downloadCount": "many",
    "versions": {"1.0.0": {}},
}


@pytest.mark.parametrize("key", WRONG)
def test_a_widget_of_another_service_causes_no_traceback(key: str) -> None:
    detail = document("acme/clock", version("1.0.0"))
    changed = {**detail["widget"], key: WRONG[key]}
    content = {**detail, "widget": changed} if key != "versions" else {**detail, key: WRONG[key]}
    with responding({DETAIL: json.dumps(content).encode()}, missing=MISSING) as url:
        result = run_remotely(url, "show", "acme/clock")
    assert result.exit_code == 0 or "Error: The response from " in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_missing_widget_of_another_service_causes_no_traceback() -> None:
    with responding({SEARCH: b"[]"}, missing=MISSING) as url:
        message = error_of(run_remotely(url, "show", "acme/clock"))
    assert message.startswith(f"The response from {url} has no widgets;")


@pytest.mark.parametrize("minimum", ["1.0", 1, None, [], "latest"])
def test_a_minimum_version_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, minimum: object
) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", generate_token()[1])
    body = json.dumps({"minimumVersion": minimum}).encode()
    with responding({CLI_VERSION: body}) as url:
        assert error_of(run_remotely(url, "whoami")) == f"{url} is not a widget catalog."


def test_what_a_service_sends_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", generate_token()[1])
    session = {"token": "\x1b[2J", "scopes": [], "permissions": ["admin"], "expiresAt": None}
    bodies = {
        CLI_VERSION: b'{"minimumVersion": "1.0.0"}',
        "/api/session": json.dumps(session).encode(),
    }
    with responding(bodies, missing=b'{"error": "\\u001b[2J"}') as url:
        assert run_remotely(url, "whoami").stdout == (
            "token:        [2J\nscopes:      all\npermissions: admin\nexpires:     never\n"
        )
        assert error_of(run_remotely(url, "list")) == "\\x1b[2J"


@pytest.mark.parametrize("body", [b"ok", b"{}", b'{"status": "fine"}', b"[]", b'"ok"', b"[" * 9000])
def test_health_checks_the_body(body: bytes) -> None:
    with responding({"/api/health": body}) as url:
        message = error_of(CliRunner().invoke(cli, ["health", url]))
    assert message == f"{url} responded 200 to /api/health, but it is not a widget catalog."


def test_a_time_that_no_clock_will_show_is_no_wait() -> None:
    far = "Mon, 01 Jan 999999999999 00:00:00 GMT"
    with responding({}, missing=b"{}", Retry_After=far, status=503) as url:
        assert error_of(run_remotely(url, "list")) == f"{url} responded 503. {ADVICE}"


@pytest.mark.parametrize("status", [429, 503])
def test_the_wait_that_a_service_asks_for_is_kept(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond() -> None:
            for seconds in (5, 99):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    head = f"HTTP/1.1 {status} No\r\nRetry-After: {seconds}\r\nConnection: close"
                    connection.sendall(f"{head}\r\nContent-Length: 2\r\n\r\n{{}}".encode())

        thread = threading.Thread(target=respond)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        result = run_remotely(url, "list")
        thread.join()
    # The second one is too long.
    assert error_of(result) == f"{url} responded {status}. {ADVICE}"
    assert [wait for wait in waits if wait] == [5]
