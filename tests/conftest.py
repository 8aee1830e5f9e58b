"""Shared by all tests: catalogs made of documents, the app, its commands and its processes."""

import fcntl
import hashlib
import http.client
import json
import os
import pty
import secrets
import select
import shlex
import shutil
import signal
import sqlite3
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import pytest
from click.testing import Result
from flask import Flask
from flask.testing import FlaskClient
from prepared_processes import start_python
from programs import find_program
from shared_parts import share_parts
from upstreams import FakeUpstream
from werkzeug.test import TestResponse

from app import create_app
from catalog.domain.documents import Document, check_document
from catalog.files.jsonl import read_catalog, read_demo
from catalog.store.bundles.bundles import Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import connect
from catalog.store.connection.transaction import Transaction
from catalog.store.write import demo as demo_catalog
from catalog.store.write.documents import put_documents
from catalog.store.write.stored_bundles import bundle_path

# Playwright is installed only on machines with Chromium.
if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "seed" / "demo.jsonl"
# Chromium uses the last list on its command line, so the names in Playwright's list are repeated
# here. The last two features load two pages for every window, which takes a second of CPU time.
DISABLED_FEATURES = (
    *("AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades"),
    *("LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints"),
    *("PaintHolding", "PreconnectToSearch", "ThirdPartyStoragePartitioning"),
    *("WebUIOmniboxAimPopup", "WebUIOmniboxPopup"),
)
# The fixture figures of the torture tests.
pytest_plugins = ["torture.figures"]
NEW_HISTORY = "UPDATE revision SET history = lower(hex(randomblob(8)))"


@pytest.fixture(autouse=True)
def default_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the settings of the environment in which the tests run."""
    for name in [name for name in os.environ if name.startswith(("CATALOG_", "FLASK_"))]:
        monkeypatch.delenv(name)
    # The tests must not find the passwords of the user who runs them.
    monkeypatch.setenv("NETRC", os.devnull)
    # No test needs the system's certificates, and to read them takes 50 ms of CPU time each time.
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first: at the end, short ones keep all workers busy."""
    items.sort(key=lambda item: "browser" not in item.path.name)
    # test_cluster.py runs the tests of some files again, one case of each.
    if os.environ.get("TEST_ON_RQLITE"):
        cases = {(item.path, getattr(item, "originalname", item.name)): item for item in items}
        items[:] = cases.values()


def pytest_configure(config: pytest.Config) -> None:
    """Let all apps share what takes long: compiled routes, and compiled templates."""
    cache = getattr(config, "cache", None)
    share_parts(str(cache.mkdir("templates")) if cache else "")
    # The processes of the tests inherit it: nohup would let them ignore the end of a terminal.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@cache
