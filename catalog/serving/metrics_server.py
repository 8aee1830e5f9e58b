"""The second listener, which serves metrics; see CATALOG_METRICS.

It has one thread of its own and serves one connection at a time, each for at most SCRAPE_TIMEOUT.
So a scraper that never reads, or many of them, take no memory, thread or connection of the service;
they can only delay other scrapes.
"""

import contextlib
import socket
import threading
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from click import ClickException
from flask import Flask

from catalog.serving.listeners import Listener
from catalog.settings import split_address
from catalog.text import error_reason

SCRAPE_TIMEOUT = 5  # seconds
# How long a stop waits for the thread.
STOP_TIMEOUT = 1  # seconds
# Without a free file descriptor, accepting fails at once, again and again.
ACCEPT_PAUSE = 1  # seconds


class ScrapeHandler(WSGIRequestHandler):
    """One request; its connection is then closed."""

    def handle(self) -> None:
        timer = threading.Timer(SCRAPE_TIMEOUT, self._disconnect)
        timer.daemon = True
        timer.start()
        try:
            super().handle()
        finally:
            timer.cancel()

    def _disconnect(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *values: object) -> None:
        """Log nothing."""


class MetricsServer(WSGIServer):
    """The listener and its thread."""

    request_queue_size = 16

    def __init__(self, address: str) -> None:
        """Listen on an address such as 127.0.0.1:9090; raise OSError or UnicodeError."""
        host, port = split_address(address)
        ((self.address_family, *_, socket_address), *_) = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
        super().__init__(socket_address[:2], ScrapeHandler)  # type: ignore[arg-type]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}/metrics"

    def server_bind(self) -> None:
        # The method of the base class looks up the name of the address, which can take long.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            self._stopping.wait(ACCEPT_PAUSE)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects, or is disconnected."""

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def _run(self) -> None:
        # Not serve_forever(), which wakes up several times a second.
        while not self._stopping.is_set():
            self.handle_request()

    def stop(self) -> None:
        """Stop the thread and close the socket; abort a scrape that takes long."""
        self._stopping.set()
        # The thread waits for a connection: this wakes it up.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(STOP_TIMEOUT)
        self.server_close()


def start_metrics(app: Flask, listeners: list[Listener]) -> MetricsServer | None:
    """Serve metrics if CATALOG_METRICS is set; raise ClickException if that is not possible."""
    address = app.config["METRICS"]
    if not address:
        return None
    try:
        # An optional dependency.
        from prometheus_client import make_wsgi_app

        from catalog.serving.metrics import create_registry
    except ModuleNotFoundError as error:
        raise ClickException(
            "CATALOG_METRICS needs the package prometheus-client: install requirements-metrics.txt."
        ) from error
    try:
        server = MetricsServer(address)
    except (OSError, UnicodeError) as error:
        raise ClickException(
            f"CATALOG_METRICS {address} cannot be served on: {error_reason(error)}."
        ) from error
    server.set_app(make_wsgi_app(create_registry(app, listeners)))
    server.start()
    return server
