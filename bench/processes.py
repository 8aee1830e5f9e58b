"""Server processes under test, which listen on the loopback interface and are stopped by pid."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from bench.workload import PAGE_BYTES, SEARCH, constant_path

ROOT = Path(__file__).parent.parent
WORK = ROOT / "bench" / ".work"
START_TIMEOUT = 60  # seconds
SETTLE_TIMEOUT = 5  # seconds


class StartError(Exception):
    """A command or a server failed to start; the message ends with its output."""


def settings(database: Path, port: int = 0) -> dict[str, str]:
    """Return the environment variables for running the service or its commands on this database."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CATALOG_", "FLASK_"))
    }
    return {**inherited, "CATALOG_DATABASE": str(database), "CATALOG_PORT": str(port)}


class Server:
    """A running server process: its URL, its CPU time and its memory."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        port: int,
        first_path: str,
        directory: Path = ROOT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self._log = WORK / f"{name}.log"
        started = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_for(first_path)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - started

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait_for(self, path: str) -> None:
        deadline = time.perf_counter() + START_TIMEOUT
        while self._process.poll() is None and time.perf_counter() < deadline:
            try:
                status, _, _ = fetch(self.url, "GET", path)
            except OSError:
                time.sleep(0.005)
                continue
            if status < 500 and self._process.poll() is None:
                return
            break
        output = self._log.read_text(errors="replace")[-1000:]
        raise StartError(f"{self.name} does not respond. {output}")

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads since the start."""
        # On Linux, the clock that clock_getcpuclockid(3) returns counts nanoseconds; /proc counts
        # only hundredths of a second.
        return time.clock_gettime(~self.pid << 3 | 2)

    def settle(self) -> None:
        """Wait until the process is idle, so that the next measurement is not disturbed."""
        previous, deadline = -1.0, time.perf_counter() + SETTLE_TIMEOUT
        while (used := self.cpu_seconds()) != previous and time.perf_counter() < deadline:
            previous = used
            time.sleep(0.01)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_flask(directory: Path, database: Path, *arguments: str) -> None:
    """Run one of the service's commands in the directory."""
    result = subprocess.run(
        [sys.executable, "-m", "flask", *arguments],
        cwd=directory,
        env=settings(database),
        capture_output=True,
        text=True,
    )
    if result.returncode:
        raise StartError(f"flask {arguments[0]} failed: {result.stderr}")


def create_database(directory: Path, database: Path) -> None:
    """Replace the database with an empty one that has the schema of the code in the directory."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    run_flask(directory, database, "init")


def start_service(
    name: str, directory: Path, database: Path, more_settings: Mapping[str, str]
) -> Server:
    """Start the service in the directory, and return its process."""
    port = free_port()
    environment = {**settings(database, port), **more_settings}
    return Server(name, [sys.executable, "app.py"], port, SEARCH, directory, environment)


def start_baseline() -> Server:
    """Start the baseline with its own empty database, and return its process."""
    database, port = WORK / "baseline.db", free_port()
    create_database(ROOT, database)
    command = [sys.executable, "-m", "flask", "--app", "bench.baseline", "serve"]
    first_path, environment = constant_path(PAGE_BYTES), settings(database, port)
    return Server("baseline", command, port, first_path, ROOT, environment)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def fetch(
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Return the status, headers and body of one response."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port
    with closing(http.client.HTTPConnection(host, port, timeout=30)) as connection:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.headers, response.read()
