"""A cached response is never stale: the next GET shows every write of any process."""

import json
import shlex
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from conftest import create_catalog, run, running
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import given, settings
from hypothesis import strategies as st
from mirrors import mirror_summary
from publishers import bearer, create_token
from upstreams import FakeUpstream

from app import create_app
from catalog.store.connection.sqlite import today
from catalog.store.write.installs import count_install

PATHS = [
    "/api/v1/widgets/search",
    "/api/v1/widgets/search?limit=1",
    "/api/v1/widgets/search?limit=1&page=2",
    "/api/v1/widgets/search?official=true",
    "/api/v1/widgets/search?official=false&limit=1",
    "/api/v1/widgets/search?q=clock",
    "/api/v1/widgets/search?scope=acme&compatSdk=1.4.0&official=true",
    "/api/v1/widgets/search?compatSdk=1.1.0&compatible=true&scope=acme&page=2&limit=1",
    "/api/v1/widgets/search?sort=updated&limit=1",
    "/api/v1/widgets/search?sort=name&limit=1&page=2",
    "/api/v1/widgets/search?q=clock&sort=installs&limit=1",
    "/api/v1/widgets/updates?compatSdk=1.4.0&installed=acme/clock@1.0.0&installed=acme/timer@1.0.0",
    "/api/v1/widgets/acme/clock",
    "/api/v1/widgets/acme/clock?compatSdk=1.1.0",
    "/api/v1/widgets/acme/clock/latest?compatSdk=1.1.0",
    "/api/v1/widgets/acme/clock/1.1.0",
    "/api/v1/widgets/acme/clock/installs",
    "/api/v1/widgets/acme/timer",
    "/api/v1/widgets/changes",
    "/api/widgets/acme/registry.json",
    "/api/stats",
]


FIRST_CATALOG = [
    document(
        "acme/clock", version("1.0.0"), version("1.1.0", sdkVersion="^1.2.0"), isOfficial=True
    ),
    document(
        "acme/timer",
        version("1.0.0"),
        description="Counts down beside the clock.",
        downloadCount=1,
    ),
]
Write = Callable[[Flask], object]


def command(line: str, stdin: str | None = None) -> Write:
    """Return a write that runs a command; some fail after other writes, and change nothing."""

    def write(app: Flask) -> None:
        assert run(app, *shlex.split(line), stdin=stdin).exit_code < 2

    return write


def import_(*documents: Json, options: str = "") -> Write:
    return command(f"import - {options}", "\n".join(map(json.dumps, documents)))


def install(name: str, times: int = 1, version: str = "") -> Write:
    def write(app: Flask) -> None:
        for _ in range(times):
            count_install(app.extensions["database"], "acme", name, today(), version)

    return write


def install_one_then_another_many_times(app: Flask) -> None:
    """Install a widget, and another one more often than the table of recent installs has rows."""
    install("clock")(app)
    install("timer", 110)(app)


def count_elsewhere(app: Flask) -> None:
    """Count an install as another program may, which knows nothing of days."""
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection, connection:
        connection.execute("UPDATE widget SET download_count = coalesce(download_count, 0) + 1")


def recount_elsewhere(app: Flask) -> None:
    """Lower a count as another program may, so that its widget moves back in the results."""
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection, connection:
        connection.execute("UPDATE widget SET download_count = 0 WHERE name = 'timer'")