def empty_catalog() -> bytes:
    """Return a database without widgets; to copy it is much faster than to create one."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "empty.db")
        Database(path).create()
        return path.read_bytes()


def putting(documents: Iterable[Document]) -> Callable[[Transaction], None]:
    """Return a function for transact() or create() that adds or updates these widgets."""
    checked = list(documents)

    def put(transaction: Transaction) -> None:
        put_documents(transaction, checked, sets_counts=True)

    return put


def running(sql: str, values: Mapping[str, object] | None = None) -> Callable[[Transaction], None]:
    """Return a function for transact() that runs a statement, as an operator could."""
    return lambda transaction: transaction.execute(sql, values)


# Catalogs by their documents, each as the bytes before and after its history. A copy gets another
# history of the same length between them: the pages of SQLite have no checksums.
created_catalogs: dict[str, tuple[bytes, bytes]] = {}
MAX_CREATED_CATALOGS = 100
MAX_CREATED_BYTES = 1_000_000


def create_catalog(path: Path, *documents: dict[str, Any]) -> Path:
    """Create a database of these widget documents, with a history of its own."""
    key = repr(documents)
    if parts := created_catalogs.get(key):
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_hex(8).encode().join(parts))
        return path
    history = write_catalog(path, *documents)
    before, *after = path.read_bytes().split(history.encode())
    # A widget without versions is created now, unless its document says when.
    has_times = all(each.get("versions") or "createdAt" in each["widget"] for each in documents)
    if has_times and len(after) == 1 and len(before) + len(after[0]) < MAX_CREATED_BYTES:
        if len(created_catalogs) == MAX_CREATED_CATALOGS:
            created_catalogs.clear()
        created_catalogs[key] = before, after[0]
    return path


def write_catalog(path: Path, *documents: dict[str, Any]) -> str:
    """Create a database of these widget documents, and return its history."""
    path.touch(mode=0o600)
    path.write_bytes(empty_catalog())
    with closing(connect(path, "mode=rw")) as connection:
        connection.execute("BEGIN")
        connection.execute(NEW_HISTORY)
        transaction = Transaction(connection)
        putting(map(check_document, documents))(transaction)
        transaction.finish()
        connection.execute("COMMIT")
        (history,) = connection.execute("SELECT history FROM revision").fetchone()
    return str(history)


@pytest.fixture
def app_with(tmp_path: Path) -> Iterator[Callable[..., Flask]]:
    """Return a function that creates a catalog of documents and returns the app for it."""
    databases: list[Database] = []

    def make(*documents: dict[str, Any], **settings: Any) -> Flask:
        path = create_catalog(tmp_path / f"catalog-{len(databases)}.db", *documents)
        # test_cluster.py runs the tests of some files again with this.
        if os.environ.get("TEST_ON_RQLITE"):
            from rqlite_nodes import load_on_node

            settings |= load_on_node(path, len(databases))
        app = create_app({"DATABASE": path, **settings})
        databases.append(app.extensions["database"])
        return app

    yield make
    for database in databases:
        database.close()


@pytest.fixture
def client_with(app_with: Callable[..., Flask]) -> Callable[..., FlaskClient]:
    """Return a function that creates a catalog of documents and returns a client of it."""
    return lambda *documents, **settings: app_with(*documents, **settings).test_client()


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeUpstream]:
    """An upstream without widgets; a mirror does not wait between its retries."""
    monkeypatch.setattr("catalog.mirror.upstream.RETRY_WAITS", (0, 0, 0, 0))
    running = FakeUpstream()
    yield running
    running.close()


@pytest.fixture
def mirror_app(tmp_path: Path) -> Iterator[Flask]:
    """An app that has no database yet, for widget-catalog mirror to create."""
    app = create_app({"DATABASE": tmp_path / "mirror.db", "BUNDLES": str(tmp_path / "bundles")})
    yield app
    app.extensions["database"].close()


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that SQLite runs on connections that are opened from now on."""
    executed: list[str] = []
    connect = sqlite3.connect

    def record(sql: str) -> None:
        # The statements of FTS5 on its own tables begin with a comment. PRAGMA data_version does
        # not read the catalog.
        if not sql.startswith(("--", "PRAGMA data_version")):
            executed.append(sql)

    def connect_traced(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **keywords)
        connection.set_trace_callback(record)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_traced)
    return executed


def headers_without_date(response: TestResponse) -> dict[str, str]:
    """Return the headers that do not depend on the time."""
    return {name: value for name, value in response.headers.items() if name != "Date"}


VERSIONS = """
SELECT version.id, scope, name, version, sha256_hash, source
FROM version JOIN widget ON widget.id = widget_id LEFT JOIN mirrored USING (widget_id)
"""
SET_BUNDLE_PATH = "UPDATE version SET bundle_path = :path WHERE id = :id"


def hold(app: Flask, *contents: bytes) -> None:
    """Store these bundles, and let the versions with their hashes point to this service."""
    bundles, database = app.extensions["bundles"], app.extensions["database"]
    with bundles.writing():
        for content in contents:
            bundles.add(hashlib.sha256(content).hexdigest(), len(content), [content])
        stored = []
        for row in database.reader().execute(VERSIONS).fetchall():
            id_, scope, name, version, sha256, source = row
            if bundles.has(sha256):
                path = bundle_path(scope, name, version, sha256 if source else None)
                stored.append({"id": id_, "path": path})
        database.transact(lambda transaction: transaction.execute_many(SET_BUNDLE_PATH, stored))


@cache
def demo_files() -> tuple[bytes, dict[str, bytes]]:
    """Return a database of the demo catalog, and its bundles by their names."""
    with TemporaryDirectory() as folder:
        path, bundles = Path(folder, "demo.db"), Bundles(Path(folder, "bundles"))
        demo_catalog.create_demo(Database(path), bundles, read_demo())
        return path.read_bytes(), {
            name: bundles.path(name).read_bytes() for name in bundles.hashes()
        }


