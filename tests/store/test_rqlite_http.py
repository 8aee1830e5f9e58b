"""Which failed requests to an rqlite node may be sent again, without a node."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ports import free_port
from programs import find_program
from reverse_proxies import HOST

from catalog.store.connection.cluster.rqlite_http import Nodes, NotDoneError, OutcomeUnknownError

INSTALL = [("UPDATE widget SET download_count = download_count + 1", {})]
# A TLS record of 16 bytes that cannot be decrypted.
INVALID_RECORD = b"\x17\x03\x03\x00\x10" + b"x" * 16


class FakeNode:
    """Receives requests on a port, and ends each connection in its own way."""

    def __init__(self, end: Callable[[socket.socket], None], tls: ssl.SSLContext | None) -> None:
        self.requests = 0
        self._end = end
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if not self._receive(connection):
                    return

    def _receive(self, connection: socket.socket) -> bool:
        """Receive a request; return False for the connection of close()."""
        if connection.recv(1, socket.MSG_PEEK) == b"":
            return False
        received = connection
        if self._tls:
            received = self._tls.wrap_socket(connection.dup(), server_side=True)
        with received:
            while not received.recv(65536).endswith(b"]"):
                pass
            self.requests += 1
            self._end(connection)
        return True

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()


@pytest.fixture
def fake_node() -> Iterator[Callable[..., FakeNode]]:
    running: list[FakeNode] = []

    def start(end: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> FakeNode:
        running.append(FakeNode(end, tls))
        return running[-1]

    yield start
    for node in running:
        node.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the certificate of a node on loopback, and its key."""
    path = tmp_path_factory.mktemp("tls") / "node.pem"
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = f"-subj /CN={HOST} -addext subjectAltName=IP:127.0.0.1"
    command = [find_program("openssl"), "req", *options.split(), *names.split()]
    subprocess.run([*command, "-keyout", path, "-out", f"{path}.crt"], check=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def test_a_write_whose_connection_was_closed_without_a_response_is_not_sent_again(
    fake_node: Callable[..., FakeNode],
) -> None:
    first, second = (fake_node(lambda connection: connection.close()) for _ in range(2))
    nodes = Nodes([f"http://127.0.0.1:{node.port}" for node in (first, second)])
    with pytest.raises(OutcomeUnknownError, match="did not respond"):
        nodes.execute(INSTALL, 5)
    assert (first.requests, second.requests) == (1, 0)


def test_a_write_after_which_tls_failed_is_not_sent_again(
    fake_node: Callable[..., FakeNode], certificate: Path
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    first, second = (fake_node(lambda raw: raw.sendall(INVALID_RECORD), tls) for _ in range(2))
    urls = [f"https://127.0.0.1:{node.port}" for node in (first, second)]
    with pytest.raises(OutcomeUnknownError, match="did not respond"):
        Nodes(urls, f"{certificate}.crt").execute(INSTALL, 5)
    assert (first.requests, second.requests) == (1, 0)


def test_a_write_to_a_node_that_refuses_connections_may_be_sent_again() -> None:
    with pytest.raises(NotDoneError, match="cannot be reached"):
        Nodes([f"http://127.0.0.1:{free_port()}"]).execute(INSTALL, 5)