DESCRIBE = "describe acme/clock --display-name 'World Clock' --description Ticks. --icon mdi:clock"
# Every kind of write of the service and its commands.
WRITES: dict[str, Write] = {
    "install": install("clock"),
    "install version": install("clock", version="1.0.0"),
    "install many": install("timer", 120),
    "install one, then another many times": install_one_then_another_many_times,
    "count elsewhere": count_elsewhere,
    "recount elsewhere": recount_elsewhere,
    "recount": import_(document("acme/clock", version("1.0.0"), downloadCount=0)),
    "publish": import_(document("acme/clock", version("2.0.0"))),
    "new widget": import_(document("acme/sundial", version("0.1.0"), displayName="Clock")),
    "change": import_(document("acme/timer", version("1.0.0"), displayName="Egg Timer")),
    "yank": command("yank acme/clock@1.1.0 --reason 'It stops.'"),
    "unyank": command("unyank acme/clock@1.1.0"),
    "deprecate": command("deprecate acme/clock@1.1.0 --message 'Please update.'"),
    "undeprecate": command("undeprecate acme/clock@1.1.0"),
    "unlist": command("unlist acme/clock"),
    "relist": command("relist acme/clock"),
    "official": command("official acme/clock"),
    "unofficial": command("official --off acme/clock"),
    "describe": command(DESCRIBE),
    "delete version": command("delete acme/clock@1.1.0 --yes"),
    "delete widget": command("delete acme/clock --yes"),
    "prune": import_(document("acme/timer"), options="--prune --yes"),
    "repair": command("check --repair"),
    "start again": import_(*FIRST_CATALOG),
}


ResponseParts = tuple[int, bytes, str | None]


class Service:
    """A service with a cache, and another app on its file, as another process has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.app: Flask = create_app({"DATABASE": path})
        self.client: FlaskClient = self.app.test_client()
        self.other = create_app({"DATABASE": path})

    def responses(self, paths: Sequence[str] = PATHS) -> list[ResponseParts]:
        """Return status, body and ETag of the paths."""
        return [self._get(path, self.client) for path in paths]

    def uncached_responses(self, paths: Sequence[str] = PATHS) -> list[ResponseParts]:
        """Return what a service with an empty cache responds."""
        app = create_app({"DATABASE": self.path})
        try:
            return [self._get(path, app.test_client()) for path in paths]
        finally:
            app.extensions["database"].close()

    def _get(self, path: str, client: FlaskClient) -> ResponseParts:
        response = client.get(path)
        return response.status_code, response.data, response.headers.get("ETag")

    def close(self) -> None:
        self.app.extensions["database"].close()
        self.other.extensions["database"].close()


@pytest.fixture(scope="module")
def first_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the first catalog, to be copied."""
    return create_catalog(tmp_path_factory.mktemp("first") / "catalog.db", *FIRST_CATALOG)


@pytest.fixture
def service(first_file: Path, tmp_path: Path) -> Iterator[Service]:
    running = Service(Path(shutil.copy(first_file, tmp_path)))
    yield running
    running.close()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_next_response_shows_the_write_of_another_process(service: Service, write: Write) -> None:
    service.responses()
    write(service.other)
    assert service.responses() == service.uncached_responses()


def test_next_response_shows_the_first_of_a_hundred_installs(service: Service) -> None:
    service.responses()
    install("clock")(service.other)
    # With this many, the table of recent installs is full.
    install("timer", 99)(service.other)
    assert service.responses() == service.uncached_responses()


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(WRITES)), st.booleans(), st.booleans()),
        min_size=6,
        max_size=12,
    )
)
@settings(max_examples=20, derandomize=True, deadline=None)
def test_responses_are_right_after_any_series_of_writes(
    tmp_path_factory: pytest.TempPathFactory,
    first_file: Path,
    steps: list[tuple[str, bool, bool]],
) -> None:
    service = Service(Path(shutil.copy(first_file, tmp_path_factory.mktemp("series"))))
    try:
        for name, by_another, read_between in steps:
            WRITES[name](service.other if by_another else service.app)
            if read_between:
                service.responses()
        assert service.responses() == service.uncached_responses()
    finally:
        service.close()


def test_restored_backup_is_not_mixed_with_cached_responses(
    service: Service, tmp_path: Path
) -> None:
    run(service.other, "backup", tmp_path / "backup.db")
    run(service.other, "official", "acme/timer")
    service.responses()
    run(service.other, "restore", tmp_path / "backup.db", "--yes")
    # As many writes as before the restore, but different ones.
    run(service.other, "describe", "acme/clock", "--display-name", "Sundial")
    assert service.responses() == service.uncached_responses()
    clock = service.client.get("/api/v1/widgets/acme/clock").json["widget"]
    assert clock["displayName"] == "Sundial"


