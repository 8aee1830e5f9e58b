"""Runs real reverse proxies with the files of deploy/, and a service behind them."""

import http.client
import os
import re
import select
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from conftest import ROOT
from ports import free_port
from prepared_processes import start_python
from programs import find_program

DEPLOY = ROOT / "deploy"
HOST = "widgets.example"
PREFIX = "/catalog"
MAIN, CACHE = "widget-catalog.conf", ("widget-catalog-cache.conf", "cache-locations.conf")
# Replaced in every file of nginx: three installs in a burst, and a validity that no test outlasts.
TEST_LIMITS = {"rate=1r/s": "rate=1r/m", "burst=60": "burst=2"}
TEST_VALIDITY = {"200 404 60s;": "200 404 1h;", "200 404 1s;": "200 404 1h;"}
# Tests send another address of the client with this header.
CLIENT_ADDRESS = "set_real_ip_from 127.0.0.1; real_ip_header X-Test-Address;"


def substitute(text: str, replacements: Mapping[str, str]) -> str:
    """Return the text with every key replaced; each must occur in it."""
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@cache
def trusting(certificate: Path) -> ssl.SSLContext:
    """Return the settings of a client that trusts this certificate only."""
    return ssl.create_default_context(cafile=certificate)


class ProxyResponse(NamedTuple):
    """A response that came through a proxy."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def cache_status(self) -> str | None:
        """What nginx did with its cache, None if it did not use it."""
        return self.headers["X-Cache-Status"]


class Proxy(NamedTuple):
    """A running proxy; its certificate is also valid for its IP address."""

    port: int
    certificate: Path
    prefix: str = ""
    # For requests without TLS.
    plain_port: int = 0

    def request(
        self, method: str, path: str, body: bytes = b"", /, **headers: str
    ) -> ProxyResponse:
        """Send one request, its path below the prefix. In names of headers, _ stands for -."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=60, context=trusting(self.certificate)
        )
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, self.prefix + path, body or None, {"Host": HOST, **fields})
            response = connection.getresponse()
            return ProxyResponse(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> ProxyResponse:
        return self.request("GET", path, **headers)


# What a proxy tells the service about its clients.
FORWARDED = {"X-Forwarded-Host": HOST, "X-Forwarded-Proto": "https"}
SERVE_RECORDED = "from recorded_service import serve_recorded; {}; serve_recorded(create_app())"


class Origin:
    """The service behind a proxy, with the requests that reach it."""

    def __init__(self, database: Path, factory: str = "app.create_app", **settings: str) -> None:
        module, _, name = factory.rpartition(".")
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT}/tests:{ROOT}/tests/deploy",
            "CATALOG_DATABASE": str(database),
            "CATALOG_PORT": "0",
            "CATALOG_LOG_LEVEL": "error",
            "CATALOG_TRUSTED_PROXY": "127.0.0.1",
            **settings,
        }
        self._process = start_python(
            ["-c", SERVE_RECORDED.format(f"from {module} import {name} as create_app")],
            environment,
            cwd=ROOT,
            stderr=None,
            text=False,
        )
        self._unread = b""
        while b"\n" not in self._unread:
            assert self._read(20), "The service has not started."
        line, _, self._unread = self._unread.partition(b"\n")
        self.port = int(line.rsplit(b":", 1)[1])

    def _read(self, seconds: float) -> bool:
        """Read what the service has printed; return whether there was something in time."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], seconds)[0]:
            return False
        content = os.read(descriptor, 65536)
        assert content, "The service has ended."
        self._unread += content
        return True

    def requests(self) -> list[str]:
        """Return method, target and status of the requests since the last call."""
        while self._read(0):
            pass
        lines, self._unread = self._unread.decode().splitlines(), b""
        return lines

    def get(self, path: str) -> bytes:
        """Return the body of a response to a request that no proxy forwards."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers=FORWARDED)
            return connection.getresponse().read()
        finally:
            connection.close()

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)


@contextmanager
def serve(database: Path, factory: str = "app.create_app", **settings: str) -> Iterator[Origin]:
    """Serve the database for a proxy until the end of the block."""
    origin = Origin(database, factory, **settings)
    try:
        yield origin
    finally:
        origin.stop()


def nginx_files(name: str, snippets: tuple[str, ...]) -> dict[str, str]:
    """Return the files of deploy/nginx, by name; NAME-prefix is made as the first file says."""
    files = {each: (DEPLOY / "nginx" / each).read_text("utf-8") for each in (MAIN, *snippets)}
    if name.endswith("-prefix"):
        (command,) = re.findall("^# (sed -i .*) FILE$", files[MAIN], re.MULTILINE)
        command = command.replace("sed -i", "sed")
        for each, text in files.items():
            files[each] = subprocess.run(
                ["sh", "-c", command], input=text, check=True, capture_output=True, text=True
            ).stdout
    return files


