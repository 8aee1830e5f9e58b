"""Stopped again and again while clients read and post: no request that was sent goes unanswered."""

import http.client
import random
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Server, create_demo

ROUNDS = 20
CLIENTS = 8
PATHS = ["/api/v1/widgets/search?q=clock", "/api/v1/widgets/acme/clock", "/api/version"]
CLOCK = "/api/v1/widgets/acme/clock"


class Client(threading.Thread):
    """Asks without a pause until nobody lets it in; half of them keep their connections."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__()
        self.port = port
        self.keeps = number % 2 == 0
        self.posts = number % 4 < 2
        self.answered = self.acknowledged = 0
        self.cut_off: list[str] = []

    def run(self) -> None:
        chance = random.Random(self.name)  # noqa: S311  (which path is next)
        connection = None
        while True:
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                try:
                    connection.connect()
                except (ConnectionRefusedError, ConnectionResetError, TimeoutError):
                    return
            method, path = ("POST", CLOCK) if self.posts else ("GET", chance.choice(PATHS))
            try:
                connection.request(method, path)
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException) as error:
                self.cut_off.append(repr(error))
                return
            if response.status != 200:
                self.cut_off.append(f"{response.status}")
            self.answered += 1
            self.acknowledged += method == "POST"
            if not self.keeps or response.headers["Connection"] == "close":
                connection.close()
                connection = None


def installs(database: Path) -> int:
    connection = sqlite3.connect(database)
    (count,) = connection.execute(
        "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
    ).fetchone()
    (state,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    assert state == "ok"
    return count


def test_a_stop_under_load_cuts_nobody_off(tmp_path: Path, figures: Callable[..., None]) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    answered = acknowledged = 0
    cut_off: list[str] = []
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits it
    for number in range(ROUNDS):
        server = Server(database)
        clients = [Client(server.port, each) for each in range(CLIENTS)]
        for client in clients:
            client.start()
        while sum(client.answered for client in clients) < 150:
            clients[0].join(0.01)
        server.process.send_signal(signal.SIGTERM if number % 2 else signal.SIGINT)
        for client in clients:
            client.join()
        assert server.process.wait(20) == 0
        server.process.communicate()
        answered += sum(client.answered for client in clients)
        acknowledged += sum(client.acknowledged for client in clients)
        cut_off += [said for client in clients for said in client.cut_off]
    signal.signal(signal.SIGINT, interrupts)
    lost = before + acknowledged - installs(database)
    figures(
        "SIGTERM or SIGINT under 8 clients that read and post",
        "every request that was sent is answered, and no acknowledged install is lost",
        rounds=ROUNDS,
        requests=answered,
        acknowledged=acknowledged,
        cut_off=len(cut_off),
        lost=lost,
    )
    assert cut_off == []
    assert lost == 0