def test_restore_sets_a_higher_revision_even_after_a_clock_that_was_ahead(
    service: Service, tmp_path: Path
) -> None:
    run(service.other, "backup", tmp_path / "backup.db")
    ahead = 2**62
    service.other.extensions["database"].transact(
        running("UPDATE revision SET content = :ahead", {"ahead": ahead})
    )
    run(service.other, "restore", tmp_path / "backup.db", "--yes")
    assert content_revision(service.app) > ahead


CHANGE_ALL = """
UPDATE widget SET display_name = display_name || '!', download_count = download_count + 1
"""
CHANGE_NOTHING = "UPDATE revision SET id = id"


@pytest.mark.parametrize("path", PATHS)
def test_response_is_right_after_commits_while_it_was_validated_or_rendered(
    service: Service, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    other, connect = service.other.extensions["database"], sqlite3.connect
    # The statements of a request before which the other process commits, by their places.
    races: Sequence[int] = ()
    statements = commits = 0

    def commit_first(sql: str) -> None:
        nonlocal statements, commits
        if statements in races:
            other.transact(running(CHANGE_ALL))
            commits += 1
        statements += 1

    def connect_traced(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **keywords)
        # SQLite calls it before a statement begins to read.
        connection.set_trace_callback(commit_first)
        return connection

    # This opens the connection of the other process, which is not traced.
    other.transact(running(CHANGE_ALL))
    monkeypatch.setattr(sqlite3, "connect", connect_traced)
    for places in (range(20), [0], [1], [2]):
        service.responses([path])
        # The cached response must be validated, and is still current.
        with closing(connect(service.path)) as connection, connection:
            connection.execute(CHANGE_NOTHING)
        races, statements = places, 0
        service.responses([path])
        races = ()
        assert service.responses([path]) == service.uncached_responses([path])
    assert commits > 2


def test_confirmed_install_is_in_every_later_response(service: Service) -> None:
    confirmed = threading.Semaphore(0)
    failures: list[object] = []

    def install() -> None:
        client = service.app.test_client()
        for _ in range(25):
            if client.post("/api/v1/widgets/acme/clock").status_code != 200:
                failures.append("not confirmed")
            confirmed.release()

    def watch() -> None:
        client = service.app.test_client()
        for number in range(1, 51):
            confirmed.acquire(timeout=30)
            count = client.get("/api/v1/widgets/acme/clock").json["widget"]["downloadCount"] or 0
            if count < number:
                failures.append((number, count))

    threads = [threading.Thread(target=work) for work in (install, install, watch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert service.responses() == service.uncached_responses()


def test_responses_are_right_after_every_connection_was_closed(service: Service) -> None:
    service.responses()
    service.app.extensions["database"].close()
    WRITES["describe"](service.other)
    # The last connection to close removes the WAL.
    service.other.extensions["database"].close()
    assert service.responses() == service.uncached_responses()


def content_revision(app: Flask) -> int:
    with app.extensions["database"].read() as connection:
        (content,) = connection.execute("SELECT content FROM revision").fetchone()
    return int(content)


def test_the_first_use_of_a_token_leaves_cached_responses_valid(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(*FIRST_CATALOG)
    headers, before = bearer(create_token(app)), content_revision(app)
    assert app.test_client().get("/api/session", headers=headers).status_code == 200
    (token,) = json.loads(run(app, "token", "list", "--json").stdout)
    assert token["lastUsedDay"] is not None
    assert content_revision(app) == before


def test_a_mirror_run_without_changes_leaves_cached_responses_valid(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(*FIRST_CATALOG)
    mirror_summary(mirror_app, upstream.url)
    before = content_revision(mirror_app)
    assert "2 unchanged" in mirror_summary(mirror_app, upstream.url)
    assert content_revision(mirror_app) == before
