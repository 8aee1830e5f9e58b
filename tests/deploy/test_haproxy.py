"""deploy/cluster/haproxy.cfg in a real HAProxy, before services that only have a state."""

import http.client
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from ports import free_port
from programs import find_program
from reverse_proxies import DEPLOY, running, substitute

CONFIGURATION = DEPLOY / "cluster" / "haproxy.cfg"
# Checks every 20 ms.
TEST_INTERVAL = {"inter 1s": "inter 20"}


class FakeService(ThreadingHTTPServer):
    """Responds to health checks with its state, to other requests with its number."""

    daemon_threads = True

    def __init__(self, number: int) -> None:
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.number = number
        self.state = "ok"


class FakeHandler(BaseHTTPRequestHandler):
    server: FakeService
    # One packet for each response: HAProxy ends a check as soon as it knows the result.
    wbufsize = -1

    def do_GET(self) -> None:
        if self.path == "/api/health":
            status = 200 if self.server.state == "ok" else 503
            body = f'{{"status":"{self.server.state}"}}\n'
        else:
            status, body = 200, str(self.server.number)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def configure(path: Path, port: int, services: list[int]) -> None:
    """Write the file of deploy/ with these ports."""
    addresses = {
        f"192.0.2.1{number}:8080": f"127.0.0.1:{service}"
        for number, service in enumerate(services, 1)
    }
    text = CONFIGURATION.read_text(encoding="utf-8")
    path.write_text(
        substitute(text, {"127.0.0.1:8080": f"127.0.0.1:{port}", **addresses, **TEST_INTERVAL})
    )


class Balancer:
    """HAProxy before three services, whose states a test sets."""

    def __init__(self, port: int, services: list[FakeService]) -> None:
        self._port = port
        self._services = services

    def set_states(self, *states: str) -> None:
        for service, state in zip(self._services, states, strict=True):
            service.state = state

    def reached(self, method: str) -> set[int]:
        """Return which services get 6 requests, one after another; 503 if there is none."""
        return {self._request(method) for _ in range(6)}

    def _request(self, method: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, "/api/v1/widgets/acme/clock")
            response = connection.getresponse()
            return int(response.read()) if response.status == 200 else response.status
        finally:
            connection.close()


@contextmanager
def serving(numbers: range) -> Iterator[list[FakeService]]:
    services = [FakeService(number) for number in numbers]
    threads = [Thread(target=service.serve_forever, args=[0.01]) for service in services]
    for thread in threads:
        thread.start()
    try:
        yield services
    finally:
        for service, thread in zip(services, threads, strict=True):
            service.shutdown()
            thread.join()
            service.server_close()


@pytest.fixture(scope="module")
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balancer]:
    program = find_program("haproxy")
    path, port = tmp_path_factory.mktemp("haproxy") / "haproxy.cfg", free_port()
    with serving(range(1, 4)) as services:
        configure(path, port, [service.server_port for service in services])
        with running([program, "-q", "-db", "-f", str(path)], port):
            yield Balancer(port, services)


def wait_until_reached(balancer: Balancer, method: str, expected: set[int]) -> None:
    deadline = time.monotonic() + 20
    while (reached := balancer.reached(method)) != expected:
        assert time.monotonic() < deadline, reached


@pytest.mark.parametrize(
    ("states", "reached"),
    [
        (["ok", "ok", "ok"], {1, 2, 3}),
        (["ok", "ok", "behind"], {1, 2}),
        (["ok", "read-only", "incomplete"], {1}),
        # A service without a leader waits for one.
        (["read-only", "read-only", "behind"], {1, 2}),
        (["read-only", "incomplete", "unavailable"], {1, 2}),
        (["behind", "unavailable", "behind"], {503}),
    ],
)
def test_requests_reach_the_services_that_can_serve_them(
    balancer: Balancer, states: list[str], reached: set[int]
) -> None:
    balancer.set_states(*states)
    wait_until_reached(balancer, "GET", reached)
    wait_until_reached(balancer, "POST", reached)


def test_haproxy_finds_no_fault_in_the_file(tmp_path: Path) -> None:
    program, path = find_program("haproxy"), tmp_path / "haproxy.cfg"
    configure(path, 8080, [1, 2, 3])
    result = subprocess.run([program, "-c", "-f", path], capture_output=True, text=True)
    assert (result.returncode, re.findall("WARNING.*", result.stderr)) == (0, [])
