"""A proxy in front: believed where it is named, ignored everywhere else."""

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

SAID = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "widgets.example:8443",
    "X-Forwarded-Prefix": "/catalog",
}


def seen() -> Flask:
    """The service with one route more, which answers what it takes a request for."""
    app = create_app()
    app.add_url_rule("/seen", view_func=what_is_seen)
    return app


SERVE_SEEN = (
    "from catalog.serving import server; from test_proxies import seen; server.serve(seen())"
)


def what_is_seen() -> object:
    return jsonify([request.remote_addr, request.scheme, request.host, request.script_root])


def ask(proxy: str, client: str = "192.0.2.1", **headers: str) -> list[str]:
    os.environ["CATALOG_TRUSTED_PROXY"] = proxy
    try:
        app = seen()
    finally:
        del os.environ["CATALOG_TRUSTED_PROXY"]
    answer = app.test_client().get(
        "/seen", headers=headers, environ_base={"REMOTE_ADDR": client}, base_url="http://own:8080"
    )
    assert answer.status_code == 200
    return answer.json


DIRECT = ["192.0.2.1", "http", "own:8080", ""]
FORWARDED = ["203.0.113.7", "https", "widgets.example:8443", "/catalog"]


@pytest.mark.parametrize("proxy", ["", "192.0.2.2", "198.51.100.0/24", "2001:db8::1"])
def test_what_anybody_else_says_is_ignored(proxy: str) -> None:
    assert ask(proxy, **SAID) == DIRECT


@pytest.mark.parametrize(
    "proxy", ["192.0.2.1", "192.0.2.0/24", "198.51.100.1, 192.0.2.1", "::1,192.0.2.1"]
)
def test_the_named_proxy_is_believed(proxy: str) -> None:
    assert ask(proxy, **SAID) == FORWARDED


def test_a_proxy_may_have_an_address_of_either_kind() -> None:
    assert ask("2001:db8::/32", "2001:db8::1", **SAID) == FORWARDED


def test_a_proxy_that_says_nothing_changes_nothing() -> None:
    assert ask("192.0.2.1") == DIRECT


def test_only_the_last_word_is_the_proxys_own() -> None:
    forged = {"X-Forwarded-For": "198.51.100.9, 203.0.113.7", "X-Forwarded-Proto": "ftp, https"}
    assert ask("192.0.2.1", **forged)[:2] == ["203.0.113.7", "https"]


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
def test_what_cannot_be_right_is_ignored(name: str, value: str) -> None:
    assert ask("192.0.2.1", **{name: value}) == DIRECT


def test_responses_of_the_api_are_the_same_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, demo_database: Path
) -> None:
    monkeypatch.setenv("CATALOG_TRUSTED_PROXY", "127.0.0.1")
    app = create_app({"DATABASE": demo_database})
    for path in ("/api/v1/widgets/search", "/api/widgets/acme/registry.json", "/api/me"):
        plain = app.test_client().get(path)
        forwarded = app.test_client().get(path, headers=SAID)
        assert (forwarded.status_code, forwarded.data) == (plain.status_code, plain.data)
    app.extensions["database"].close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes = []

    def start(port: int, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE_SEEN],
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
    """Starts nginx as the deployment guide has it, in front of a port; returns a way through it."""
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
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


def test_behind_nginx_as_the_guide_has_it_everything_is_seen_as_the_client_sees_it(
    service: Callable[..., subprocess.Popen[str]], nginx: Callable[[int], Get]
) -> None:
    upstream = free_port()
    process = service(upstream, CATALOG_TRUSTED_PROXY="127.0.0.1")
    get = nginx(upstream)
    forged = [f"{name}: {value}" for name, value in SAID.items()]
    status, body = get("/catalog/seen", *forged)
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


def test_behind_nginx_that_was_not_named_nothing_it_says_is_believed(
    service: Callable[..., subprocess.Popen[str]], nginx: Callable[[int], Get]
) -> None:
    upstream = free_port()
    service(upstream)
    _, body = nginx(upstream)("/catalog/seen")
    assert json.loads(body)[:2] == ["127.0.0.1", "http"]
    assert json.loads(body)[3] == ""
