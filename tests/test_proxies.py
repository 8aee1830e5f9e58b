"""Reverse proxies: X-Forwarded- headers count only if they come from a trusted proxy."""

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import reverse_proxies
from conftest import ROOT, create_demo
from flask import Flask, jsonify, request
from reverse_proxies import free_port

from app import create_app

FORWARDED_HEADERS = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "widgets.example:8443",
    "X-Forwarded-Prefix": "/catalog",
}


def create_echo_app() -> Flask:
    """Create the service with one more route, which returns how the application sees a request."""
    app = create_app()
    app.add_url_rule("/echo", view_func=echo)
    return app


SERVE_ECHO = (
    "from catalog.serving.server import serve; from test_proxies import create_echo_app\n"
    "serve(create_echo_app())"
)


def echo() -> object:
    return jsonify([request.remote_addr, request.scheme, request.host, request.script_root])


def get_echo(proxy: str, client: str = "192.0.2.1", **headers: str) -> list[str]:
    os.environ["CATALOG_TRUSTED_PROXY"] = proxy
    try:
        app = create_echo_app()
    finally:
        del os.environ["CATALOG_TRUSTED_PROXY"]
    response = app.test_client().get(
        "/echo", headers=headers, environ_base={"REMOTE_ADDR": client}, base_url="http://own:8080"
    )
    assert response.status_code == 200
    return response.json


DIRECT = ["192.0.2.1", "http", "own:8080", ""]
FORWARDED = ["203.0.113.7", "https", "widgets.example:8443", "/catalog"]


@pytest.mark.parametrize("proxy", ["", "192.0.2.2", "198.51.100.0/24", "2001:db8::1"])
def test_headers_of_other_clients_are_ignored(proxy: str) -> None:
    assert get_echo(proxy, **FORWARDED_HEADERS) == DIRECT


@pytest.mark.parametrize(
    "proxy", ["192.0.2.1", "192.0.2.0/24", "198.51.100.1, 192.0.2.1", "::1,192.0.2.1"]
)
def test_headers_of_a_trusted_proxy_are_applied(proxy: str) -> None:
    assert get_echo(proxy, **FORWARDED_HEADERS) == FORWARDED


def test_a_trusted_proxy_may_have_an_ipv6_address() -> None:
    assert get_echo("2001:db8::/32", "2001:db8::1", **FORWARDED_HEADERS) == FORWARDED


@pytest.mark.parametrize(
    ("proxy", "prefix"),
    [("unix", "/catalog"), ("192.0.2.1, unix", "/catalog"), ("192.0.2.1", ""), ("0.0.0.0/0", "")],
)
def test_headers_over_a_unix_socket_are_applied_only_if_unix_is_trusted(
    proxy: str, prefix: str
) -> None:
    assert get_echo(proxy, client="", **FORWARDED_HEADERS)[3] == prefix


def test_trusting_unix_sockets_trusts_no_address() -> None:
    assert get_echo("unix", **FORWARDED_HEADERS) == DIRECT


def test_a_proxy_without_the_headers_changes_nothing() -> None:
    assert get_echo("192.0.2.1") == DIRECT


def test_only_the_last_value_of_a_header_counts() -> None:
    forged = {"X-Forwarded-For": "198.51.100.9, 203.0.113.7", "X-Forwarded-Proto": "ftp, https"}
    assert get_echo("192.0.2.1", **forged)[:2] == ["203.0.113.7", "https"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("X-Forwarded-For", value) for value in ("unknown", "a b", "1.2.3.4:80", "<script>", "")),
        *(("X-Forwarded-Proto", value) for value in ("ftp", "javascript", "HTTPS:", "")),
        *(("X-Forwarded-Host", value) for value in ("a/b", "a b", "a@b", "a:x", "")),
        *(("X-Forwarded-Prefix", value) for value in ("x", "/", "//evil.example", "/a//b", "/%2e")),
        *(("X-Forwarded-Prefix", value) for value in ("/a/", "/a?b", "/a\tb", "https://evil", "")),
    ],
)
def test_an_invalid_value_is_ignored(name: str, value: str) -> None:
    assert get_echo("192.0.2.1", **{name: value}) == DIRECT


def test_responses_of_the_api_are_the_same_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, imported_demo: Path
) -> None:
    monkeypatch.setenv("CATALOG_TRUSTED_PROXY", "127.0.0.1")
    app = create_app({"DATABASE": imported_demo})
    for path in ("/api/v1/widgets/search", "/api/widgets/acme/registry.json", "/api/me"):
        plain = app.test_client().get(path)
        forwarded = app.test_client().get(path, headers=FORWARDED_HEADERS)
        assert (forwarded.status_code, forwarded.data) == (plain.status_code, plain.data)
    app.extensions["database"].close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes = []

    def start(port: int, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE_ECHO],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}:{ROOT}/tests",
                "CATALOG_DATABASE": str(create_demo(tmp_path / "catalog.db")),
                "CATALOG_PORT": str(port),
                **settings,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout.readline().startswith("Serving ")
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


Get = Callable[..., tuple[int, bytes]]


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[[int], Get]]:
    """Starts nginx with the documented configuration; returns a function that gets through it."""
    with ExitStack() as stack:

        def start(upstream: int) -> Get:
            port = stack.enter_context(reverse_proxies.nginx(tmp_path, upstream))
            return partial(get, tmp_path / "fullchain.pem", port)

        yield start


def get(certificate: Path, port: int, path: str, *headers: str) -> tuple[int, bytes]:
    fields = ["Host: widgets.example", "Connection: close", *headers]
    head = "".join(f"{line}\r\n" for line in [f"GET {path} HTTP/1.1", *fields, ""])
    context = ssl.create_default_context(cafile=certificate)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="widgets.example") as connection,
    ):
        connection.sendall(head.encode())
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(response.split()[1]), response.partition(b"\r\n\r\n")[2]


def test_behind_trusted_nginx_the_application_sees_what_the_client_sees(
    service: Callable[..., subprocess.Popen[str]], nginx: Callable[[int], Get]
) -> None:
    upstream = free_port()
    process = service(upstream, CATALOG_TRUSTED_PROXY="127.0.0.1")
    get = nginx(upstream)
    forged = [f"{name}: {value}" for name, value in FORWARDED_HEADERS.items()]
    status, body = get("/catalog/echo", *forged)
    assert (status, json.loads(body)) == (
        200,
        ["127.0.0.1", "https", "widgets.example", "/catalog"],
    )
    status, body = get("/catalog/api/v1/widgets/search?q=clock&limit=1")
    assert (status, json.loads(body)["limit"]) == (200, 1)
    assert get("/catalog/api/v1/widgets/caf%C3%A9/c%20d")[0] == 404
    process.terminate()
    out, _ = process.communicate(timeout=10)
    paths = [line.split()[3] for line in out.splitlines()]
    assert paths[1:] == [
        "/api/v1/widgets/search?q=clock&limit=1",
        "/api/v1/widgets/caf%C3%A9/c%20d",
    ]


def test_the_headers_of_untrusted_nginx_are_ignored(
    service: Callable[..., subprocess.Popen[str]], nginx: Callable[[int], Get]
) -> None:
    upstream = free_port()
    service(upstream)
    _, body = nginx(upstream)("/catalog/echo")
    assert json.loads(body)[:2] == ["127.0.0.1", "http"]
    assert json.loads(body)[3] == ""
