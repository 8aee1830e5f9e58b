"""Runs real reverse proxies with the configurations of docs/deployment.md."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT

PREFIX = "/catalog"
SYSTEM_PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


def block(language: str) -> str:
    """Return the only code block of this language in the deployment guide."""
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    (rest,) = text.split(f"```{language}\n")[1:]
    return rest.split("```")[0]


def substitute(text: str, replacements: dict[str, str]) -> str:
    """Return the text with every key replaced; each must occur in it."""
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def nginx(directory: Path, upstream: int) -> Iterator[int]:
    """Run nginx as documented, with other addresses and paths, before a port; yield its own port.

    Without nginx the test is skipped, or fails where REQUIRE_NGINX is set.
    """
    program, openssl = shutil.which("nginx", path=SYSTEM_PATH), shutil.which("openssl")
    if not (program and openssl):
        leave = pytest.fail if os.environ.get("REQUIRE_NGINX") else pytest.skip
        leave("nginx or openssl is not installed.")
    make_certificate(openssl, directory)
    port = free_port()
    site = substitute(
        block("nginx"),
        {
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "/etc/letsencrypt/live/widgets.example/": f"{directory}/",
            "127.0.0.1:8080": f"127.0.0.1:{upstream}",
        },
    )
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = directory / "nginx.conf"
    configuration.write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{site}\n}}\n"
    )
    command = [program, "-c", str(configuration), "-p", str(directory), "-e", "stderr"]
    with running(command, port):
        yield port


def make_certificate(openssl: str, directory: Path) -> None:
    """Write privkey.pem and fullchain.pem, the names in the guide."""
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    name = "-subj /CN=widgets.example -addext subjectAltName=DNS:widgets.example"
    files = ["-keyout", str(directory / "privkey.pem"), "-out", str(directory / "fullchain.pem")]
    command = [openssl, "req", *options.split(), *name.split(), *files]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def caddy(directory: Path, upstream: int) -> Iterator[int]:
    """Run Caddy as documented, with other addresses, before a port; yield its own port.

    Without Caddy the test is skipped.
    """
    program = shutil.which("caddy", path=SYSTEM_PATH)
    if program is None:
        pytest.skip("Caddy is not installed.")
    port = free_port()
    site = substitute(
        block("caddy"),
        {
            "widgets.example {": f"https://127.0.0.1:{port} {{",
            "127.0.0.1:8080": f"127.0.0.1:{upstream}",
        },
    )
    settings = (
        "{\n admin off\n skip_install_trust\n local_certs\n auto_https disable_redirects\n}\n"
    )
    (directory / "Caddyfile").write_text(settings + site)
    home = {
        "HOME": str(directory),
        "XDG_DATA_HOME": str(directory),
        "XDG_CONFIG_HOME": str(directory),
    }
    command = [program, "run", "--adapter", "caddyfile", "--config", str(directory / "Caddyfile")]
    with running(command, port, **home):
        yield port


@contextmanager
def running(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """Run a server until the end of the block, which begins once the port accepts connections."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    )
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=10).close()
                break
            except ConnectionRefusedError:
                continue
        else:
            assert process.stderr is not None
            pytest.fail(process.stderr.read())
        yield
    finally:
        process.terminate()
        process.communicate(timeout=10)
