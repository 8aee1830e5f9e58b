"""A kept answer is never stale: the next GET shows every write, whoever made it."""

import os
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
from catalog.store import backups, writes
from catalog.store.database import Database
from catalog.store.integrity import check_catalog

PATHS = [
    "/api/v1/widgets/search",
    "/api/v1/widgets/search?limit=1",
    "/api/v1/widgets/search?limit=1&page=2",
    "/api/v1/widgets/search?limit=1&page=9",
    "/api/v1/widgets/search?official=false&limit=1",
    "/api/v1/widgets/search?q=clock",
    "/api/v1/widgets/search?q=timer&limit=1",
    "/api/v1/widgets/search?scope=acme&compatSdk=1.4.0&official=true",
    "/api/v1/widgets/acme/clock",
    "/api/v1/widgets/acme/timer",
    "/api/widgets/acme/registry.json",
    "/api/stats",
]


def put(*documents: dict[str, Any]) -> list[Any]:
    return writes.put_documents(check_document(each) for each in documents)


def start() -> list[Any]:
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
    """The id of acme/clock and of one of its versions; 0 where there is none."""
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


# Every kind of write that the service and its commands make.
WRITES: dict[str, Callable[[Database], list[Any]]] = {
    "install": lambda _: writes.count_install("acme", "clock"),
    "install another": lambda _: writes.count_install("acme", "timer"),
    "install many": lambda _: writes.count_install("acme", "timer") * 120,
    "recount": lambda _: put(document("acme/clock", version("1.0.0"), downloadCount=0)),
    "publish": lambda _: put(document("acme/clock", version("2.0.0"))),
    "new widget": lambda _: put(document("acme/sundial", version("0.1.0"), displayName="Clock")),
    "change": lambda _: put(document("acme/timer", version("1.0.0"), displayName="Egg Timer")),
    "yank": lambda db: writes.set_yanked(ids(db)[1], True, "It stops."),
    "unyank": lambda db: writes.set_yanked(ids(db)[1], False, None),
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
    "start again": lambda _: start(),
}


class Service:
    """A service that keeps answers, and beside it the same catalog as another process sees it."""

    def __init__(self, path: Path) -> None:
        Database(path).create(start())
        self.path = path
        self.app: Flask = create_app({"DATABASE": path})
        self.client: FlaskClient = self.app.test_client()
        self.other = Database(path)

    def answers(self) -> list[tuple[int, bytes, str | None]]:
        return [self._answer(self.client, path) for path in PATHS]

    def fresh_answers(self) -> list[tuple[int, bytes, str | None]]:
        """What a service says that has kept nothing."""
        app = create_app({"DATABASE": self.path})
        try:
            return [self._answer(app.test_client(), path) for path in PATHS]
        finally:
            app.extensions["database"].close()

    @staticmethod
    def _answer(client: FlaskClient, path: str) -> tuple[int, bytes, str | None]:
        response = client.get(path)
        return response.status_code, response.data, response.headers.get("ETag")

    def close(self) -> None:
        self.app.extensions["database"].close()
        self.other.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path / "catalog.db")
    yield running
    running.close()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_next_answer_shows_the_write_of_another_process(
    service: Service, write: Callable[[Database], list[Any]]
) -> None:
    service.answers()
    service.other.write(write(service.other))
    assert service.answers() == service.fresh_answers()


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(WRITES)), st.booleans(), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_answers_are_right_after_any_series_of_writes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, bool]]
) -> None:
    service = Service(tmp_path_factory.mktemp("series") / "catalog.db")
    try:
        for name, by_another, read_between in steps:
            writer = service.other if by_another else service.app.extensions["database"]
            writer.write(WRITES[name](service.other))
            if read_between:
                service.answers()
        assert service.answers() == service.fresh_answers()
        # Both read the same tables, which the triggers must have kept right.
        assert list(check_catalog(service.other)) == []
    finally:
        service.close()


def test_restored_backup_is_not_mixed_with_answers_of_its_later_history(
    service: Service, tmp_path: Path
) -> None:
    backups.backup(service.other, tmp_path / "backup.db")
    service.other.write(WRITES["describe"](service.other))
    service.answers()
    backups.restore(service.other, tmp_path / "backup.db")
    # As many writes as before, and so the same count of them, but others.
    service.other.write(describe(service.other, "Sundial", None, None))
    assert service.answers() == service.fresh_answers()
    assert (
        service.client.get("/api/v1/widgets/acme/clock").json["widget"]["displayName"] == "Sundial"
    )


def test_install_that_was_confirmed_is_in_every_later_answer(service: Service) -> None:
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
        seen = 0
        for number in range(1, 51):
            confirmed.acquire(timeout=30)
            seen = client.get("/api/v1/widgets/acme/clock").json["widget"]["downloadCount"] or 0
            if seen < number:
                failures.append((number, seen))

    threads = [threading.Thread(target=work) for work in (install, install, watch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert service.answers() == service.fresh_answers()


def test_install_of_one_widget_leaves_the_kept_detail_of_another(service: Service) -> None:
    before = service.client.get("/api/v1/widgets/acme/timer").headers["ETag"]
    service.client.post("/api/v1/widgets/acme/clock")
    assert service.client.get("/api/v1/widgets/acme/timer").headers["ETag"] == before


def test_answers_go_on_where_the_log_is_gone(service: Service) -> None:
    service.answers()
    service.path.with_name("catalog.db-wal").unlink()
    assert [status for status, _, _ in service.answers()] == [200] * len(PATHS)


def test_commit_counts_from_when_it_is_seen_not_from_when_it_is_in_the_log(
    service: Service,
) -> None:
    database: Database = service.app.extensions["database"]
    service.answers()
    before = database.reader().data_version()
    # As while it is on its way to the disk.
    os.utime(service.path.with_name("catalog.db-wal"))
    assert database.reader().data_version() == before
    versions = {before}
    for _ in range(3):
        service.other.write([("UPDATE widget SET download_count = 1", {})])
        versions.add(database.reader().data_version())
    assert len(versions) == 4


def test_answers_are_right_after_every_connection_was_closed(service: Service) -> None:
    service.answers()
    service.app.extensions["database"].close()
    service.other.write(WRITES["describe"](service.other))
    service.other.close()  # the last one, and so the log goes with it
    assert service.answers() == service.fresh_answers()
