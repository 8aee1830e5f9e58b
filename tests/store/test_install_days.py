"""Installs by day and by version, compared with a model after each step, on a file and a cluster.

The steps are drawn at random but always the same. Their days are arguments, so years can pass.
"""

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import create_catalog, run
from flask import Flask
from rqlite_nodes import load_on_node, require_rqlite, slow_if_emulated
from upstreams import FakeUpstream

from app import create_app
from catalog.store.read.installs import find_installs
from catalog.store.write.installs import count_install

Apps = Callable[..., Flask]

PATHS = ["acme/clock", "acme/notes"]
# Newest first.
NUMBERS = ["2.0.0", "1.1.0", "1.0.0"]
EPOCH = date(1970, 1, 1)
CREATED = "2025-01-02T03:04:05.000Z"
FIRST_DAY = 20_000
SHOWN_DAYS = 400
# The newest days with installs; the others are deleted.
STORED_DAYS_LIMIT = 800
STORED_DAYS = """
SELECT scope || '/' || name, day, installs FROM install_day JOIN widget ON id = widget_id
"""
STORED_VERSIONS = """
SELECT scope || '/' || name, version, installs FROM install_version JOIN widget ON id = widget_id
"""


def to_date(day: int) -> date:
    return EPOCH + timedelta(days=day)


def with_versions(path: str, **fields: Any) -> dict[str, Any]:
    return document(path, *map(version, NUMBERS), **fields)


class Model:
    """What is counted of each widget that exists."""

    def __init__(self) -> None:
        self.total: dict[str, int | None] = dict.fromkeys(PATHS)
        self.versions = {path: set(NUMBERS) for path in PATHS}
        self.by_day: dict[str, Counter[int]] = {path: Counter() for path in PATHS}
        self.by_version: dict[str, Counter[str]] = {path: Counter() for path in PATHS}

    def install(self, path: str, number: str, day: int) -> bool:
        if path not in self.total or number not in {"", *self.versions[path]}:
            return False
        self.total[path] = (self.total[path] or 0) + 1
        self.by_day[path][day] += 1
        if number:
            self.by_version[path][number] += 1
        return True

    def delete(self, path: str, number: str) -> None:
        if number:
            self.versions.get(path, set()).discard(number)
        elif path in self.total:
            del self.total[path], self.versions[path], self.by_day[path], self.by_version[path]

    def put(self, path: str, count: int | None) -> None:
        """Import the widget with all versions; a count in the file never lowers a counter."""
        if path not in self.total:
            self.total[path] = None
            self.by_day[path], self.by_version[path] = Counter(), Counter()
        if count is not None:
            self.total[path] = max(self.total[path] or 0, count)
        self.versions[path] = set(NUMBERS)

    def expected(self, path: str, days: int, today: int) -> dict[str, Any] | None:
        if path not in self.total:
            return None
        by_day, by_version = self.by_day[path], self.by_version[path]
        return {
            "total": self.total[path] or 0,
            "days": [
                {"day": to_date(day).isoformat(), "installs": by_day[day]}
                for day in sorted(by_day)
                if today - days < day <= today
            ],
            "versions": [
                {"version": number, "installs": by_version[number]}
                for number in NUMBERS
                if number in self.versions[path] and by_version[number]
            ],
        }


class Catalog:
    """The catalog that the steps change, and its model."""

    def __init__(self, app: Flask, folder: Path, seed: int) -> None:
        self.app, self.backup = app, folder / "backup.db"
        self.random = random.Random(seed)  # noqa: S311
        self.model = self.backed_up = Model()
        self.day = FIRST_DAY

    def step(self) -> None:
        draw = self.random.choice
        path, number = draw(PATHS), draw(NUMBERS)
        kind = self.random.choices(
            ["install", "yank", "delete version", "delete", "import", "backup", "restore"],
            [40, 2, 2, 1, 3, 1, 1],
        )[0]
        if kind == "install":
            # Mostly the same or the next day, sometimes a year later, and clocks can be wrong.
            self.day += draw([0, 0, 0, 0, 0, 1, 1, 2, 30, 130, 390, -1])
            day = self.day + draw([0] * 20 + [1000, 5000, -self.day])
            number = draw([number, number, "", "9.9.9"])
            scope, name = path.split("/")
            counted = count_install(self.database, scope, name, day, number)
            assert counted is self.model.install(path, number, day)
        elif kind == "yank":
            self.run("yank", f"{path}@{number}")
        elif kind.startswith("delete"):
            number = number if kind == "delete version" else ""
            self.run("delete", f"{path}@{number}" if number else path, "--yes")
            self.model.delete(path, number)
        elif kind == "import":
            count = draw([None, 0, 50])
            fields = {} if count is None else {"downloadCount": count}
            self.run("import", "-", stdin=json.dumps(with_versions(path, **fields)))
            self.model.put(path, count)
        elif kind == "backup":
            self.backup.unlink(missing_ok=True)
            self.run("backup", self.backup)
            self.backed_up = copy.deepcopy(self.model)
        elif self.backup.exists():
            self.run("restore", self.backup, "--yes")
            self.model = copy.deepcopy(self.backed_up)

    @property
    def database(self) -> Any:
        return self.app.extensions["database"]

    def run(self, *arguments: object, stdin: str | None = None) -> None:
        assert run(self.app, *arguments, stdin=stdin).exit_code in (0, 1)

    def check(self) -> None:
        """Compare all numbers with the model."""
        days = self.random.choice([1, 7, 90, SHOWN_DAYS])
        for path in PATHS:
            scope, name = path.split("/")
            found = find_installs(self.database.reader(), scope, name, days, self.day)
            shown = json.loads(found) if found else None
            assert shown == self.model.expected(path, days, self.day)
        for statement, expected in (
            (STORED_DAYS, self.model.by_day),
            (STORED_VERSIONS, self.model.by_version),
        ):
            rows = self.database.fetch(statement, {})
            assert {(path, key): count for path, key, count in rows} == {
                (path, key): count
                for path, installs in expected.items()
                for key, count in installs.items()
            }


