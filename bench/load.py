"""Load on one server of this machine: wrk where it is installed, else a client of our own."""

import asyncio
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.workload import Request

SCRIPT = Path(__file__).parent / "wrk.lua"
PATIENCE = 30  # seconds that one answer may take


class LoadError(Exception):
    """A server did not answer as it must, so that its speed would say nothing."""


@dataclass(frozen=True)
class Load:
    """How to send requests: so many connections, for so many seconds, or each request once."""

    connections: int
    seconds: int
    once: bool = False


@dataclass(frozen=True)
class Outcome:
    requests: int
    seconds: float
    failed: int
    p50: float
    p99: float
    bytes: int

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def milliseconds(self) -> float:
        """The time that one request costs where each waits for the one before."""
        return self.seconds / self.requests * 1000


class Client:
    """Sends load, by wrk or by itself."""

    def __init__(self, directory: Path, own: bool = False) -> None:
        self.list = directory / "requests.txt"
        self.wrk = None if own else shutil.which("wrk")
        self.name = self._version() if self.wrk else "the built-in client, without wrk"

    def _version(self) -> str:
        ran = subprocess.run([self.wrk, "-v"], capture_output=True, text=True, timeout=10)
        return f"wrk {re.search('[0-9]+[.][0-9.]+', ran.stdout)[0]}"

    def run(
        self, url: str, requests: Sequence[Request], load: Load, headers: Mapping[str, str]
    ) -> Outcome:
        """What came of the load; raises LoadError where anything went wrong."""
        if urlsplit(url).hostname != "127.0.0.1":
            raise LoadError(f"{url} is not on this machine's own loopback address.")
        send = self._by_wrk if self.wrk else _by_itself
        outcome = send(url, requests, load, headers)
        if outcome.failed or not outcome.requests:
            raise LoadError(
                f"{outcome.failed} of {outcome.requests} requests to {url} failed; "
                f"the first was {' '.join(requests[0])}"
            )
        return outcome

    def _by_wrk(
        self, url: str, requests: Sequence[Request], load: Load, headers: Mapping[str, str]
    ) -> Outcome:
        self.list.write_text("".join(f"{method} {path}\n" for method, path in requests))
        options = [f"-c{load.connections}", f"-d{load.seconds}s", "-t1", f"--timeout={PATIENCE}s"]
        options += [f"-H{name}: {value}" for name, value in headers.items()]
        mode = "once" if load.once else "cycle"
        ran = subprocess.run(
            [self.wrk, *options, "-s", SCRIPT, url, "--", self.list, mode],
            capture_output=True,
            text=True,
            timeout=load.seconds + PATIENCE,
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        if ran.returncode or not lines:
            raise LoadError(f"wrk failed: {ran.stdout}{ran.stderr}")
        return Outcome(**json.loads(lines[0]))


def _by_itself(
    url: str, requests: Sequence[Request], load: Load, headers: Mapping[str, str]
) -> Outcome:
    try:
        return asyncio.run(_all_connections(url, requests, load, headers))
    except TimeoutError as error:
        raise LoadError(f"{url} took more than {PATIENCE} seconds for an answer.") from error


async def _all_connections(
    url: str, requests: Sequence[Request], load: Load, headers: Mapping[str, str]
) -> Outcome:
    begun = time.perf_counter()
    waiting = _encoded(url, requests, load.once, headers)
    counts = [_Counts() for _ in range(load.connections)]
    async with asyncio.timeout(load.seconds + PATIENCE), asyncio.TaskGroup() as group:
        for each in counts:
            group.create_task(_connection(url, waiting, begun + load.seconds, each))
    seconds = time.perf_counter() - begun
    took = sorted(each for count in counts for each in count.took) or [0.0]
    return Outcome(
        requests=len(took),
        seconds=seconds,
        failed=sum(count.failed for count in counts),
        p50=took[len(took) // 2],
        p99=took[len(took) * 99 // 100],
        bytes=sum(count.bytes for count in counts),
    )


class _Counts:
    def __init__(self) -> None:
        self.took: list[float] = []
        self.failed = self.bytes = 0


def _encoded(
    url: str, requests: Sequence[Request], once: bool, headers: Mapping[str, str]
) -> Iterator[bytes]:
    host = f"Host: {urlsplit(url).netloc}\r\n"
    fixed = host + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    while True:
        for method, path in requests:
            length = "Content-Length: 0\r\n" if method == "POST" else ""
            yield f"{method} {path} HTTP/1.1\r\n{fixed}{length}\r\n".encode()
        if once:
            return


async def _connection(url: str, waiting: Iterator[bytes], end: float, counts: _Counts) -> None:
    address = urlsplit(url)
    writer = None
    try:
        for request in waiting:
            begun = time.perf_counter()
            if writer is None:
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(request)
            head, size = await _answer(reader)
            now = time.perf_counter()
            counts.took.append(now - begun)
            counts.bytes += size
            counts.failed += int(head[9:12]) > 399
            if b"\r\nconnection: close\r\n" in head:  # as waitress does after every 304
                writer.close()
                writer = None
            if now > end:
                break
    except (OSError, EOFError):
        counts.failed += 1
    finally:
        if writer:
            writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """The head of an answer, in small letters, and the size of the whole, read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = len(head)
    if b"\r\ntransfer-encoding: chunked\r\n" in head:
        while length := int(await reader.readline(), 16):
            size += len(await reader.readexactly(length + 2))
        await reader.readline()
    elif head[9:12] != b"304":
        length = int(head.split(b"\r\ncontent-length:", 1)[1].split(b"\r\n", 1)[0])
        size += len(await reader.readexactly(length))
    return head, size
