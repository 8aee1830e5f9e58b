"""An HTTP server for few connections, each of which lasts only a short time.

Each connection has its own thread. A client that connects and sends nothing must not occupy a
thread for long or block others: beyond MAX_CONNECTIONS, a new connection closes the oldest one.
"""

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

MAX_CONNECTIONS = 16
# The maximum duration of a connection. The server checks for older connections twice a second.
MAX_SECONDS = 10.0


class QuietHandler(WSGIRequestHandler):
    """A handler that does not log requests."""

    def log_message(self, format: str, *values: Any) -> None:
        pass


class SmallServer(ThreadingMixIn, WSGIServer):
    """A server that limits how many connections it has and how long each of them lasts."""

    # A thread that still waits for a client does not delay the end of the process.
    daemon_threads = True
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
        """Ignore errors on a connection: the client or this server has ended it."""


def serve_in_thread(application: "WSGIApplication", host: str, port: int) -> tuple[str, int]:
    """Serve the application in a thread, and return the address and port that it listens on.

    Raise OSError or UnicodeError if the server cannot listen on this address.
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]

    class Server(SmallServer):
        address_family = family

    server = make_server(str(address[0]), port, application, Server, QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name, bound_port = server.socket.getsockname()[:2]
    return name, bound_port
