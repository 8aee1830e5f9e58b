"""A cached response is never stale: the next GET shows every write of any process."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import given, settings
from hypothesis import strategies as st

from app import create_app
from catalog.documents import check_document
from catalog.store import backups
from catalog.store.check import check_catalog
from catalog.store.connection.database import Database
from catalog.store.write import writes

PATHS = [
    "/api/v1/widgets/search",
    "/api/v1/widgets/search?limit=1",
    "/api/v1/widgets/search?limit=1&page=2",
    "/api/v1/widgets/search?limit=1&page=9",
    "/api/v1/widgets/search?official=false&limit=1",
    "/api/v1/widgets/search?q=clock",
    "/api/v1/widgets/search?q=timer&limit=1",
    "/api/v1/widgets/search?scope=acme&compatSdk=1.4.0&official=true",
    "/api/v1/widgets/search?compatSdk=1.4.0&compatible=true&limit=1",
    "/api/v1/widgets/search?compatSdk=1.1.0&compatible=true&scope=acme&page=2&limit=1",
    "/api/v1/widgets/search?sort=updated&limit=1",
    "/api/v1/widgets/search?sort=created&official=false",
    "/api/v1/widgets/search?sort=name&limit=1&page=2",
    "/api/v1/widgets/search?q=clock&sort=installs&limit=1",
    "/api/v1/widgets/updates?compatSdk=1.4.0&installed=acme/clock@1.0.0&installed=acme/timer@1.0.0",
    "/api/v1/widgets/acme/clock",
    "/api/v1/widgets/acme/clock?compatSdk=1.1.0",
    "/api/v1/widgets/acme/clock/latest",
    "/api/v1/widgets/acme/clock/latest?compatSdk=1.1.0",
    "/api/v1/widgets/acme/clock/1.1.0",
    "/api/v1/widgets/acme/timer",
    "/api/widgets/acme/registry.json",
    "/api/stats",
]


def put(*documents: dict[str, Any]) -> list[Any]:
    return writes.put_documents(check_document(each) for each in documents)


def first_catalog() -> list[Any]:
    return put(
        document(
            "acme/clock", version("1.0.0"), version("1.1.0", sdkVersion="^1.2.0"), isOfficial=True
        ),
        document(
            "acme/timer",
            version("1.0.0"),
            description="Counts down beside the clock.",
            downloadCount=1,
        ),
    )


def ids(database: Database) -> tuple[int, int]:
    """Return the ids of acme/clock and of its version 1.1.0; 0 if there is none."""
    with database.read() as connection:
        widget = connection.execute("SELECT id FROM widget WHERE name = 'clock'").fetchone()
        one = connection.execute("SELECT max(id) FROM version WHERE version = '1.1.0'").fetchone()
    return (widget[0] if widget else 0), (one[0] or 0)


def describe(database: Database, name: str, description: str | None, icon: str | None) -> list[Any]:
    columns = ("display_name", "description", "icon")
    with database.read() as connection:
        row = connection.execute("SELECT * FROM widget WHERE name = 'clock'").fetchone()
    before = {column: row[column] if row else None for column in columns}
    return writes.describe(
        ids(database)[0], before, dict(zip(columns, (name, description, icon), strict=True))
    )


# Every kind of write of the service and its commands.
WRITES: dict[str, Callable[[Database], list[Any]]] = {
    "install": lambda _: writes.count_install("acme", "clock"),
    "install another": lambda _: writes.count_install("acme", "timer"),
    "install many": lambda _: writes.count_install("acme", "timer") * 120,
    "recount": lambda _: put(document("acme/clock", version("1.0.0"), downloadCount=0)),
    "publish": lambda _: put(document("acme/clock", version("2.0.0"))),
    "new widget": lambda _: put(document("acme/sundial", version("0.1.0"), displayName="Clock")),
    "change": lambda _: put(document("acme/timer", version("1.0.0"), displayName="Egg Timer")),
    "yank": lambda db: writes.set_yanked([ids(db)[1]], True, "It stops."),
    "unyank": lambda db: writes.set_yanked([ids(db)[1]], False, None),
    "deprecate": lambda db: writes.set_deprecation([ids(db)[1]], "Please update."),
    "undeprecate": lambda db: writes.set_deprecation([ids(db)[1]], None),
    "unlist": lambda db: writes.set_listed(ids(db)[0], False),
    "relist": lambda db: writes.set_listed(ids(db)[0], True),
    "official": lambda db: writes.set_official(ids(db)[0], True),
    "unofficial": lambda db: writes.set_official(ids(db)[0], False),
    "describe": lambda db: describe(db, "World Clock", "Ticks.", "mdi:clock"),
    "delete version": lambda db: writes.delete_version(ids(db)[1]),
    "delete widget": lambda db: writes.delete_widget(ids(db)[0]),
    "prune": lambda _: writes.remove_all_but([check_document(document("acme/timer"))]),
    "start again": lambda _: first_catalog(),
}


ResponseParts = tuple[int, bytes, str | None]


class Service:
    """A service with a cache, and another connection to its file, as another process has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.app: Flask = create_app({"DATABASE": path})
        self.client: FlaskClient = self.app.test_client()
        self.other = Database(path)

    def responses(self) -> list[ResponseParts]:
        """Return status, body and ETag of every path."""
        return [self._get(path, self.client) for path in PATHS]

    def uncached_responses(self) -> list[ResponseParts]:
        """Return what a service with an empty cache responds."""
        app = create_app({"DATABASE": self.path})
        try:
            return [self._get(path, app.test_client()) for path in PATHS]
        finally:
            app.extensions["database"].close()

    def _get(self, path: str, client: FlaskClient) -> ResponseParts:
        response = client.get(path)
        return response.status_code, response.data, response.headers.get("ETag")

    def close(self) -> None:
        self.app.extensions["database"].close()
        self.other.close()