@cache
def imported_demo_file() -> bytes:
    """Return a database of the demo catalog without its bundles, readmes, links and pictures."""
    with TemporaryDirectory() as folder, DEMO.open("rb") as file:
        path = Path(folder, "demo.db")
        documents = [document._replace(about=None) for document in read_catalog([file])]
        Database(path).create(putting(documents))
        return path.read_bytes()


def write_database(path: Path, content: bytes) -> None:
    """Write a copy of a database, with a history of its own; the path must not exist."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(NEW_HISTORY)


def create_demo(path: Path) -> Path:
    """Create a database of the demo catalog, and its bundles."""
    database, bundles = demo_files()
    write_database(path, database)
    directory = Path(f"{path}-bundles")
    directory.mkdir(mode=0o700, exist_ok=True)
    for name, content in bundles.items():
        (directory / name).touch(mode=0o600)
        (directory / name).write_bytes(content)
    return path


def import_demo(path: Path) -> Path:
    """Create a database of the demo catalog without its bundles, as import makes it."""
    write_database(path, imported_demo_file())
    return path


@pytest.fixture(scope="session")
def demo_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the demo catalog, shared by all tests: do not change it."""
    return create_demo(tmp_path_factory.mktemp("demo") / "demo.db")


@pytest.fixture(scope="session")
def imported_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the demo catalog without its bundles, shared by all tests: do not change it."""
    return import_demo(tmp_path_factory.mktemp("imported") / "demo.db")


@pytest.fixture(scope="module")
def demo_app(demo_database: Path) -> Iterator[Flask]:
    """An app of the shared demo catalog: do not change it."""
    app = create_app({"DATABASE": demo_database})
    yield app
    app.extensions["database"].close()


@pytest.fixture
def demo(demo_app: Flask) -> FlaskClient:
    """A client of the shared demo catalog, for tests that only read."""
    return demo_app.test_client()


def run(app: Flask, *arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run a command of the service in this process, as `flask ARGUMENTS` would."""
    return app.test_cli_runner().invoke(args=[*map(str, arguments)], input=stdin)


def put(app: Flask, *documents: dict[str, Any]) -> None:
    """Add or update widgets, as `widget-catalog import` does."""
    result = run(app, "import", "-", stdin="\n".join(map(json.dumps, documents)))
    assert result.exit_code == 0, result.output


def run_on(database: Path, *arguments: object) -> Result:
    """Run a command in this process on the database at this path."""
    app = create_app({"DATABASE": database})
    try:
        return run(app, *arguments)
    finally:
        app.extensions["database"].close()


def run_line(app: Flask, line: str) -> Result:
    """Run a command that is given as one line, as in a shell."""
    return run(app, *shlex.split(line))


