"""widget-catalog health: what it reports of a service, and how quickly it starts."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from conftest import ROOT, Server, error_message, run
from ports import free_port

from app import create_app


def run_health(*arguments: object) -> Result:
    return run(create_app(), "health", *arguments)


@contextmanager
def responding(listener: socket.socket, response: bytes) -> Iterator[list[bytes]]:
    """Respond with these bytes to one request, and collect the beginning of the request."""
    heads: list[bytes] = []

    def respond() -> None:
        connection, _ = listener.accept()
        with connection:
            heads.append(connection.recv(4096))
            connection.sendall(response)

    with listener:
        thread = threading.Thread(target=respond)
        thread.start()
        yield heads
        thread.join()


def http_response(status: str, body: object) -> bytes:
    text = json.dumps(body)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


@pytest.mark.parametrize(("options", "output"), [([], "ok\n"), (["--quiet"], "")])
def test_a_service_that_works_is_ok(server: Server, options: list[str], output: str) -> None:
    result = run_health(server.url, *options)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", output)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_the_default_url_is_that_of_the_settings(
    server: Server, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("CATALOG_HOST", host)
    monkeypatch.setenv("CATALOG_PORT", str(server.port))
    assert run_health().exit_code == 0


def test_a_free_port_in_the_settings_needs_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_PORT", "0")
    assert error_message(run_health()) == "CATALOG_PORT is 0. Specify the URL of the service."


def test_the_path_of_a_proxy_is_kept() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/widgets/"
    with responding(listener, http_response("200 OK", {"status": "ok"})) as heads:
        assert run_health(url).exit_code == 0
    assert heads[0].startswith(b"GET /widgets/api/health HTTP/1.1\r\n")


def test_a_unix_socket_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "service"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with responding(listener, http_response("200 OK", {"status": "ok"})):
        assert run_health(f"unix:{path}").exit_code == 0


def test_nothing_at_the_address_is_an_error(tmp_path: Path) -> None:
    for url, cause in (
        (f"http://127.0.0.1:{free_port()}", "Connection refused"),
        (f"unix:{tmp_path}/none", "No such file or directory"),
    ):
        assert error_message(run_health(url)) == f"{url} cannot be reached: {cause}."


def test_no_response_in_time_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        message = error_message(run_health(url, "--timeout", "0.05"))
    assert message == f"{url} did not respond within 0.05 s."


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            http_response(
                "503 Service Unavailable",
                {"status": "read-only", "error": "Cannot write to the database."},
            ),
            "U is read-only: Cannot write to the database.",
        ),
        (http_response("502 Bad Gateway", []), "U responded 502 to /api/health."),
        (http_response("502 Bad Gateway", {"status": "ok"}), "U responded 502 to /api/health."),
        (
            http_response("503 Service Unavailable", {"status": "a\nb", "error": "\x1b[1m."}),
            "U is a\\nb: \\x1b[1m.",
        ),
        (b"220 mail.example.com\r\n", "U did not respond with HTTP."),
    ],
    ids=["read-only", "proxy", "proxy of a catalog", "unprintable", "no HTTP"],
)
def test_any_other_response_is_an_error(response: bytes, message: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with responding(listener, response):
        assert error_message(run_health(url)).replace(url, "U") == message


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://a", "http://a:99999"])
def test_an_invalid_url_is_wrong_usage(url: str) -> None:
    result = run_health(url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not an http or https URL or unix:PATH." in result.stderr


def test_the_program_checks_a_service_without_importing_flask(server: Server) -> None:
    code = "import atexit, sys; from catalog.__main__ import main"
    code += "; atexit.register(lambda: print('flask' in sys.modules)); main()"
    result = subprocess.run(
        [sys.executable, "-c", code, "health", server.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "False\n", "ok\n")
