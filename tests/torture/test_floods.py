"""Floods of one client, and the health check and a cached search of another."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from catalog.documents import check_document
from catalog.store.connection.database import Database
from tests.builders import document, version
from tests.conftest import Server, putting
from tests.publishers import create_token
from tests.torture.clients import count_status, median, p99, running_clients, wait_for_responses

WIDGETS = 20_000
CONNECTIONS = 40
# Of each judge.
REQUESTS = 300
HOT = ("GET", "/api/v1/widgets/search?q=widget")
HEALTH = ("GET", "/api/health")
FLOODER = "127.0.0.2"
HOST = "Host: a\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
WORDS = ("wi", "id", "dg", "ge", "et")
numbers = itertools.count()


def get(target: str, fields: str = "") -> bytes:
    return f"GET {target} HTTP/1.1\r\n{HOST}{fields}\r\n".encode()


def post(path: str, fields: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\n{HOST}{fields}\r\n".encode()


def slow_updates() -> bytes:
    installed = "&".join(
        f"installed=acme/widget-{next(numbers) % WIDGETS}@1.0.0" for _ in range(50)
    )
    return get(f"/api/v1/widgets/updates?compatSdk=1.4.{next(numbers)}&{installed}")


def slow_search() -> bytes:
    return get(f"/api/v1/widgets/search?q={WORDS[next(numbers) % 5]}+{next(numbers)}")


FLOODS: dict[str, Callable[[], bytes]] = {
    "distinct updates of 50 widgets": slow_updates,
    "distinct searches for two letters": slow_search,
    "distinct searches with //api": lambda: slow_search().replace(b"/api", b"//api"),
    "pages": lambda: get(f"/?q=widget+{next(numbers)}"),
    "chunks of a byte": lambda: (
        post("/api/v1/widgets/none/none", CHUNKED) + b"1\r\na\r\n" * 600 + b"0\r\n\r\n"
    ),
    "trailers": lambda: (
        post("/api/v1/widgets/none/none", CHUNKED) + b"0\r\n" + b"x: y\r\n" * 1000 + b"\r\n"
    ),
    "8,000 parameters": lambda: get(f"/api/v1/widgets/search?a={next(numbers)}" + "&a" * 8000),
    "commas": lambda: get(
        "/api/v1/widgets/search",
        f"If-None-Match: {'a,' * 3500}\r\nAccept-Encoding: {',' * 7000}\r\n",
    ),
    "POST to a missing page": lambda: post(f"/none/{next(numbers)}"),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("floods") / "catalog.db"
    documents = (
        document(f"acme/widget-{number}", version("1.0.0"), version("1.1.0"))
        for number in range(WIDGETS)
    )
    Database(path).create(putting(map(check_document, documents)))
    return path


@contextmanager
def flooding(port: int, requests: Callable[[], bytes]) -> Iterator[list[int]]:
    """Send requests on many connections while the block runs; yield the count of responses."""
    counts, stopped = [0], threading.Event()

    def flood() -> None:
        while not stopped.is_set():
            # The server closes a connection after an error.
            with (
                suppress(OSError),
                socket.create_connection(
                    ("127.0.0.1", port), timeout=30, source_address=(FLOODER, 0)
                ) as connection,
            ):
                while not stopped.is_set():
                    connection.sendall(requests())
                    if not connection.recv(65536):
                        break
                    counts[0] += 1

    threads = [threading.Thread(target=flood) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def judge(
    server: Server, name: str, requests: Callable[[], bytes], figures: Callable[..., None]
) -> None:
    for method, path in (HOT, HEALTH):
        assert server.request(method, path)[0].status == 200
    with (
        flooding(server.port, requests) as counts,
        running_clients(server.port, [HOT], [HEALTH]) as judges,
    ):
        wait_for_responses(judges, REQUESTS)
    hot, health = (client.responses for client in judges)
    figures(
        f"40 connections of one client: {name}",
        "a cached search and the health check of another client are answered in time",
        flood=counts[0],
        failed=len(hot + health) - count_status(hot + health, 200),
        median_ms_search=round(median(hot), 1),
        p99_ms_search=p99(hot),
        worst_ms_search=round(max(each.milliseconds for each in hot)),
        median_ms_health=round(median(health), 1),
        worst_ms_health=round(max(each.milliseconds for each in health)),
        memory_MB=server.megabytes(),
    )
    assert count_status(hot, 200) == len(hot)
    assert count_status(health, 200) == len(health)
    assert server.megabytes() < 300
    # On an idle machine 100 and 500 ms.
    assert median(hot) < 500
    assert median(health) < 500


@pytest.mark.parametrize("name", FLOODS)
def test_another_client_is_served_beside_a_flood(
    catalog: Path, name: str, figures: Callable[..., None]
) -> None:
    with Server(catalog) as server:
        judge(server, name, FLOODS[name], figures)
        assert server.stop() == 0


def test_another_client_is_served_beside_slow_uploads(
    catalog: Path, figures: Callable[..., None]
) -> None:
    database = Database(catalog)
    token = create_token(database, f"slow-{time.time_ns()}")
    database.close()
    head = (
        f"PUT /api/widgets/acme/new/1.0.0 HTTP/1.1\r\n{HOST}Authorization: Bearer {token}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 30000000\r\n\r\n"
    ).encode()
    with Server(catalog) as server:
        judge(server, "slow uploads", lambda: head + b"x" * 100_000, figures)
        assert server.stop() == 0