def run_here(
    database: Path, *command: object, run_by: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run Python as a process on this database; run_by is a command that changes the user."""
    environment = {**os.environ, "CATALOG_DATABASE": str(database), "CATALOG_PORT": "0"}
    process = start_python([*map(str, command)], environment, run_by, cwd=ROOT)
    with process:
        stdout, stderr = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def flask(database: Path, *command: object) -> None:
    """Run a command of the service as a process; it must succeed."""
    result = run_here(database, "-m", "flask", *command)
    assert result.returncode == 0, result.stderr


class Server:
    """A process that serves a database on a free port of the loopback interface."""

    def __init__(self, database: Path, run_by: Sequence[str] = (), **settings: str) -> None:
        environment = {
            "CATALOG_DATABASE": str(database),
            "CATALOG_PORT": "0",
            # No access log: its lines would fill the pipe.
            "CATALOG_LOG_LEVEL": "error",
        }
        self.process = start_python(
            ["app.py"], {**os.environ, **environment, **settings}, run_by, cwd=ROOT
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        self.url = self.first_line.split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def request(
        self, method: str, path: str, body: bytes | None = None, /, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request, its path as it is. In names of headers, _ stands for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def cpu_seconds(self) -> float:
        """CPU time that the process has used, all its threads together."""
        # The clock of another process, as clock_getcpuclockid(3) computes it.
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def megabytes(self, name: str = "VmRSS") -> int:
        """Memory of the process, by its name in /proc/PID/status."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (line,) = [line for line in status.splitlines() if line.startswith(f"{name}:")]
        return int(line.split()[1]) // 1024

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code; standard error is then in self.errors."""
        self.process.terminate()
        _, self.errors = self.process.communicate(timeout=60)
        code: int = self.process.returncode
        return code


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A process that serves the demo catalog, shared by all tests."""
    running = Server(create_demo(tmp_path_factory.mktemp("served") / "served.db"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """The installed Chromium; the one without windows, if there is, takes half the CPU time."""
    path = shutil.which("chromium-headless-shell") or find_program("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        features = ",".join(DISABLED_FEATURES)
        running = playwright.chromium.launch(
            executable_path=path, args=[f"--disable-features={features}"]
        )
        yield running
        running.close()


def exported(app: Flask) -> bytes:
    """Return what `widget-catalog export` writes."""
    result = run(app, "export")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes


def error_message(result: Result) -> str:
    """Return the one line with which a command failed."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


def usage_message(result: Result) -> str:
    """Return the last line of a command that was used wrongly."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (2, "")
    line = result.stderr.splitlines()[-1]
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


def start_command(
    database: Path,
    *arguments: object,
    program: str = "flask",
    settings: Mapping[str, str] | None = None,
    **options: Any,
) -> "subprocess.Popen[Any]":
    """Start a command of the service as a process; options are those of Popen."""
    environment = {
        "FLASK_APP": str(ROOT / "app.py"),
        "CATALOG_DATABASE": str(database),
        "PYTHONPATH": str(ROOT),
    }
    process: subprocess.Popen[Any] = start_python(
        ["-m", program, *map(os.fsencode, map(str, arguments))],
        {**os.environ, **environment, **(settings or {})},
        **options,
    )
    return process


def parent_of(pid: int) -> int:
    """Return the id of the parent of a process."""
    status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(status.rpartition(")")[2].split()[1])


def wait_for_end(pid: int) -> None:
    """Wait until the process has ended; raise if it does not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 20)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)


def run_at_terminal(
    database: Path,
    *arguments: object,
    columns: int = 80,
    program: str = "flask",
    **settings: str,
) -> str:
    """Return what a terminal shows of a command that has it for both outputs."""
    terminal, process_end = pty.openpty()
    fcntl.ioctl(process_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # The size of the terminal in which the tests run does not matter.
    settings = {"COLUMNS": "", "LINES": "", **settings}
    streams = {"stdin": process_end, "stdout": process_end, "stderr": process_end}
    output = b""
    with start_command(
        database, *arguments, program=program, settings=settings, **streams
    ) as process:
        os.close(process_end)
        # Linux reports the end of the output as an error.
        with suppress(OSError), open(terminal, "rb", buffering=0) as screen:
            while content := screen.read(4096):
                output += content
    assert process.returncode == 0, output
    return output.decode().replace("\r\n", "\n")


class Limits:
    """Changes constants in a server's process that are no settings, such as deadlines.

    The process runs the code from a sitecustomize module when it starts. It has imported the
    modules of the service: where a constant is the default of a parameter, or another module has
    imported it, the old value stays.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._code = ""

    def set(self, module: str, **constants: float) -> dict[str, str]:
        """Give constants of a module of catalog these values; return the server's environment."""
        lines = [f"catalog.{module}.{name} = {value}\n" for name, value in constants.items()]
        return self.run(f"import catalog.{module}\n" + "".join(lines))

    def set_busy_timeout(self, milliseconds: int) -> dict[str, str]:
        """Let a write wait this long for another process; return the server's environment."""
        return self.run(
            "from catalog.store.connection.database import Database\n"
            f"Database.busy_timeout_ms = {milliseconds}\n"
        )

    def run(self, code: str) -> dict[str, str]:
        """Run the code at the start of the process; return the server's environment."""
        self._code += code
        (self._folder / "sitecustomize.py").write_text(self._code)
        return {"PYTHONPATH": f"{self._folder}:."}


@pytest.fixture
def limits(tmp_path: Path) -> Limits:
    """Changes constants in a server's process."""
    folder = tmp_path / "site"
    folder.mkdir()
    return Limits(folder)


@pytest.fixture(scope="session")
def tab(browser: "Browser") -> Iterator["Page"]:
    """One tab for all tests with the default settings: a new context takes up to a second."""
    with browser.new_context(ignore_https_errors=True) as context:
        context.set_default_timeout(60_000)
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
        context.set_default_timeout(60_000)
        yield context.new_page()


@pytest.fixture(params=["with scripts", "without scripts"])
def any_page(request: pytest.FixtureRequest) -> "Page":
    """A shared tab, with JavaScript and without."""
    name = "page" if request.param == "with scripts" else "tab_without_scripts"
    shared: Page = request.getfixturevalue(name)
    return shared
