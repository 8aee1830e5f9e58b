"""The servers that are measured: on loopback, and ended by their own number whatever happens."""

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from bench.workload import SEARCH

ROOT = Path(__file__).parent.parent
WORK = ROOT / "bench" / ".work"
THREADS = "8"  # what the service itself takes where nothing is said; the limit gets as many
START_PATIENCE = 60
SETTLE_PATIENCE = 5


class StartError(Exception):
    """A server did not start; the message says what it said."""


def settings(database: Path) -> dict[str, str]:
    """The environment of our service on this database, and of its commands."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CATALOG_", "FLASK_"))
    }
    return {
        **clean,
        "CATALOG_DATABASE": str(database),
        "CATALOG_PORT": "0",
        "CATALOG_THREADS": THREADS,
    }


class Server:
    """A process that serves; knows its address and how long its first answer took."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        first_path: str,
        environment: Mapping[str, str] | None = None,
        url: str | None = None,
    ) -> None:
        self.name = name
        self._log = WORK / f"{name}.log"
        begun = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self.url = url or self._address()
            self._wait_for(first_path)
        except BaseException:
            self.stop()
            raise
        self.seconds_to_first_answer = time.perf_counter() - begun

    def _address(self) -> str:
        """The address at the end of the line that says where it serves."""
        end = time.perf_counter() + START_PATIENCE
        while self._process.poll() is None and time.perf_counter() < end:
            if said := re.search(r"(http://127\.0\.0\.1:\d+)\n", self._log.read_text()):
                return said[1]
            time.sleep(0.005)
        raise self._failure()

    def _wait_for(self, path: str) -> None:
        end = time.perf_counter() + START_PATIENCE
        while self._process.poll() is None and time.perf_counter() < end:
            try:
                status, _, _ = fetch(self.url, "GET", path)
            except OSError:
                time.sleep(0.02)
                continue
            if status < 500:
                return
            break
        raise self._failure()

    def _failure(self) -> StartError:
        said = self._log.read_text(errors="replace")[-1000:]
        return StartError(f"{self.name} does not answer. {said}")

    def memory(self) -> int:
        """Bytes of memory that the process has now, or 0 where this machine does not say."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except FileNotFoundError:
            return 0
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def settle(self) -> None:
        """Wait until it works on nothing that a load has left behind, so as to disturb no other."""
        before, end = -1.0, time.perf_counter() + SETTLE_PATIENCE
        while (used := self._processor_time()) != before and time.perf_counter() < end:
            before = used
            time.sleep(0.05)

    def _processor_time(self) -> float:
        """What it has used so far; 0 where this machine does not say."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except FileNotFoundError:
            return 0
        return sum(map(int, stat.rsplit(")", 1)[1].split()[11:13]))

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


def our_service(database: Path) -> Server:
    """The service as `python app.py` starts it."""
    return Server("ours", [sys.executable, "app.py"], SEARCH, settings(database))


def the_limit(answers: Path) -> Server:
    command = [sys.executable, "-m", "bench.limit", answers, THREADS]
    return Server("limit", command, "/")


def free_port() -> int:
    """A port for a server that cannot choose one itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def fetch(
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, list[tuple[str, str]], bytes]:
    """One answer: its status, headers and body."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()
