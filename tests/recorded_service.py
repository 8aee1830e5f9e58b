"""Serves the catalog and prints a line for each request before its response is sent.

The access log is written after the response, by the thread that sent it. So a client that has its
response cannot know whether the line is there yet. These lines are.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Flask

from catalog.serving.server import serve

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def serve_recorded(app: Flask) -> None:
    """Serve the application; print method, target and status of each request that it handles."""
    app.wsgi_app = recorded(app.wsgi_app)  # type: ignore[assignment, method-assign]
    serve(app)


def recorded(application: "WSGIApplication") -> "WSGIApplication":
    def respond(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        statuses: list[str] = []

        def start(status: str, *arguments: object) -> Callable[[bytes], object]:
            statuses.append(status[:3])
            return start_response(status, *arguments)  # type: ignore[arg-type]

        body = application(environ, start)
        # A read that exceeds its deadline raises and runs again, so it is printed once.
        line = f"{environ['REQUEST_METHOD']} {environ['REQUEST_URI']} {statuses[-1]}\n"
        os.write(sys.stdout.fileno(), line.encode())
        return body

    return respond