@contextmanager
def nginx(
    directory: Path,
    upstream: int | str,
    name: str = "widget-catalog-prefix",
    more: str = "",
    snippets: tuple[str, ...] = (),
    host: str = "$server_name",
    limits: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Proxy]:
    """Run nginx with the files of deploy/ before a port or socket, with other addresses and limits.

    A name with "cache" has the edge cache, one with "prefix" the path prefix. Snippets are further
    files for the server, more is configuration for the http block, host what the service takes for
    its host, limits texts of the main file to replace. Without nginx the test is skipped.
    """
    program = find_program("nginx")
    make_certificate(directory)
    port, plain_port = free_port(), free_port()
    address = f"127.0.0.1:{upstream}" if isinstance(upstream, int) else upstream
    is_cache = "cache" in name
    files = nginx_files(name, (*snippets, *(CACHE if is_cache else ())))
    included = directory / "widget-catalog.d"
    included.mkdir()
    site = substitute(
        files.pop(MAIN),
        {
            "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
            "listen 80;": f"listen 127.0.0.1:{plain_port};",
            "listen [::]:443 ssl http2;": "",
            "listen [::]:80;": "",
            "/etc/letsencrypt/live/widgets.example/": f"{directory}/",
            "/etc/nginx/widget-catalog.d": str(included),
            "/var/www/html": str(directory),
            "127.0.0.1:8080": address,
            "X-Forwarded-Host $server_name;": f"X-Forwarded-Host {host};",
            **TEST_LIMITS,
            **limits,
        },
    )
    if is_cache:
        files["cache-locations.conf"] = substitute(files["cache-locations.conf"], TEST_VALIDITY)
    # Files of conf.d; all others are for the server.
    for each in [each for each in files if each.startswith("widget-catalog-")]:
        site += files.pop(each).replace("/var/cache/nginx-widget-catalog", f"{directory}/cache")
    for each, text in files.items():
        (included / each).write_text(text.replace("/etc/nginx/", f"{directory}/"))
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = directory / f"{name}.conf"
    configuration.write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log stderr;\nevents {{}}\n"
        f"http {{ access_log off; {temporary}\n{CLIENT_ADDRESS}\n{more}\n{site}\n}}\n"
    )
    command = [program, "-c", str(configuration), "-p", str(directory), "-e", "stderr"]
    prefix = PREFIX if name.endswith("prefix") else ""
    with running(command, port):
        yield Proxy(port, directory / "fullchain.pem", prefix, plain_port)


def make_certificate(directory: Path) -> None:
    """Write privkey.pem and fullchain.pem, the names in the files."""
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    name = f"-subj /CN={HOST} -addext subjectAltName=DNS:{HOST},IP:127.0.0.1"
    files = ["-keyout", str(directory / "privkey.pem"), "-out", str(directory / "fullchain.pem")]
    command = [find_program("openssl"), "req", *options.split(), *name.split(), *files]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def caddy(directory: Path, upstream: int, name: str = "Caddyfile-prefix") -> Iterator[Proxy]:
    """Run Caddy with a file of deploy/ before a port, with other addresses.

    Without Caddy the test is skipped.
    """
    program = find_program("caddy")
    make_certificate(directory)
    port = free_port()
    addresses = f"https://{HOST}:{port}, https://127.0.0.1:{port}"
    text = (DEPLOY / "caddy" / name).read_text(encoding="utf-8")
    site = substitute(
        # The variable is of compose.yaml.
        text.replace("{$SITE:widgets.example}", HOST),
        {
            "widgets.example {": f"{addresses} {{\n"
            f"\ttls {directory}/fullchain.pem {directory}/privkey.pem",
            "127.0.0.1:8080": f"127.0.0.1:{upstream}",
        },
    )
    settings = "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n"
    configuration = directory / name
    configuration.write_text(settings + site)
    home = {
        "HOME": str(directory),
        "XDG_DATA_HOME": str(directory),
        "XDG_CONFIG_HOME": str(directory),
    }
    command = [program, "run", "--adapter", "caddyfile", "--config", str(configuration)]
    with running(command, port, **home):
        yield Proxy(port, directory / "fullchain.pem", PREFIX if name.endswith("prefix") else "")


@contextmanager
def running(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """Run a server until the end of the block, which begins once the port accepts connections."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    )
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
                break
            except ConnectionRefusedError:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.01)
        else:
            assert process.stderr is not None
            pytest.fail(process.stderr.read())
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)
