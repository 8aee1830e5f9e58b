"""A proxy in front: believed where it is named, ignored everywhere else."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, create_demo
from flask import Flask, jsonify, request

from app import create_app

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
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


SERVE_SEEN = "from catalog import server; from test_proxies import seen; server.serve(seen())"


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


def test_other_routes_are_the_same_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, demo_database: Path
) -> None:
    monkeypatch.setenv("CATALOG_TRUSTED_PROXY", "127.0.0.1")
    app = create_app({"DATABASE": demo_database})
    for path in ("/api/v1/widgets/search", "/api/widgets/acme/registry.json", "/api/me", "/none"):
        plain = app.test_client().get(path)
        forwarded = app.test_client().get(path, headers=SAID)
        assert (forwarded.status_code, forwarded.data) == (plain.status_code, plain.data)
    app.extensions["database"].close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


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


def snippet(language: str) -> str:
    """The only block of this language in the guide to deployment."""
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    (block,) = text.split(f"```{language}\n")[1:]
    return block.split("```")[0]


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[[int], int]]:
    """Starts nginx with the configuration of the guide, in front of a port; answers its own."""
    processes = []

    def start(upstream: int) -> int:
        port = free_port()
        site = (
            snippet("nginx")
            .replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
            .replace("127.0.0.1:8080", f"127.0.0.1:{upstream}")
            .replace("$scheme", "https")  # nothing here has a certificate
        )
        kept = [line for line in site.splitlines() if "ssl_certificate" not in line]
        temporary = "".join(
            f"{kind}_temp_path {tmp_path}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr;\n"
            f"events {{}}\nhttp {{ access_log off; {temporary}\n" + "\n".join(kept) + "\n}\n"
        )
        command = [NGINX, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-e", "stderr"]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        while processes[-1].poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=10).close()
            except ConnectionRefusedError:
                continue
            return port
        pytest.fail(processes[-1].communicate()[1])

    yield start
    for process in processes:
        process.terminate()
        process.communicate(timeout=10)


def get(port: int, path: str, *headers: str) -> tuple[int, bytes]:
    fields = ["Host: widgets.example", "Connection: close", *headers]
    head = "".join(f"{line}\r\n" for line in [f"GET {path} HTTP/1.1", *fields, ""])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_behind_nginx_as_the_guide_has_it_everything_is_seen_as_the_client_sees_it(
    service: Callable[..., subprocess.Popen[str]], nginx: Callable[[int], int]
) -> None:
    upstream = free_port()
    process = service(upstream, CATALOG_TRUSTED_PROXY="127.0.0.1")
    port = nginx(upstream)
    forged = [f"{name}: {value}" for name, value in SAID.items()]
    status, body = get(port, "/catalog/seen", *forged)
    assert (status, json.loads(body)) == (
        200,
        ["127.0.0.1", "https", "widgets.example", "/catalog"],
    )
    status, body = get(port, "/catalog/api/v1/widgets/search?q=clock&limit=1")
    assert (status, json.loads(body)["limit"]) == (200, 1)
    assert get(port, "/catalog/api/v1/widgets/caf%C3%A9/c%20d")[0] == 404
    process.terminate()
    out, _ = process.communicate(timeout=10)
    paths = [line.split()[3] for line in out.splitlines()]
    assert paths[1:] == [
        "/api/v1/widgets/search?q=clock&limit=1",
        "/api/v1/widgets/caf%C3%A9/c%20d",
    ]


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_behind_nginx_that_was_not_named_nothing_it_says_is_believed(
    service: Callable[..., subprocess.Popen[str]], nginx: Callable[[int], int]
) -> None:
    upstream = free_port()
    service(upstream)
    _, body = get(nginx(upstream), "/catalog/seen")
    assert json.loads(body)[:2] == ["127.0.0.1", "http"]
    assert json.loads(body)[3] == ""