@pytest.fixture(scope="module")
def first_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the first catalog, to be copied."""
    path = tmp_path_factory.mktemp("first") / "catalog.db"
    Database(path).create(first_catalog())
    return path


@pytest.fixture
def service(first_file: Path, tmp_path: Path) -> Iterator[Service]:
    running = Service(Path(shutil.copy(first_file, tmp_path)))
    yield running
    running.close()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_next_response_shows_the_write_of_another_process(
    service: Service, write: Callable[[Database], list[Any]]
) -> None:
    service.responses()
    service.other.write(write(service.other))
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
            writer = service.other if by_another else service.app.extensions["database"]
            writer.write(WRITES[name](service.other))
            if read_between:
                service.responses()
        assert service.responses() == service.uncached_responses()
        # Both read tables that triggers maintain: compare these with the widgets.
        assert list(check_catalog(service.other)) == []
    finally:
        service.close()


def test_restored_backup_is_not_mixed_with_cached_responses(
    service: Service, tmp_path: Path
) -> None:
    backups.backup(service.other, tmp_path / "backup.db")
    service.other.write(WRITES["describe"](service.other))
    service.responses()
    backups.restore(service.other, tmp_path / "backup.db")
    # As many writes as before the restore, but different ones.
    service.other.write(describe(service.other, "Sundial", None, None))
    assert service.responses() == service.uncached_responses()
    assert (
        service.client.get("/api/v1/widgets/acme/clock").json["widget"]["displayName"] == "Sundial"
    )


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


def test_responses_continue_after_the_wal_was_removed(service: Service) -> None:
    service.responses()
    service.path.with_name("catalog.db-wal").unlink()
    assert [status for status, _, _ in service.responses()] == [200] * len(PATHS)


def test_responses_are_right_after_every_connection_was_closed(service: Service) -> None:
    service.responses()
    service.app.extensions["database"].close()
    service.other.write(WRITES["describe"](service.other))
    # The last connection to close removes the WAL.
    service.other.close()
    assert service.responses() == service.uncached_responses()
