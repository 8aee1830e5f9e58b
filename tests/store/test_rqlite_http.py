"""Which failed requests to an rqlite node may be sent again, without a node."""

import socket
import ssl
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from reverse_proxies import make_certificate

from catalog.store.connection.cluster.rqlite_http import Nodes, NotDoneError, OutcomeUnknownError

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
    with closing(FakeNode(tls)) as first, closing(FakeNode(tls)) as second:
        urls = [f"{scheme}://127.0.0.1:{node.port}" for node in (first, second)]
        nodes = Nodes(urls, str(certificate))
        with pytest.raises(OutcomeUnknownError, match="did not respond"):
            nodes.execute(INSTALL, 5)
    assert (first.requests, second.requests) == (1, 0)


def test_a_write_to_a_node_that_refuses_connections_may_be_sent_again() -> None:
    with pytest.raises(NotDoneError, match="cannot be reached"):
        Nodes([f"http://127.0.0.1:{free_port()}"]).execute(INSTALL, 5)
