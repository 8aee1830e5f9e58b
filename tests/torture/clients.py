"""Clients that send requests without a pause and record the responses."""

import http.client
import itertools
import sqlite3
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

CLOCK = "/api/v1/widgets/acme/clock"
POST = ("POST", CLOCK)
VERSION = "2.2.0"
POST_VERSION = ("POST", f"{CLOCK}/{VERSION}")
READS = [
    ("GET", "/api/v1/widgets/search?q=clock"),
    ("GET", "/api/v1/widgets/search?q=weather&compatSdk=1.4.0"),
    ("GET", CLOCK),
    ("GET", "/api/widgets/acme/registry.json"),
]

# Method and path.
Request = tuple[str, str]


class Response(NamedTuple):
    """A response, and the time that it took."""

    method: str
    status: int
    retry_after: str | None
    milliseconds: float


class Client(threading.Thread):
    """Sends its requests in turn on one connection until it is stopped or disconnected."""

    def __init__(self, port: int, requests: Iterable[Request]) -> None:
        super().__init__()
        self.responses: list[Response] = []
        # Installs without a response, which may have been counted or not.
        self.unknown = 0
        self.stopped = threading.Event()
        self._port = port
        self._requests = itertools.cycle(requests)

    def run(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            while not self.stopped.is_set():
                method, path = next(self._requests)
                started = time.perf_counter()
                try:
                    connection.request(method, path)
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException):
                    self.unknown += method == "POST"
                    return
                milliseconds = (time.perf_counter() - started) * 1000
                retry_after = response.headers["Retry-After"]
                self.responses.append(Response(method, response.status, retry_after, milliseconds))


@contextmanager
def running_clients(port: int, *requests: Iterable[Request]) -> Iterator[list[Client]]:
    """Run a client for each of the lists of requests while the block runs."""
    clients = [Client(port, each) for each in requests]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.stopped.set()
        for client in clients:
            client.join()


def wait_for_responses(clients: list[Client], number: int) -> None:
    """Wait until each of the connected clients has had this many more responses."""
    targets = [len(client.responses) + number for client in clients]
    for client, target in zip(clients, targets, strict=True):
        while client.is_alive() and len(client.responses) < target:
            client.join(0.005)


def responses_to(clients: list[Client], method: str) -> list[Response]:
    """All responses to requests of one method."""
    return [
        response for client in clients for response in client.responses if response.method == method
    ]


def count_status(responses: list[Response], status: int) -> int:
    """The number of responses with the status."""
    return sum(response.status == status for response in responses)


def p99(responses: list[Response]) -> float:
    """The 99th percentile of the time of the responses, in milliseconds."""
    return round(
        statistics.quantiles([response.milliseconds for response in responses], n=100)[98], 1
    )


def median(responses: list[Response]) -> float:
    """The median time of the responses, in milliseconds."""
    return statistics.median(response.milliseconds for response in responses)


def installs(database: Path) -> int:
    """The installs of the clock in a file whose integrity is checked."""
    with closing(sqlite3.connect(database)) as connection:
        (state,) = connection.execute("PRAGMA integrity_check").fetchone()
        assert state == "ok"
        (count,) = connection.execute(
            "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
        ).fetchone()
    return int(count)


def installs_by_day(database: Path) -> tuple[int, int]:
    """The installs of the clock as the sum of its days, and those of the version."""
    with closing(sqlite3.connect(database)) as connection:
        days, version = connection.execute(
            "SELECT (SELECT sum(installs) FROM install_day WHERE widget_id = widget.id), coalesce(("
            " SELECT installs FROM install_version WHERE widget_id = widget.id AND version = ?), 0)"
            " FROM widget WHERE scope = 'acme' AND name = 'clock'",
            (VERSION,),
        ).fetchone()
    return days, version
