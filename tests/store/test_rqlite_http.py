"""Requests to an rqlite node and what follows from its responses, without a node."""

import json
import socket
import sqlite3
import ssl
import threading
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from builders import document
from conftest import Limits, Server, create_catalog, error_message, run_line
from ports import free_port
from reverse_proxies import make_certificate

from app import create_app
from catalog.store.connection.cluster.rqlite_http import Node, NotDoneError
from catalog.store.connection.sqlite import OutcomeUnknownError, WouldBlock
from catalog.store.write.installs import count_install

INSTALL: list[Any] = [("UPDATE widget SET download_count = download_count + 1", {})]
# A TLS record of 16 bytes that cannot be decrypted.
INVALID_RECORD = b"\x17\x03\x03\x00\x10" + b"x" * 16


class FakeNode:
    """Receives requests on a port, and closes each connection, with TLS after an invalid record."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.requests = 0
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                # The connection of close() sends nothing.
                if connection.recv(1, socket.MSG_PEEK) == b"":
                    return
                self._receive(connection)

    def _receive(self, connection: socket.socket) -> None:
        received = connection.dup()
        if self._tls:
            received = self._tls.wrap_socket(received, server_side=True)
        with received:
            while not received.recv(65536).endswith(b"]"):
                pass
            self.requests += 1
            if self._tls:
                connection.sendall(INVALID_RECORD)

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_write_whose_connection_ended_without_a_response_is_not_sent_again(
    tmp_path: Path, scheme: str
) -> None:
    make_certificate(tmp_path)
    certificate, key = tmp_path / "fullchain.pem", tmp_path / "privkey.pem"
    tls = None
    if scheme == "https":
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
    with closing(FakeNode(tls)) as fake:
        node = Node(f"{scheme}://127.0.0.1:{fake.port}", ca=str(certificate))
        with pytest.raises(OutcomeUnknownError, match="did not respond"):
            node.execute(INSTALL, 5)
    assert fake.requests == 1


def test_a_write_to_a_node_that_refuses_connections_may_be_sent_again() -> None:
    with pytest.raises(NotDoneError, match="cannot be reached"):
        Node(f"http://127.0.0.1:{free_port()}").execute(INSTALL, 5)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return create_catalog(tmp_path / "db.sqlite", document(downloadCount=0))


def settings(catalog: Path, port: int) -> dict[str, str]:
    node = f"http://127.0.0.1:{port}"
    return {"DATABASE": str(catalog), "RQLITE": node, "BUNDLES": f"{catalog}-bundles"}


def test_an_install_is_refused_if_its_node_accepts_no_connection_until_its_time_is_over(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last attempt begins within the first time, and its connection ends with the second.
    monkeypatch.setattr("catalog.store.connection.cluster.cluster.RETRY_TIME", 0.5)
    monkeypatch.setattr("catalog.store.connection.cluster.cluster.REQUEST_TIMEOUT", 0.6)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        # They fill its queue, so the kernel drops those that follow.
        for _ in range(3):
            waiting = stack.enter_context(closing(socket.socket()))
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        app = create_app(settings(catalog, listener.getsockname()[1]))
        response = app.test_client().post("/api/v1/widgets/acme/clock")
        assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
        app.extensions["database"].close()


class FakeRqlite(ThreadingHTTPServer):
    """Sends these responses to requests for their paths; the last of a path is sent again."""

    def __init__(self, responses: dict[str, list[tuple[int, str]]]) -> None:
        self.responses = responses
        self.users: set[str | None] = set()
        super().__init__(("127.0.0.1", 0), FakeRqliteHandler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def wait(self, path: str) -> None:
        """Wait before the response to a request for this path is sent; here, do not."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class FakeRqliteHandler(BaseHTTPRequestHandler):
    server: FakeRqlite

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.users.add(self.headers["Authorization"])
        self.server.wait(self.path)
        responses = self.server.responses[self.path.partition("?")[0]]
        status, body = responses.pop(0) if len(responses) > 1 else responses[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        pass


def result(*values: object) -> tuple[int, str]:
    return 200, json.dumps({"results": [{"rows_affected": 1}, {"values": [values]}]})


@pytest.mark.parametrize(
    ("error", "status"),
    [("leader not found", 200), ("leadership lost while committing log", 504)],
)
def test_an_install_is_sent_again_only_if_it_was_surely_not_done(
    catalog: Path, error: str, status: int
) -> None:
    with closing(FakeRqlite({"/db/execute": [(503, error), result(0, 0)]})) as fake:
        app = create_app(settings(catalog, fake.server_port))
        assert app.test_client().post("/api/v1/widgets/acme/clock").status_code == status
        assert len(fake.responses["/db/execute"]) == 1
        app.extensions["database"].close()


def test_serve_says_what_it_waits_for_until_its_node_has_loaded_the_catalog(catalog: Path) -> None:
    responses = {
        "/readyz": [
            (503, "[+]node ok\n[+]leader ok\n[+]store not ready\n"),
            (503, "x" * 10_000),
            (200, "[+]node ok"),
        ],
        "/db/query": [(200, json.dumps({"results": [{"values": [[1, str(catalog)]]}]}))],
    }
    with closing(FakeRqlite(responses)) as fake:
        user = catalog.with_name("user")
        user.touch(mode=0o600)
        user.write_text("catalog:päss:word\n", encoding="utf-8")
        options = {**settings(catalog, fake.server_port), "RQLITE_AUTH": str(user)}
        environment = {f"CATALOG_{name}": value for name, value in options.items()}
        with Server(catalog, **environment) as server:
            assert server.request("GET", "/api/v1/widgets/acme/clock")[0].status == 200
            assert server.stop() == 0
        waiting = f"Waiting for the rqlite node: http://127.0.0.1:{fake.server_port} is not ready:"
        assert server.errors == (
            f"{waiting} node ok, leader ok, store not ready.\n{waiting} {'x' * 500}.\n"
        )
        assert fake.users == {f"Basic {b64encode('catalog:päss:word'.encode()).decode()}"}


def test_an_install_that_was_done_is_acknowledged_while_the_local_file_is_locked(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.store.connection.cluster.cluster.APPLY_TIMEOUT", 0)
    with (
        closing(FakeRqlite({"/db/execute": [result(2, 2)]})) as fake,
        ThreadPoolExecutor(1) as io_thread,
        closing(sqlite3.connect(catalog, isolation_level=None)) as node,
    ):
        database = create_app(settings(catalog, fake.server_port)).extensions["database"]
        # So is a file that the node has just loaded. Only then a write can lock out a read.
        node.execute("PRAGMA journal_mode = DELETE")
        io_thread.submit(database.mark_io_thread).result()
        with suppress(WouldBlock):
            io_thread.submit(database.reader).result()
        database.reader()
        node.execute("BEGIN EXCLUSIVE")
        assert count_install(database, "acme", "clock", 1) is True
        node.execute("ROLLBACK")
        database.close()


UNKNOWN_OUTCOME = {"error": "The outcome of the change is unknown."}
# What another service may send in place of what rqlite does.
OTHER_RESPONSES = [
    "{}",
    "[]",
    "<html>",
    '{"error": {}}',
    '{"results": [{}, 1]}',
    '{"results": [{"values": [["a", "b"]]}, {"values": [[]]}]}',
    '{"results": [1], "nodes": [{}]}',
]


def test_another_service_in_place_of_the_node_is_named(
    catalog: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(FakeRqlite({})) as fake:
        app = create_app(settings(catalog, fake.server_port))
        sentence = (
            f"http://127.0.0.1:{fake.server_port} did not respond like an rqlite node; "
            "set CATALOG_RQLITE to the URL of a node."
        )
        unknown = f"The outcome of the write is unknown: {sentence}"
        for body in OTHER_RESPONSES:
            paths = ("/db/execute", "/db/query", "/nodes")
            fake.responses = {path: [(200, body)] for path in paths}
            caplog.clear()
            response = app.test_client().post("/api/v1/widgets/acme/clock")
            assert (response.status_code, response.json) == (504, UNKNOWN_OUTCOME), body
            assert "Retry-After" not in response.headers
            assert caplog.messages == [f"The database cannot be used: {unknown}"]
            assert error_message(run_line(app, "unlist acme/clock")) == unknown
            assert error_message(run_line(app, "cluster status")) == sentence
            assert app.test_client().get("/api/health").json["status"] == "read-only"
        app.extensions["database"].close()


READY = {"/readyz": [(200, "[+]node ok")]}
# Foreign keys are checked, and the file is the one of the settings.
SETTINGS = '{"results": [{"values": [[1, ""]]}]}'


class WaitingNode(FakeRqlite):
    """A node without a leader: it responds to a health check only when it is released."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()
        super().__init__({**READY, "/db/query": [(200, SETTINGS)]})

    def wait(self, path: str) -> None:
        if "level=weak" in path:
            self.asked.set()
            self.released.wait(60)

    def close(self) -> None:
        self.released.set()
        super().close()


def test_pages_do_not_wait_for_a_health_check_without_a_leader(
    catalog: Path, limits: Limits
) -> None:
    limits.set("store.connection.cluster.rqlite_http", QUERY_TIMEOUT=60)
    # However slow the machine is, the quick thread renders the page.
    environment = limits.set("serving.dispatch", QUICK_BUDGET=60)
    with closing(WaitingNode()) as fake, ThreadPoolExecutor(1) as thread:
        values = {
            f"CATALOG_{key}": each for key, each in settings(catalog, fake.server_port).items()
        }
        with Server(catalog, **values, **environment) as server:
            health = thread.submit(server.request, "GET", "/api/health")
            assert fake.asked.wait(60)
            assert server.request("GET", "/docs")[0].status == 200
            assert not health.done()
            fake.released.set()
            assert health.result()[0].status == 503
            assert server.stop() == 0
