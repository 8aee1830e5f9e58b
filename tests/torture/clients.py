"""Clients that ask without a pause, and what they were answered."""

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
READS = [
    ("GET", "/api/v1/widgets/search?q=clock"),
    ("GET", "/api/v1/widgets/search?q=weather&compatSdk=1.4.0"),
    ("GET", CLOCK),
    ("GET", "/api/widgets/acme/registry.json"),
]

Request = tuple[str, str]  # method and path


class Answer(NamedTuple):
    """What came back, and after how many milliseconds."""

    method: str
    status: int
    retry_after: str | None
    took: float


class Client(threading.Thread):
    """Sends its requests in turn on one connection until it is stopped or cut off."""

    def __init__(self, port: int, requests: Iterable[Request]) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.unanswered = 0  # installs that may have been counted or not
        self.stopped = threading.Event()
        self._port = port
        self._requests = itertools.cycle(requests)

    def run(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            while not self.stopped.is_set():
                method, path = next(self._requests)
                begun = time.perf_counter()
                try:
                    connection.request(method, path)
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException):
                    self.unanswered += method == "POST"
                    return
                took = (time.perf_counter() - begun) * 1000
                retry_after = response.headers["Retry-After"]
                self.answers.append(Answer(method, response.status, retry_after, took))


@contextmanager
def asking(port: int, *requests: Iterable[Request]) -> Iterator[list[Client]]:
    """A client for each of the lists of requests, at work for as long as the block runs."""
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


def wait_for_answers(clients: list[Client], number: int) -> None:
    """Go on when each of the clients that still ask has had so many answers more."""
    wanted = [len(client.answers) + number for client in clients]
    for client, answers in zip(clients, wanted, strict=True):
        while client.is_alive() and len(client.answers) < answers:
            client.join(0.005)


def answers_of(clients: list[Client], method: str) -> list[Answer]:
    """All answers to one method."""
    return [answer for client in clients for answer in client.answers if answer.method == method]


def counted(answers: list[Answer], status: int) -> int:
    """How many of the answers have the status."""
    return sum(answer.status == status for answer in answers)


def p99(answers: list[Answer]) -> float:
    """Milliseconds within which 99 of 100 answers came."""
    return round(statistics.quantiles([answer.took for answer in answers], n=100)[98], 1)


def median(answers: list[Answer]) -> float:
    """Milliseconds within which half of the answers came."""
    return statistics.median(answer.took for answer in answers)


def installs(database: Path) -> int:
    """The installs of the clock in a file that must be in order."""
    with closing(sqlite3.connect(database)) as connection:
        (state,) = connection.execute("PRAGMA integrity_check").fetchone()
        assert state == "ok"
        (count,) = connection.execute(
            "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
        ).fetchone()
    return int(count)
