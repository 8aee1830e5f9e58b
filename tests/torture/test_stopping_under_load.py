"""Stops and restarts under load: every request that was sent gets a response."""

import http.client
import random
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from activation import start_with
from conftest import Server, create_demo
from torture.clients import CLOCK, installs

ROUNDS = 20
CLIENTS = 8
PATHS = ["/api/v1/widgets/search?q=clock", CLOCK, "/api/version"]
# Without socket activation one stop in 10 to 60 resets a connection.
MAX_RESETS = 5


class Client(threading.Thread):
    """Sends requests without a pause until the connection is refused or it is told to end.

    Half of the clients keep their connections, and half of them post installs.
    """

    def __init__(self, port: int, number: int) -> None:
        super().__init__()
        self._port = port
        self._keeps_alive = number % 2 == 0
        self._posts = number % 4 < 2
        self.should_end = threading.Event()
        self.responses = self.acknowledged = self.resets = 0
        self.failures: list[str] = []

    def run(self) -> None:
        choose = random.Random(self.name).choice  # noqa: S311
        connection = None
        while not self.should_end.is_set():
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            method, path = ("POST", CLOCK) if self._posts else ("GET", choose(PATHS))
            try:
                connection.request(method, path)
                response = connection.getresponse()
                response.read()
            except ConnectionRefusedError:
                break
            except (ConnectionResetError, BrokenPipeError):
                # The second one if the reset arrives before the request is sent.
                self.resets += 1
                break
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                break
            if response.status != 200:
                self.failures.append(f"{method} {path}: {response.status}")
            self.responses += 1
            self.acknowledged += method == "POST"
            if not self._keeps_alive or response.headers["Connection"] == "close":
                connection.close()
                connection = None
        if connection is not None:
            connection.close()


def start_clients(port: int) -> list[Client]:
    clients = [Client(port, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    return clients


def wait_for_responses(clients: list[Client], count: int) -> None:
    """Return when the clients have had this many more responses, or none of them is left."""
    target = sum(client.responses for client in clients) + count
    while sum(client.responses for client in clients) < target:
        running = [client for client in clients if client.is_alive()]
        if not running:
            return
        running[0].join(0.01)


def count_responses(clients: list[Client], before: int, database: Path) -> dict[str, int]:
    """Return the figures of the clients; none has failed, and no install is lost."""
    acknowledged = sum(client.acknowledged for client in clients)
    assert [failure for client in clients for failure in client.failures] == []
    # An install may be counted although its response is lost.
    assert installs(database) >= before + acknowledged
    requests = sum(client.responses for client in clients)
    counts = {"requests": requests, "acknowledged": acknowledged, "failed": 0, "lost": 0}
    return {"rounds": ROUNDS, **counts}


def test_a_stop_under_load_responds_to_connected_clients(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    clients: list[Client] = []
    # The child must not inherit that interrupts are ignored.
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in range(ROUNDS):
        server = Server(database)
        current = start_clients(server.port)
        clients += current
        wait_for_responses(current, 150)
        server.process.send_signal(signal.SIGTERM if number % 2 else signal.SIGINT)
        for client in current:
            client.join()
        assert server.process.wait(20) == 0
        server.process.communicate()
    signal.signal(signal.SIGINT, interrupts)
    resets = sum(client.resets for client in clients)
    figures(
        "SIGTERM or SIGINT under 8 clients that read and post",
        "connected clients get their responses, and no acknowledged install is lost",
        **count_responses(clients, before, database),
        reset=resets,
    )
    assert resets <= MAX_RESETS


def test_restarts_under_load_lose_nothing_with_a_passed_socket(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        clients = start_clients(listener.getsockname()[1])
        for _ in range(ROUNDS):
            process = start_with(database, listener)
            assert process.stdout is not None
            assert process.stdout.readline()
            wait_for_responses(clients, 150)
            process.terminate()
            assert process.wait(20) == 0
            process.communicate()
        # The last process responds to what the clients still send.
        process = start_with(database, listener)
        for client in clients:
            client.should_end.set()
        for client in clients:
            client.join()
        process.terminate()
        process.communicate(timeout=20)
    resets = sum(client.resets for client in clients)
    figures(
        "restarts under 8 clients that read and post, with a socket passed as by systemd",
        "every request that was sent gets a response, and no acknowledged install is lost",
        **count_responses(clients, before, database),
        cut_off=resets,
    )
    assert resets == 0
