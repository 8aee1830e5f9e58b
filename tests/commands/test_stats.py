"""The command stats, and the installs that show prints."""

import json
import time
from collections.abc import Callable

import pytest
from builders import document, version
from conftest import run
from flask import Flask

from catalog.store.connection.sqlite import today

AppWith = Callable[..., Flask]


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """A catalog with installs some days ago; none is at the end of a week."""
    counted = {
        "bell": [2, 9, 9, 9, 9, 100],
        "clock": [3, 3, 3, 10],
        "notes": [40],
        "radar": [2, 4, 10, 10],
    }
    app = app_with(*(document(f"acme/{name}", version()) for name in counted))
    for name, days in counted.items():
        for ago in days:
            assert app.extensions["database"].count_install("acme", name, today() - ago, "1.0.0")
    run(app, "unlist", "acme/bell")
    return app


def test_largest_change_is_first(app: Flask) -> None:
    result = run(app, "stats")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "WIDGET      INSTALLS  BEFORE  CHANGE",
        "acme/bell   1         4       -3",
        "acme/clock  3         1       +2",
        "acme/radar  2         2       +0",
    ]
    assert result.stderr == "6 installs in the last 7 days, 7 in the 7 days before.\n"


def test_a_day_belongs_to_one_of_the_two_weeks_or_to_none(
    app_with: AppWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No midnight is between the installs and the command.
    seconds = time.time()
    monkeypatch.setattr("time.time", lambda: seconds)
    app = app_with(document("acme/clock", version()))
    # So many days ago, and so many installs.
    for ago, installs in {0: 1, 6: 2, 7: 4, 13: 8, 14: 16}.items():
        for _ in range(installs):
            assert app.extensions["database"].count_install("acme", "clock", today() - ago)
    (shown,) = json.loads(run(app, "stats", "--json").stdout)
    assert (shown["recent"], shown["before"]) == (1 + 2, 4 + 8)


def test_days_and_limit(app: Flask) -> None:
    result = run(app, "stats", "--days", "30", "--limit", "1")
    assert result.stdout == "WIDGET     INSTALLS  BEFORE  CHANGE\nacme/bell  5         0       +5\n"
    assert result.stderr == "13 installs in the last 30 days, 1 in the 30 days before.\n"


def test_json(app: Flask) -> None:
    shown = json.loads(run(app, "stats", "--json", "--limit", "1").stdout)
    assert shown == [{"scope": "acme", "name": "bell", "recent": 1, "before": 4, "change": -3}]


def test_catalog_without_installs_has_no_table(app_with: AppWith) -> None:
    result = run(app_with(document()), "stats", "--days", "1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "0 installs in the last 1 day, 0 in the 1 day before.\n"


@pytest.mark.parametrize("days", ["0", "201", "x"])
def test_invalid_days_are_wrong_usage(app: Flask, days: str) -> None:
    assert run(app, "stats", "--days", days).exit_code == 2


def test_show_prints_the_last_days_and_the_versions(app: Flask) -> None:
    lines = run(app, "show", "acme/bell").stdout.splitlines()
    assert "  installs:    6, 1 in the last 7 days" in lines
    assert [line.split()[2] for line in lines[-2:]] == ["INSTALLS", "6"]
    assert "  installs:    6" in run(app, "show", "acme/bell@1.0.0").stdout.splitlines()
    assert "6, " not in run(app, "show", "acme/bell", "--json").stdout


def test_day_of_a_wrong_clock_is_not_compared(app: Flask) -> None:
    before = run(app, "stats", "--json").stdout
    assert app.extensions["database"].count_install("acme", "clock", today() + 1000)
    assert run(app, "stats", "--json").stdout == before