def check_sequence(app: Flask, folder: Path, seed: int, steps: int) -> None:
    catalog = Catalog(app, folder, seed)
    for _ in range(steps):
        catalog.step()
        catalog.check()
    result = run(app, "check")
    assert (result.exit_code, result.stdout) == (0, "")
    app.extensions["database"].close()


@pytest.mark.parametrize("seed", range(8))
def test_totals_days_and_versions_are_those_of_the_model(
    app_with: Apps, tmp_path: Path, seed: int
) -> None:
    check_sequence(app_with(*map(with_versions, PATHS)), tmp_path, seed, 80)


@slow_if_emulated
def test_totals_days_and_versions_on_a_cluster_are_those_of_the_model(tmp_path: Path) -> None:
    require_rqlite()
    path = create_catalog(tmp_path / "catalog.db", *map(with_versions, PATHS))
    app = create_app(load_on_node(path, 0))
    with closing(app.extensions["database"]):
        check_sequence(app, tmp_path, 100, 80)


def test_the_newest_800_days_with_installs_stay(app_with: Apps) -> None:
    app = app_with(with_versions("acme/clock"), with_versions("acme/notes"))
    database = app.extensions["database"]
    assert count_install(database, "acme", "notes", FIRST_DAY, "1.0.0")
    # The clock was wrong once, years ahead.
    days = [*range(FIRST_DAY, FIRST_DAY + 900), FIRST_DAY + 5000, FIRST_DAY + 900]
    for day in days:
        assert count_install(database, "acme", "clock", day, "1.0.0")
    stored = {(path, day): count for path, day, count in database.fetch(STORED_DAYS, {})}
    newest = sorted(days)[-STORED_DAYS_LIMIT:]
    expected = [("acme/notes", FIRST_DAY), *(("acme/clock", day) for day in newest)]
    assert stored == dict.fromkeys(expected, 1)
    installs = find_installs(database.reader(), "acme", "clock", SHOWN_DAYS, FIRST_DAY + 900)
    assert installs
    shown = json.loads(installs)
    assert (shown["total"], len(shown["days"])) == (902, SHOWN_DAYS)
    assert shown["versions"] == [{"version": "1.0.0", "installs": 902}]


def test_unpack_keeps_the_days_of_widgets_that_the_pack_has(app_with: Apps, tmp_path: Path) -> None:
    app = app_with(with_versions("acme/clock"), with_versions("acme/notes"))
    database = app.extensions["database"]
    run(app, "delete", "acme/notes", "--yes")
    run(app, "pack", tmp_path / "catalog.pack")
    run(app, "import", "-", stdin=json.dumps(with_versions("acme/notes")))
    for name in ("clock", "notes", "clock"):
        assert count_install(database, "acme", name, FIRST_DAY, "1.0.0")
    assert run(app, "unpack", tmp_path / "catalog.pack", "--yes").exit_code == 0
    stored = [database.fetch(each, {}) for each in (STORED_DAYS, STORED_VERSIONS)]
    assert [[tuple(row) for row in rows] for rows in stored] == [
        [("acme/clock", FIRST_DAY, 2)],
        [("acme/clock", "1.0.0", 2)],
    ]
    assert run(app, "check").exit_code == 0


def shown(app: Flask) -> Any:
    found = find_installs(app.extensions["database"].reader(), "acme", "clock", 90, FIRST_DAY)
    assert found
    return json.loads(found)


def test_import_and_export_do_not_carry_days(app_with: Apps) -> None:
    app, other = app_with(with_versions("acme/clock")), app_with()
    count_install(app.extensions["database"], "acme", "clock", FIRST_DAY, "1.0.0")
    assert run(other, "import", "-", stdin=run(app, "export").stdout).exit_code == 0
    assert shown(other) == {"total": 1, "days": [], "versions": []}


def test_days_of_a_mirror_are_its_own(app_with: Apps, upstream: FakeUpstream) -> None:
    app = app_with()
    for count in (7, 100):
        # The next refresh changes the total, and keeps what was counted here.
        upstream.put(with_versions("acme/clock", downloadCount=count, createdAt=CREATED))
        assert run(app, "mirror", upstream.url).exit_code == 0
        count_install(app.extensions["database"], "acme", "clock", FIRST_DAY, "1.0.0")
    assert shown(app) == {
        "total": 102,
        "days": [{"day": to_date(FIRST_DAY).isoformat(), "installs": 2}],
        "versions": [{"version": "1.0.0", "installs": 2}],
    }
    assert run(app, "check").exit_code == 0
