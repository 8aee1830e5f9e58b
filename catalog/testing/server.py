"""The process that the pytest plugin starts: it forks a service for each test.

Python and the service are imported once; a fork takes a few milliseconds. The plugin writes one
JSON object per line to standard input and reads one from standard output for each. When the plugin
ends, in whichever way, its end of the pipe is closed: then this process ends, and with it all
services.
"""

import base64
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol, TextIO

from click import ClickException
from flask import Flask

from catalog.documents import DocumentError, Json
from catalog.serving.server import serve
from catalog.settings import SettingError
from catalog.store.connection.sqlite import DatabaseError
from catalog.testing.catalogs import CatalogTemplates, LocalCatalog
from catalog.testing.request_control import RequestControl

# What the service or a command reports in one sentence.
EXPECTED_ERRORS = (ClickException, DatabaseError, DocumentError, OSError, SettingError)
ENDED = "The service of this test has ended: it was stopped or killed."


class Closable(Protocol):
    """A file, or a service with its socket."""

    def close(self) -> None: ...


class ServiceProcess:
    """A service in a child process, and this end of the socket that controls it."""

    def __init__(self, catalog: LocalCatalog, inherited: list[Closable]) -> None:
        """Start the service, which closes what it inherits; raise ClickException if it fails."""
        self.catalog = catalog
        self._socket, other_end = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            for each in (*inherited, self._socket):
                each.close()
            os.chdir(catalog.directory)
            run_service(catalog.app, other_end)
        other_end.close()
        self._lines = self._socket.makefile("r", encoding="utf-8")
        first_line = self._lines.readline().strip()
        if not first_line.startswith("Serving "):
            self.stop()
            raise ClickException(first_line.removeprefix("Error: ") or ENDED)
        self.url = first_line.split()[-1]

    def has_ended(self) -> bool:
        """Return whether the process was killed or has stopped."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
        return not self.pid

    def control(self, name: str, arguments: Json) -> object:
        """Run an action of RequestControl in the service, and return its result."""
        line = ""
        with suppress(ConnectionError):
            self._socket.sendall(
                json.dumps({"name": name, "arguments": arguments}).encode() + b"\n"
            )
            line = self._lines.readline()
        if not line:
            raise ClickException(ENDED)
        result: object = json.loads(line)
        return result

    def close(self) -> None:
        """Close the socket; the service then ends by itself."""
        self._lines.close()
        self._socket.close()

    def stop(self) -> None:
        """Kill the service: a graceful stop would take 0.3 seconds."""
        self.close()
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def run_service(app: Flask, control_socket: socket.socket) -> NoReturn:
    """Serve until the process is killed, or the other end of the socket is closed."""
    try:
        control = RequestControl(app.wsgi_app, app.extensions["database"])
        app.wsgi_app = control  # type: ignore[method-assign]
        # The first line of the service's output says where it is, or why it did not start.
        os.dup2(control_socket.fileno(), sys.stdout.fileno())
        follow = threading.Thread(
            target=follow_actions, args=(control_socket, control), daemon=True
        )
        follow.start()
        # Delayed requests wait on these; see request_control.py.
        serve(app, quick_threads=16)
    except ClickException as error:
        print(f"Error: {error.message}", flush=True)
    except Exception:
        traceback.print_exc()
    finally:
        # Not a normal end: that would run the code of the process that was forked.
        os._exit(0)


def follow_actions(control_socket: socket.socket, control: RequestControl) -> NoReturn:
    """Run the actions that are received; end the process when the other end is closed."""
    try:
        with control_socket.makefile("rw", encoding="utf-8") as stream:
            for line in stream:
                action = json.loads(line)
                result = control.run_action(action["name"], action["arguments"])
                stream.write(json.dumps(result) + "\n")
                stream.flush()
    finally:
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
            "installs": self._installs,
            "control": self._control,
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
        inherited: list[Closable] = [self._requests, self._replies, *self._services.values()]
        service = ServiceProcess(catalog, inherited)
        self._services[service.pid] = service
        return {"service": service.pid, "url": service.url, "database": str(catalog.path)}

    def _stop(self, service: int) -> None:
        self._services.pop(service).stop()

    def _service(self, pid: int) -> ServiceProcess:
        service = self._services.get(pid)
        if service is None or service.has_ended():
            raise ClickException(ENDED)
        return service

    def _run(self, service: int, arguments: list[str]) -> None:
        self._service(service).catalog.run(*arguments)

    def _publish(
        self, service: int, name: str, version: str, bundle: str | None, fields: Json
    ) -> None:
        running = self._service(service)
        content = None if bundle is None else base64.b64decode(bundle)
        running.catalog.publish(name, version, running.url, content, fields)

    def _installs(self, service: int, name: str) -> int:
        return self._service(service).catalog.installs(name)

    def _control(self, service: int, name: str, arguments: Json) -> object:
        return self._service(service).control(name, arguments)


def main() -> None:
    """Run the fork server; the argument is a directory for its files."""
    requests, replies = os.dup(0), os.dup(1)
    # Whatever else reads or prints must not use these two.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    # A service imports this to listen on an address; importing it before the fork saves 5 ms.
    importlib.import_module("encodings.idna")
    with open(requests, encoding="utf-8") as read, open(replies, "w", encoding="utf-8") as write:
        ForkServer(Path(sys.argv[1]), read, write).run()
