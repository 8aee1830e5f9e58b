"""docs/operate/troubleshooting.md: its headings are the messages of the product."""

import os
import re
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from conftest import ROOT, create_demo
from document_lines import page
from prepared_processes import start_python

HEADINGS = re.findall(r"^### (.*`.*`.*)$", page("docs/operate/troubleshooting.md"), re.MULTILINE)
MESSAGES = [re.findall("`(.*?)`", heading)[0] for heading in HEADINGS]
Provoke = Callable[[Path], str]


def run(directory: Path, line: str, **settings: str) -> str:
    """Run a command in the directory; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(directory), **settings}
    with start_python(["-m", "catalog", *line.split()], environment, cwd=directory) as process:
        stdout, stderr = process.communicate(timeout=120)
    return str(stdout + stderr)


def set_schema_version(version: int) -> Provoke:
    def provoke(directory: Path) -> str:
        with closing(sqlite3.connect(directory / "catalog.db")) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        return run(directory, "list")

    return provoke


def listen_on_a_used_port(directory: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        return run(directory, f"serve --port {port}").replace(port, "8080")


def miss_the_database(directory: Path) -> str:
    (directory / "catalog.db").unlink()
    return run(directory, "list")


def lose_the_bundles(directory: Path) -> str:
    shutil.rmtree(directory / "catalog.db-bundles")
    return run(directory, "check")


def search_for_backups(directory: Path) -> str:
    (directory / "backups").mkdir()
    printed = run(directory, "drill --dir backups")
    return printed.replace("in backups", "in /var/backups/widget-catalog")


class Refusal(BaseHTTPRequestHandler):
    """A proxy that refuses every request."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:
        pass


def ask_a_proxy(status: int) -> Provoke:
    def provoke(directory: Path) -> str:
        with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as proxy:
            Thread(target=proxy.serve_forever).start()
            url = f"http://127.0.0.1:{proxy.server_port}/{status}"
            printed = run(directory, f"list --server {url}")
            proxy.shutdown()
        return printed.replace(url, "https://widgets.example")

    return provoke


PROVOKED: dict[str, Provoke] = {
    "Cannot listen on": listen_on_a_used_port,
    "catalog.db does not exist": miss_the_database,
    "catalog.db has schema version 8": set_schema_version(8),
    "catalog.db has schema version 2": set_schema_version(2),
    "CATALOG_PORT must be": lambda directory: run(directory, "list", CATALOG_PORT="many"),
    "CATALOG_PROT is not": lambda directory: run(directory, "list", CATALOG_PROT="1"),
    "The proxy at https://widgets.example refused the request (401)": ask_a_proxy(401),
    "The proxy at https://widgets.example refused the request (413)": ask_a_proxy(413),
    # A warning of the demo catalog is a problem.
    "1 problem in": lambda directory: run(directory, "check --strict"),
    "its bundle": lose_the_bundles,
    "No backups found": search_for_backups,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    create_demo(tmp_path / "catalog.db")
    return tmp_path


def pattern(message: str) -> str:
    """Return a pattern for a message; an ellipsis or a hash stands for any text."""
    return re.sub(r"…", ".*", re.escape(message)).replace("0133f31e", "").replace("1138", r"\d+")


@pytest.mark.parametrize("beginning", PROVOKED)
def test_a_heading_is_the_message_that_a_command_prints(directory: Path, beginning: str) -> None:
    (message,) = [each for each in MESSAGES if each.startswith(beginning)]
    printed = PROVOKED[beginning](directory)
    assert re.search(pattern(message), printed), printed


# Messages that need a broken machine or another service, each as a part of the code that writes it.
WRITTEN = {
    "catalog.db cannot be written: its file system": "its file system is read-only",
    "catalog.db cannot be written: this user": "this user cannot read and write",
    "This path is internal": "This path is internal and needs a session.",
    "The token ci is not": "is not valid for the scope",
    "The body is too large": "The body is too large",
    "The catalog is temporarily": "The catalog is temporarily unavailable.",
    "The request took": "The request took too long.",
    "its disk is full": "its disk is full",
    "The database is damaged": "The database is damaged",
    "Cannot read": "Cannot read",
    "its certificate is not valid": "its certificate is not valid",
    "There is no trust": "There is no trust for the issuer",
    "The id token is for": "The id token is for the audience",
    "The id token does not match": "The id token does not match the trust",
    "The keys of the issuer": "could not be fetched; try again in a minute.",
    "12 lines were lost": "the log was not read in time",
    "The id token was already used": "The id token was already used; it is accepted only once.",
}
# Messages of SQLite and nginx.
OF_OTHERS = ("database is locked", "setrlimit(", "Too many requests from this address", "http://")


def test_every_other_heading_is_in_the_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "catalog").rglob("*.py"))
    known = (*PROVOKED, *WRITTEN, *OF_OTHERS)
    assert [each for each in MESSAGES if not each.startswith(known)] == []
    assert [part for part in WRITTEN.values() if part not in code] == []
    assert [each for each in known if not any(text.startswith(each) for text in MESSAGES)] == []
