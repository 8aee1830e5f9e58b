"""The command mirror in the test process, the catalogs it makes, and a real app as upstream."""

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from builders import Json
from click.testing import Result
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.serving import WSGIRequestHandler, make_server


class AppServer:
    """A real app that serves an upstream catalog; records path and status of each response."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.responses: list[tuple[str, int]] = []
        self.on_request: Callable[[str], None] = lambda path: None
        self.server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()

    def __call__(self, environ: Json, start_response: Callable[..., Any]) -> Any:
        self.on_request(environ["PATH_INFO"])

        def record(status: str, *arguments: Any) -> Any:
            self.responses.append((environ["PATH_INFO"], int(status[:3])))
            return start_response(status, *arguments)

        # Close the body before it is sent: if the client is killed, werkzeug leaves its file open.
        body: Any = self.app(environ, record)
        try:
            return [b"".join(body)]
        finally:
            if hasattr(body, "close"):
                body.close()


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *arguments: Any) -> None:
        pass


@contextmanager
def serve(app: Flask) -> Iterator[AppServer]:
    """Serve an app for the duration of the block."""
    running = AppServer(app)
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()


def run_mirror(app: Flask, url: str, *options: str) -> Result:
    """Run widget-catalog mirror in this process."""
    return app.test_cli_runner().invoke(args=["mirror", url, *options])


def mirror_summary(app: Flask, url: str, *options: str) -> str:
    """Run widget-catalog mirror, which must succeed, and return its output after the URL."""
    result = run_mirror(app, url, *options)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    notes = r"^(Compared with the last run,|Remembered options changed) .*\n"
    output = re.sub(notes, "", result.stderr, flags=re.MULTILINE)
    return output.removeprefix(f"Mirrored {url}: ").removesuffix("\n")


def exported(app: Flask) -> dict[str, Json]:
    """Return all documents of a catalog, by scope/name."""
    result = app.test_cli_runner().invoke(args=["export"])
    assert result.exit_code == 0, result.stderr
    documents = [json.loads(line) for line in result.stdout_bytes.splitlines()]
    return {f"{each['widget']['scope']}/{each['widget']['name']}": each for each in documents}


def stored_rows(app: Flask) -> list[str]:
    """Return all rows of a catalog, except the time of the last refresh and the revision."""
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection:
        names = ('INSERT INTO "upstream"', 'INSERT INTO "revision"')
        return [line for line in connection.iterdump() if not line.startswith(names)]


def bundle_summary(app: Flask, url: str) -> str:
    """Run mirror --bundles, which must succeed, and return its line about the bundles."""
    return mirror_summary(app, url, "--bundles").splitlines()[-1].removeprefix("Bundles: ")


def bundle_urls(client: FlaskClient, path: str = "acme/clock") -> dict[str, str]:
    """Return the bundleUrl of each version of a widget."""
    versions = client.get(f"/api/v1/widgets/{path}").get_json()["versions"]
    return {each["version"]: each["bundleUrl"] for each in versions}


def held_bundle(client: FlaskClient, url: str) -> bytes | None:
    """Return the bundle that is served at a URL, or None."""
    with closing(client.get(url)) as response:
        return response.data if response.status_code == 200 else None


def served_content(app: Flask) -> dict[str, Json]:
    """Return what clients read of each listed widget, with the bytes of bundles and picture.

    URLs of bundles are left out: they are those of the service.
    """
    client, found = app.test_client(), {}
    for path in exported(app):
        url = f"/api/v1/widgets/{path}"
        shown = client.get(url)
        if shown.status_code == 200:
            content = shown.get_json()
            for each in content["versions"]:
                each["bundle"] = held_bundle(client, each.pop("bundleUrl"))
            content["about"] = client.get(f"{url}/about").get_json()
            content["picture"] = held_bundle(client, f"{url}/picture")
            found[path] = content
    return found
