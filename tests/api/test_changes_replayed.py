"""A client that replays the changes has the catalog, whatever happens between its requests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import create_app

NAMES = ["acme/a", "acme/b", "lab/c"]
# Never listed: no response may ever name them.
SECRETS = ["acme/secret", "lab/secret"]
VERSIONS = ["1.0.0", "2.0.0"]

paths = st.sampled_from([*NAMES, *NAMES, *SECRETS])
versions = st.builds("{}@{}".format, paths, st.sampled_from(VERSIONS))
commands = st.one_of(
    st.tuples(st.sampled_from(["unlist", "official"]), paths),
    st.tuples(st.just("official"), paths, st.just("--off")),
    st.tuples(st.just("relist"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["yank", "unyank"]), versions),
    st.tuples(st.just("deprecate"), versions, st.sampled_from(["Old.", "Slow."])),
    st.tuples(st.just("describe"), paths, st.just("--icon"), st.sampled_from(["mdi:x", "mdi:y"])),
    st.tuples(st.just("delete"), versions, st.just("--yes")),
    st.tuples(st.just("delete"), paths, st.just("--yes")),
)
imports = st.tuples(
    st.just("import"), paths, st.lists(st.sampled_from(VERSIONS), unique=True), st.booleans()
)
others = st.sampled_from([("install",), ("backup",), ("restore",), ("unpack",), ("install",)])
# The number of pages, and their size.
reads = st.tuples(st.just("read"), st.integers(1, 3), st.integers(1, 3))
steps = st.lists(
    st.one_of(*[commands] * 4, *[imports] * 2, *[reads] * 4, others), min_size=8, max_size=16
)


class Replica:
    """The details of all listed widgets, built from the changes alone."""

    def __init__(self, client: FlaskClient) -> None:
        self.client = client
        self.token = ""
        self.details: dict[str, Any] = {}

    def read(self, pages: int, limit: int) -> bool:
        """Read so many pages; return whether there are more."""
        for _ in range(pages):
            query = f"since={self.token}&limit={limit}"
            response = self.client.get(f"/api/v1/widgets/changes?{query}")
            if response.status_code == 410:
                self.token, self.details = "", {}
                return True
            assert response.status_code == 200
            for change in response.json["changes"]:
                self.apply(change)
            self.token = response.json["next"]
            if not response.json["more"]:
                return False
        return True

    def apply(self, change: dict[str, Any]) -> None:
        path = f"{change['scope']}/{change['name']}"
        assert path in NAMES
        if change["kind"] == "removed":
            self.details.pop(path, None)
            return
        response = self.client.get(f"/api/v1/widgets/{path}")
        assert response.headers["ETag"] == change["etag"]
        self.details[path] = without_count(response.get_json())


def without_count(detail: dict[str, Any]) -> dict[str, Any]:
    del detail["widget"]["downloadCount"]
    return detail


class Catalog:
    """The catalog that the steps change."""

    def __init__(self, app: Flask, folder: Path) -> None:
        self.app, self.folder = app, folder

    def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("install",):
                for path in [*NAMES, *SECRETS]:
                    self.app.test_client().post(f"/api/v1/widgets/{path}")
            case ("backup",):
                self.run("backup", self.folder / "backup.db")
            case ("restore",):
                self.run("restore", self.folder / "backup.db", "--yes")
            case ("unpack",):
                self.run("pack", self.folder / "catalog.pack")
                self.run("unpack", self.folder / "catalog.pack", "--yes")
            case ("import", path, numbers, is_listed):
                listed = is_listed and path not in SECRETS
                created = {"createdAt": "2025-01-01T00:00:00Z", "listed": listed}
                each = document(path, *map(version, numbers), **created)
                self.run("import", "-", stdin=json.dumps(each))
            case ("deprecate", target, message):
                self.run("deprecate", target, "--message", message)
            case _:
                # A command about a widget that does not exist fails and changes nothing.
                self.run(*step)

    def run(self, *arguments: object, stdin: str | None = None) -> None:
        run(self.app, *arguments, stdin=stdin)

    def details(self) -> dict[str, Any]:
        client = self.app.test_client()
        listed = client.get("/api/v1/widgets/search?limit=100").json["widgets"]
        names = [f"{each['scope']}/{each['name']}" for each in listed]
        found = {name: client.get(f"/api/v1/widgets/{name}").get_json() for name in names}
        return {name: without_count(detail) for name, detail in found.items()}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    app = create_app({"DATABASE": tmp_path / "catalog.db"})
    catalog = Catalog(app, tmp_path)
    catalog.run("init")
    for path in [*NAMES, *SECRETS]:
        catalog.do(("import", path, VERSIONS, True))
    catalog.run("backup", tmp_path / "first.db")
    catalog.run("backup", tmp_path / "backup.db")
    yield catalog
    app.extensions["database"].close()


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=steps)
def test_replayed_changes_equal_the_catalog(
    catalog: Catalog, history: list[tuple[Any, ...]]
) -> None:
    catalog.run("restore", catalog.folder / "first.db", "--yes")
    replica = Replica(catalog.app.test_client())
    replica.read(1, 100)
    for step in history:
        if step[0] == "read":
            replica.read(*step[1:])
        else:
            catalog.do(step)
    while replica.read(1, 2):
        pass
    assert replica.details == catalog.details()
