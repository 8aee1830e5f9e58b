"""The service as one process: waitress on one address."""

import json
import logging
import re
import signal
import sys

from click import ClickException
from flask import Flask
from waitress.parser import HTTPRequestParser
from waitress.server import BaseWSGIServer, create_server
from waitress.task import ErrorTask

from catalog.dispatch import Channel, Dispatcher
from catalog.routing import V1_PREFIX
from catalog.sqlite_file import DatabaseError

SWITCH_INTERVAL = 0.0005  # seconds
START_PATIENCE = 60  # seconds
# Above what v1 refuses in its own words, and small enough to be no burden to receive.
MAX_BODY_BYTES = 64 * 1024


def serve(app: Flask) -> None:
    """Serve until told to stop; raises ClickException where it cannot start."""
    database = app.extensions["database"]
    database.hurry(START_PATIENCE)  # what this thread opens now, the loop reads with
    try:
        database.check()
    except DatabaseError as error:
        raise ClickException(str(error)) from error
    listener, address = _listen(app)
    # A short burst fills the queue for a moment; that is no news to an operator.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    # Reading the database, a thread lets go of the interpreter's lock many times; with Python's own
    # five milliseconds to get it back, a busy service would spend its time waiting for turns.
    sys.setswitchinterval(SWITCH_INTERVAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(f"Serving {database.name} on {address}", flush=True)
        listener.run()
    except KeyboardInterrupt:
        pass  # told to stop before it ran
    finally:
        listener.close()
        database.close()


def _listen(app: Flask) -> tuple[BaseWSGIServer, str]:
    host, port = app.config["HOST"], app.config["PORT"]
    sockets: dict[int, object] = {}
    dispatcher = Dispatcher(app.extensions["database"], app.config["THREADS"])
    try:
        listener = create_server(
            app,
            map=sockets,
            host=host,
            port=port,
            _dispatcher=dispatcher,
            max_request_body_size=MAX_BODY_BYTES,
            ident=None,
        )
    except ValueError as error:
        raise ClickException(f"CATALOG_HOST {host} is not an address to serve on.") from error
    except OSError as error:
        raise ClickException(
            f"CATALOG_HOST {host} with CATALOG_PORT {port} cannot be served on: {error.strerror}."
        ) from error
    servers = [server for server in sockets.values() if isinstance(server, BaseWSGIServer)]
    for server in servers:
        server.channel_class = _Channel
        wake = server.pull_trigger
        # The loop is awake while it answers.
        server.pull_trigger = lambda wake=wake: None if dispatcher.in_loop() else wake()
    # A name such as localhost can stand for several addresses; the first will do.
    shown_host, shown_port = servers[0].effective_host, servers[0].effective_port
    if ":" in shown_host:
        shown_host = f"[{shown_host}]"
    return listener, f"http://{shown_host}:{shown_port}"


class _Parser(HTTPRequestParser):
    """Takes an address as people type it: curl sends "q=天気" in UTF-8, as it was given."""

    def parse_header(self, header_plus: bytes) -> None:
        line, end, fields = header_plus.partition(b"\r\n")
        line = re.sub(rb"[\x80-\xff]", lambda byte: b"%%%02X" % ord(byte[0]), line)
        super().parse_header(line + end + fields)


class _ErrorTask(ErrorTask):
    """A refusal of a request that cannot be handed to the app, in the shape of the app's own."""

    def execute(self) -> None:
        error = self.request.error
        message = f"{error.reason}: {error.body.rstrip('.')}."
        body = json.dumps({"error": message}).encode() + b"\n"
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        # A request that stands for a fault of the server itself has no first line.
        if f" {V1_PREFIX}".encode() in getattr(self.request, "first_line", b""):
            self.response_headers.append(("Access-Control-Allow-Origin", "*"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(Channel):
    parser_class = _Parser
    error_task_class = _ErrorTask
