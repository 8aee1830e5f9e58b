"""The HTTP server for scrapes of metrics: few connections, each for a short time.

Each connection has its own thread. A client that connects and sends nothing must not occupy a
thread for long, nor prevent others from scraping: when all threads are in use, the oldest
connection is closed to make room for a new one.
"""

import socket
import threading
import time
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

MAX_CONNECTIONS = 16
# The maximum duration of a connection. The server checks for older connections twice a second.
MAX_SECONDS = 10.0


class QuietHandler(WSGIRequestHandler):
    """A handler that does not log requests."""

    def log_message(self, format: str, *values: Any) -> None:
        pass


class MetricsServer(ThreadingWSGIServer):
    """A server that limits the number of connections and the duration of each."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._lock = threading.Lock()
        # Sockets with the time at which they were accepted, oldest first.
        self._started: dict[socket.socket, float] = {}
        super().__init__(*arguments, **keywords)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._started) >= MAX_CONNECTIONS:
                self._end(next(iter(self._started)))
            self._started[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections that have lasted too long."""
        with self._lock:
            latest = time.monotonic() - MAX_SECONDS
            for connection in [each for each, at in self._started.items() if at <= latest]:
                self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        """Shut a connection down, so that its thread stops waiting; call with the lock held."""
        del self._started[connection]
        # The client may have closed the connection.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._started.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection: the client or this server has ended it."""


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> tuple[str, int]:
    """Serve the metrics in a thread, and return the address; raise OSError or UnicodeError."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]

    class Server(MetricsServer):
        address_family = family

    server = make_server(str(address[0]), port, make_wsgi_app(registry), Server, QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name, bound_port = server.socket.getsockname()[:2]
    return name, bound_port
