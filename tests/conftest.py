"""What the tests share: a catalog made of documents, in process or behind a real server."""

import hashlib
import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app import create_app
from catalog.documents import check_document
from catalog.files.jsonl import read_catalog
from catalog.store import mirror_writes, writes
from catalog.store.database import Database

if TYPE_CHECKING:  # it is installed only where there is a Chromium
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "seed" / "demo.jsonl"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("CATALOG_", "FLASK_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def app_with(tmp_path: Path) -> Iterator[Callable[..., Flask]]:
    """Makes a catalog of the given documents and answers the app that serves it."""
    databases = []

    def make(*documents: dict[str, Any], **settings: Any) -> Flask:
        path = tmp_path / f"catalog-{len(databases)}.db"
        statements = writes.put_documents(check_document(document) for document in documents)
        Database(path).create(statements)
        app = create_app({"DATABASE": path, **settings})
        databases.append(app.extensions["database"])
        return app

    yield make
    for database in databases:
        database.close()


@pytest.fixture
def client_with(app_with: Callable[..., Flask]) -> Callable[..., FlaskClient]:
    """Makes a catalog of the given documents and answers a client of it."""
    return lambda *documents, **settings: app_with(*documents, **settings).test_client()


VERSIONS = """
SELECT scope, name, version, sha256_hash, bundle_size FROM version
JOIN widget ON widget.id = widget_id
"""


def hold(app: Flask, *contents: bytes) -> None:
    """Keep these bundles, and have the versions that name them loaded from here."""
    bundles, database = app.extensions["bundles"], app.extensions["database"]
    with bundles.writing():
        for content in contents:
            bundles.add(hashlib.sha256(content).hexdigest(), len(content), [content])
        versions = [mirror_writes.HeldBundle(*row) for row in database.reader().execute(VERSIONS)]
        held = [each for each in versions if bundles.holds(each.sha256)]
        database.write(mirror_writes.hold_bundles(held))


def create_demo(path: Path) -> Path:
    """A database with the demo catalog in it, at the path."""
    with DEMO.open("rb") as file:
        Database(path).create(writes.put_documents(read_catalog([file])))
    return path


@pytest.fixture(scope="session")
def demo_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the demo catalog; tests that use it change nothing in it."""
    return create_demo(tmp_path_factory.mktemp("demo") / "demo.db")


@pytest.fixture
def demo(demo_database: Path) -> Iterator[FlaskClient]:
    """A client of the demo catalog, for tests that only read."""
    app = create_app({"DATABASE": demo_database})
    yield app.test_client()
    app.extensions["database"].close()


def run_here(
    database: Path, *command: object, run_by: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run Python on the database to its end, as a process of its own, and as some user."""
    return subprocess.run(
        [*run_by, sys.executable, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(database), "CATALOG_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def flask(database: Path, *command: object) -> None:
    """Run one of the operator's commands; it must succeed."""
    done = run_here(database, "-m", "flask", *command)
    assert done.returncode == 0, done.stderr


class Server:
    """A real process that serves a database on a free port of loopback."""

    def __init__(self, database: Path, run_by: Sequence[str] = (), **settings: str) -> None:
        environment = {
            "CATALOG_DATABASE": str(database),
            "CATALOG_PORT": "0",
            "CATALOG_LOG_LEVEL": "error",  # no line for each request: nobody reads them here
        }
        self.process = subprocess.Popen(
            [*run_by, sys.executable, "app.py"],
            cwd=ROOT,
            env={**os.environ, **environment, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        self.url = self.first_line.split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request; a header's name has _ for each -. The path goes as it is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        """Ask it to stop, and answer its exit code; what it said of errors is kept."""
        self.process.terminate()
        _, self.errors = self.process.communicate(timeout=10)
        return self.process.returncode


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The demo catalog behind a real server, shared by the tests of a run."""
    running = Server(create_demo(tmp_path_factory.mktemp("served") / "served.db"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """The machine's own Chromium; a test that finds none is skipped, or fails where it must run."""
    path = shutil.which("chromium")
    if path is None:
        leave = pytest.fail if os.environ.get("REQUIRE_CHROMIUM") else pytest.skip
        leave("Chromium is not installed here: what needs a browser is not tested.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path)
        yield running
        running.close()


@pytest.fixture(scope="session")
def tab(browser: "Browser") -> Iterator["Page"]:
    """One tab for all tests with the default settings: a new context takes up to a second."""
    with browser.new_context(ignore_https_errors=True) as context:
        context.set_default_timeout(10_000)
        yield context.new_page()


@pytest.fixture
def page(tab: "Page") -> "Page":
    """The shared tab, empty and with the default size."""
    tab.goto("about:blank")
    tab.set_viewport_size({"width": 1280, "height": 900})
    return tab


@pytest.fixture(scope="session")
def tab_without_scripts(browser: "Browser") -> Iterator["Page"]:
    """One tab without JavaScript for all tests."""
    with browser.new_context(ignore_https_errors=True, java_script_enabled=False) as context:
        context.set_default_timeout(10_000)
        yield context.new_page()


@pytest.fixture(params=["with scripts", "without scripts"])
def any_page(request: pytest.FixtureRequest) -> "Page":
    """A shared tab, with JavaScript and without."""
    name = "page" if request.param == "with scripts" else "tab_without_scripts"
    shared: Page = request.getfixturevalue(name)
    return shared
