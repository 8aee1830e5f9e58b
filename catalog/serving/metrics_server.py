"""The HTTP server for scrapes of metrics: few connections, each for a short time.

Each connection has its own thread. A client that connects and sends nothing must not occupy a
thread for long or block scrapes: beyond MAX_CONNECTIONS, a new connection closes the oldest one.
"""

import socket
import threading
import time
from collections import deque
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

    # The maximum number of connections that wait to be accepted. Further clients connect only after
    # a retry, a second later.
    request_queue_size = 128

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        # The last connections, some of which may have ended, and when each was accepted. Only the
        # thread that accepts connections uses this list.
        self._accepted: deque[tuple[float, socket.socket]] = deque()
        super().__init__(*arguments, **keywords)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._accepted) >= MAX_CONNECTIONS:
            self._end_oldest()
        self._accepted.append((time.monotonic(), request))
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections that have lasted too long."""
        latest = time.monotonic() - MAX_SECONDS
        while self._accepted and self._accepted[0][0] <= latest:
            self._end_oldest()

    def _end_oldest(self) -> None:
        """Shut the oldest connection down, so that its thread stops waiting."""
        _, connection = self._accepted.popleft()
        # The connection may have ended.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection: the client or this server has ended it."""


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> tuple[str, int]:
    """Serve metrics in a thread; return the address. Raise OSError or UnicodeError if unusable."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]

    class Server(MetricsServer):
        address_family = family

    server = make_server(str(address[0]), port, make_wsgi_app(registry), Server, QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name, bound_port = server.socket.getsockname()[:2]
    return name, bound_port
