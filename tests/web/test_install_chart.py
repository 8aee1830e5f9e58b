"""The installs on the page of a widget: the text, the chart with its table, the shares."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document, version
from conftest import run_line
from flask import Flask
from markup import assert_page, element, elements

from app import create_app
from catalog.files.jsonl import read_demo
from catalog.store.bundles.bundles import Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import today
from catalog.store.write.demo import create_demo
from catalog.store.write.installs import count_install

AppWith = Callable[..., Flask]
PAGE = "/widgets/acme/clock"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(
        document("acme/clock", *map(version, ("1.0.0", "1.1.0", "2.0.0")), downloadCount=1230)
    )


def count(app: Flask, *days: int, number: str = "") -> None:
    """Count an install for each of the numbers of days ago."""
    for ago in days:
        assert count_install(app.extensions["database"], "acme", "clock", today() - ago, number)


def show(app: Flask) -> str:
    return assert_page(app.test_client().get(PAGE), 200)


def test_widget_without_days_has_a_text_and_no_chart(app: Flask) -> None:
    page = show(app)
    assert element(page, class_="installs").text == "Installs 1,230 installs, 0 in the last 7 days"
    assert elements(page, class_="with-installs") == []


def test_one_install_is_in_the_singular(app_with: AppWith) -> None:
    page = show(app_with(document("acme/clock", downloadCount=1)))
    assert element(page, class_="installs").text == "Installs 1 install, 0 in the last 7 days"


def test_widget_with_an_unknown_count_has_no_installs(app_with: AppWith) -> None:
    assert elements(show(app_with(document("acme/clock"))), class_="installs") == []


def test_weeks_are_in_the_chart_and_in_its_table(app: Flask) -> None:
    # Not at the end of a week, where midnight would matter, and one before the 12 weeks.
    count(app, 3, 3, 3, 10, 80, 200)
    page = show(app)
    assert "1,236 installs, 3 in the last 7 days" in element(page, class_="installs").text
    cells = [cell.text for cell in elements(page, "td")]
    assert cells == ["1", *["0"] * 9, "1", "3"]
    (chart,) = (each for each in elements(page, "svg", role="img") if "weeks" in str(each))
    label = "Installs in each of the last 12 weeks, at most 3"
    assert chart.attributes["aria-label"] == label
    titles = [each.text for each in elements(page, "title") if " to " in each.text]
    assert [title.split(": ")[1] for title in titles] == [
        *("1 install", *["0 installs"] * 9, "1 install", "3 installs"),
    ]
    rows = [each.text for each in elements(page, "th", scope="row")]
    assert rows == [title.split(": ")[0] for title in titles]


def test_a_day_belongs_to_one_week_or_to_none(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    # No midnight is between the installs and the page.
    seconds = time.time()
    monkeypatch.setattr("time.time", lambda: seconds)
    # So many installs for each number of days ago.
    for ago, installs in {0: 1, 6: 2, 7: 4, 13: 8, 83: 16, 84: 32}.items():
        count(app, *[ago] * installs)
    cells = [cell.text for cell in elements(show(app), "td")]
    assert cells == ["16", *["0"] * 9, "12", "3"]


@pytest.mark.parametrize(
    ("last", "before", "trend"),
    [
        (11, 10, "▲ 10% from the previous week"),
        (1, 4, "▼ 75% from the previous week"),
        (3, 3, "unchanged from the previous week"),
        (0, 2, "▼ 100% from the previous week"),
        (3, 0, ""),
    ],
)
def test_last_week_is_compared_with_the_one_before(
    app: Flask, last: int, before: int, trend: str
) -> None:
    count(app, *[3] * last, *[10] * before, 17)
    page = show(app)
    assert f"{last} in the last 7 days {trend}".strip() in element(page, class_="installs").text
    assert [each.text for each in elements(page, class_="trend")] == [trend] * bool(trend)


def test_demo_catalog_has_installs_of_the_weeks_up_to_a_day(tmp_path: Path) -> None:
    databases = []
    for name in ("one.db", "two.db"):
        database = Database(tmp_path / name)
        create_demo(database, Bundles(tmp_path / f"{name}-bundles"), read_demo(), today())
        databases.append(database.path)
    app = create_app({"DATABASE": databases[0]})
    client, path = app.test_client(), "/api/v1/widgets/acme/weather/installs"
    installs = client.get(path).json
    assert installs == create_app({"DATABASE": databases[1]}).test_client().get(path).json
    assert (installs["total"], len(installs["days"])) == (301_482, 84)
    assert [each["version"] for each in installs["versions"]] == ["3.1.0", "3.0.0"]
    assert 0 < sum(each["installs"] for each in installs["days"]) < 301_482
    page = assert_page(client.get("/widgets/acme/weather"), 200)
    assert "the previous week" in element(page, class_="trend").text
    # A widget without a counter has none.
    assert client.get("/api/v1/widgets/ops/log-tail/installs").json["days"] == []
    assert run_line(app, "check").exit_code == 0


def test_table_of_versions_has_the_share_of_each(app: Flask) -> None:
    count(app, *[3] * 2, 500, number="1.0.0")
    count(app, 3, number="2.0.0")
    count(app, 3, 3, 3)
    shares = [each.text for each in elements(show(app), class_="share")]
    assert shares == ["25% of installs", "75% of installs"]
    assert "Based on the 4 installs that reported a version." in show(app)


def test_small_share_is_under_one_percent(app: Flask) -> None:
    count(app, *[3] * 250, number="1.0.0")
    count(app, 3, number="2.0.0")
    shares = [each.text for each in elements(show(app), class_="share")]
    assert shares == ["under 1% of installs", "100% of installs"]


def test_feed_and_search_do_not_depend_on_days(app: Flask) -> None:
    paths = ["/feed.atom", "/api/v1/widgets/search?compatSdk=1.4.0"]
    before = [app.test_client().get(path).text for path in paths]
    count(app, 3, number="1.0.0")
    after = [app.test_client().get(path).text for path in paths]
    assert [text.replace("1231", "1230") for text in after] == before
