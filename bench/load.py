"""Load on a server of this machine: from wrk if it is installed, else from a built-in client."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

from bench.processes import Server
from bench.workload import Request

SCRIPT = Path(__file__).parent / "wrk.lua"
TIMEOUT = 60  # seconds for all requests of one load

# CPU time of the server in µs per request ("cpu"), and requests per second ("rate").
Sample = dict[str, float]


class LoadError(Exception):
    """Not every request succeeded, so the measurement is worthless."""


class Client:
    """Sends requests over several connections at once, each request exactly once."""

    def __init__(self, directory: Path, use_wrk: bool = True) -> None:
        self._list = directory / "requests.txt"
        self._wrk = (use_wrk and shutil.which("wrk")) or ""
        self.name = "the built-in client"
        if self._wrk:
            result = subprocess.run([self._wrk, "-v"], capture_output=True, text=True, timeout=10)
            self.name = " ".join(result.stdout.split()[:2])

    def measure(
        self,
        server: Server,
        requests: Sequence[Request],
        connections: int,
        headers: Mapping[str, str] | None = None,
    ) -> Sample:
        """Send the requests and wait until the server is idle."""
        cpu_before = server.cpu_seconds()
        seconds = self.send(server.url, requests, connections, headers)
        server.settle()
        cpu = server.cpu_seconds() - cpu_before
        return {"cpu": cpu / len(requests) * 1e6, "rate": len(requests) / seconds}

    def send(
        self,
        url: str,
        requests: Sequence[Request],
        connections: int,
        headers: Mapping[str, str] | None = None,
    ) -> float:
        """Seconds from the first request to the last response; LoadError if any request failed."""
        if urlsplit(url).hostname != "127.0.0.1":
            raise LoadError(f"{url} is not on the loopback interface.")
        send = self._send_by_wrk if self._wrk else _send
        try:
            seconds, succeeded = send(url, requests, connections, headers or {})
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise LoadError(f"{url} took more than {TIMEOUT} seconds.") from error
        if succeeded != len(requests):
            raise LoadError(
                f"{len(requests) - succeeded} of {len(requests)} requests to {url} failed; "
                f"the first request was {' '.join(requests[0])}"
            )
        return seconds

    def _send_by_wrk(
        self, url: str, requests: Sequence[Request], connections: int, headers: Mapping[str, str]
    ) -> tuple[float, int]:
        self._list.write_text("".join(f"{method} {path}\n" for method, path in requests))
        options = [f"-c{connections}", f"-d{TIMEOUT}s", "-t1", f"--timeout={TIMEOUT}s"]
        options += [f"-H{name}: {value}" for name, value in headers.items()]
        result = subprocess.run(
            [self._wrk, *options, "-s", SCRIPT, url, "--", self._list],
            capture_output=True,
            text=True,
            timeout=TIMEOUT + 10,
        )
        lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
        if result.returncode or not lines:
            raise LoadError(f"wrk failed: {result.stdout}{result.stderr}")
        outcome = json.loads(lines[0])
        return outcome["seconds"], outcome["succeeded"]


def _send(
    url: str, requests: Sequence[Request], connections: int, headers: Mapping[str, str]
) -> tuple[float, int]:
    return asyncio.run(_send_all(url, requests, connections, headers))


async def _send_all(
    url: str, requests: Sequence[Request], connections: int, headers: Mapping[str, str]
) -> tuple[float, int]:
    queue = iter(list(_encoded(url, requests, headers)))
    started = time.perf_counter()
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        tasks = [group.create_task(_connection(url, queue)) for _ in range(connections)]
    return time.perf_counter() - started, sum(task.result() for task in tasks)


def _encoded(url: str, requests: Sequence[Request], headers: Mapping[str, str]) -> Iterator[bytes]:
    host = f"Host: {urlsplit(url).netloc}\r\n"
    fixed = host + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    for method, path in requests:
        length = "Content-Length: 0\r\n" if method == "POST" else ""
        yield f"{method} {path} HTTP/1.1\r\n{fixed}{length}\r\n".encode()


async def _connection(url: str, queue: Iterator[bytes]) -> int:
    """Send requests from the queue until it is empty; the number of successful ones."""
    address = urlsplit(url)
    succeeded = 0
    with suppress(OSError, EOFError):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        with closing(writer):
            for request in queue:
                writer.write(request)
                succeeded += await _read_status(reader) < 400
    return succeeded


async def _read_status(reader: asyncio.StreamReader) -> int:
    """Read a response to its end; its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    if b"\r\ntransfer-encoding: chunked\r\n" in head:
        while length := int(await reader.readline(), 16):
            await reader.readexactly(length + 2)
        await reader.readline()
    elif status != 304:
        length = int(head.split(b"\r\ncontent-length:", 1)[1].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
    return status
