"""The process that the pytest plugin starts: it forks a service for each test.

Python and the service are imported once; a fork takes a few milliseconds. The plugin writes one
JSON object per line to standard input and reads one from standard output for each. When the plugin
ends, in whichever way, its end of the pipe is closed: then this process ends, and with it all
services.
"""

import base64
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, TextIO

from click import ClickException
from flask import Flask

from ..documents import DocumentError, Json
from ..serving.server import serve
from ..store.connection.sqlite import DatabaseError
from ..store.write.lookup import ChangeError
from .catalogs import CatalogTemplates, LocalCatalog
from .request_control import RequestControl

# What the service or a command reports in one sentence.
EXPECTED_ERRORS = (ChangeError, ClickException, DatabaseError, DocumentError, OSError)


class ServiceProcess:
    """A service in a child process, which ends when this end of a socket is closed."""

    def __init__(self, catalog: LocalCatalog, others: Iterable["ServiceProcess"]) -> None:
        """Start the service; raise ClickException if it fails."""
        self.catalog = catalog
        self._socket, other_end = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            for each in others:
                each.close()
            self.close()
            os.chdir(catalog.directory)
            run_service(catalog.app, other_end)
        other_end.close()
        with self._socket.makefile("r", encoding="utf-8") as output:
            first_line = output.readline().strip()
        if not first_line.startswith("Serving "):
            self.stop()
            raise ClickException(first_line.removeprefix("Error: ") or "The service has ended.")
        self.url = first_line.split()[-1]

    def close(self) -> None:
        """Close the socket; the service then ends by itself."""
        self._socket.close()

    def stop(self) -> None:
        """Kill the service: a graceful stop would take 0.3 seconds."""
        self.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def run_service(app: Flask, parent: socket.socket) -> NoReturn:
    """Serve until the process is killed, or the other end of the socket is closed."""
    try:
        database = app.extensions["database"]
        app.wsgi_app = RequestControl(app.wsgi_app, database, Path())  # type: ignore[method-assign]
        # The first line of the service's output says where it is, or why it did not start.
        os.dup2(parent.fileno(), sys.stdout.fileno())
        threading.Thread(target=end_with, args=(parent,), daemon=True).start()
        # Delayed requests wait on these; see request_control.py.
        serve(app, quick_threads=16)
    except ClickException as error:
        print(f"Error: {error.message}", flush=True)
    except Exception:
        traceback.print_exc()
    finally:
        # Not a normal end: that would run the code of the process that was forked.
        os._exit(0)


def end_with(parent: socket.socket) -> NoReturn:
    """End the process when the other end of the socket is closed."""
    parent.recv(1)
    os._exit(0)


class ForkServer:
    """The services of a test suite, by number."""

    def __init__(self, directory: Path, requests: TextIO, replies: TextIO) -> None:
        self._templates = CatalogTemplates(directory)
        self._requests, self._replies = requests, replies
        self._services: dict[int, ServiceProcess] = {}
        self._actions: dict[str, Callable[..., object]] = {
            "create": self._create,
            "start": self._start,
            "stop": self._stop,
            "run": self._run,
            "publish": self._publish,
        }

    def run(self) -> None:
        """Reply to each request until the plugin closes the pipe."""
        self._reply({"result": None})
        for line in self._requests:
            request = json.loads(line)
            try:
                result = self._actions[request["action"]](**request["arguments"])
                self._reply({"result": result})
            except EXPECTED_ERRORS as error:
                self._reply({"error": str(error)})
        for service in self._services.values():
            service.stop()

    def _reply(self, reply: Json) -> None:
        self._replies.write(json.dumps(reply) + "\n")
        self._replies.flush()

    def _create(self, directory: str, source: str) -> str:
        return str(self._templates.create(Path(directory), source).path)

    def _start(self, directory: str, source: str) -> Json:
        catalog = self._templates.create(Path(directory), source)
        service = ServiceProcess(catalog, self._services.values())
        self._services[service.pid] = service
        return {"service": service.pid, "url": service.url, "database": str(catalog.path)}

    def _stop(self, service: int) -> None:
        self._services.pop(service).stop()

    def _run(self, service: int, arguments: list[str]) -> str:
        return self._services[service].catalog.run(*arguments)

    def _publish(
        self, service: int, name: str, version: str, bundle: str | None, fields: Json
    ) -> None:
        running = self._services[service]
        content = None if bundle is None else base64.b64decode(bundle)
        running.catalog.publish(name, version, running.url, content, fields)


def main() -> None:
    """Run the fork server; the argument is a directory for its files."""
    requests, replies = os.dup(0), os.dup(1)
    # Whatever else reads or prints must not use these two.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    with open(requests, encoding="utf-8") as read, open(replies, "w", encoding="utf-8") as write:
        ForkServer(Path(sys.argv[1]), read, write).run()
