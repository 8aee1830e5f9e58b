"""POST …/{version} counts an install of a version; GET …/installs has them by day and version."""

import time
from collections.abc import Callable
from datetime import date

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from flask.testing import FlaskClient

from catalog.store.connection.sqlite import today
from catalog.store.write.installs import count_install

Apps = Callable[..., Flask]

CLOCK = "/api/v1/widgets/acme/clock"
INSTALLS = f"{CLOCK}/installs"


# The order of publication is not that of the numbers, and one of them is yanked.
VERSIONS = [
    version(number, publishedAt=f"2025-01-0{day}T00:00:00.000Z", yanked=number == "1.0.0")
    for number, day in {"1.0.0": 3, "1.1.0-rc.1+5": 2, "1.1.0": 1}.items()
]


@pytest.fixture
def app(app_with: Apps) -> Flask:
    return app_with(document("acme/clock", *VERSIONS, downloadCount=100), document("acme/notes"))


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def count_days_ago(app: Flask, *days: int) -> None:
    for ago in days:
        assert count_install(app.extensions["database"], "acme", "clock", today() - ago)


def test_widget_without_installs_has_no_days_and_no_versions(client: FlaskClient) -> None:
    assert client.get(INSTALLS).json == {"total": 100, "days": [], "versions": []}
    unknown = client.get("/api/v1/widgets/acme/notes/installs")
    assert unknown.json == {"total": 0, "days": [], "versions": []}


def test_install_of_a_version_counts_for_the_widget_the_day_and_the_version(
    client: FlaskClient,
) -> None:
    paths = [f"{CLOCK}/1.1.0", f"{CLOCK}/1.0.0", f"{CLOCK}/1.0.0", CLOCK]
    for path in [*paths, f"{CLOCK}/1.1.0-rc.1+5"]:
        response = client.post(path)
        assert (response.status_code, response.data) == (200, b'{"success":true}\n')
    assert client.get(CLOCK).json["widget"]["downloadCount"] == 105
    shown = client.get(INSTALLS).json
    assert (shown["total"], [each["installs"] for each in shown["days"]]) == (105, [5])
    assert shown["versions"] == [
        {"version": "1.0.0", "installs": 2},
        {"version": "1.1.0-rc.1+5", "installs": 1},
        {"version": "1.1.0", "installs": 1},
    ]


@pytest.mark.parametrize(
    "path", ["acme/clock/9.9.9", "acme/clock/latest", "acme/clock/1.1.0+5", "acme/notes/1.0.0"]
)
def test_install_of_a_missing_version_is_404_and_counts_nothing(
    client: FlaskClient, path: str
) -> None:
    response = client.post(f"/api/v1/widgets/{path}")
    message = "There is no version '{}@{}'.".format(*path.rsplit("/", 1))
    assert (response.status_code, response.json) == (404, {"error": message})
    assert client.get(INSTALLS).json == {"total": 100, "days": [], "versions": []}


def test_unlisted_widget_is_counted_and_does_not_tell_its_versions(
    app: Flask, client: FlaskClient
) -> None:
    run(app, "unlist", "acme/clock")
    assert client.post(CLOCK).status_code == 200
    assert client.get(INSTALLS).status_code == 404
    for number in ("1.0.0", "9.9.9"):
        response = client.post(f"{CLOCK}/{number}")
        message = f"There is no version 'acme/clock@{number}'."
        assert (response.status_code, response.json) == (404, {"error": message})
    run(app, "relist", "acme/clock")
    shown = client.get(INSTALLS).json
    assert (shown["total"], shown["versions"]) == (101, [])


def test_day_of_a_wrong_clock_is_not_shown_and_leaves_the_others(
    app: Flask, client: FlaskClient
) -> None:
    # None of them is at the end of the range, where midnight would matter.
    count_days_ago(app, 390, 5, -1000, -2000, 4)
    days = client.get(f"{INSTALLS}?days=400").json["days"]
    assert [each["installs"] for each in days] == [1, 1, 1]
    assert client.get(CLOCK).json["widget"]["downloadCount"] == 105


def test_the_next_response_shows_an_install_beyond_the_limit_of_the_count(app_with: Apps) -> None:
    limit = 2**53 - 1
    client = app_with(document("acme/clock", downloadCount=limit)).test_client()
    assert client.get(INSTALLS).json["days"] == []
    for count in (1, 2):
        assert client.post(CLOCK).status_code == 200
        shown = client.get(INSTALLS).json
        assert (shown["total"], [each["installs"] for each in shown["days"]]) == (limit, [count])


def test_read_of_many_days_and_versions_is_bounded(app_with: Apps) -> None:
    versions = [version(f"1.0.{number}") for number in range(20)]
    app = app_with(document("acme/clock", *versions))
    database = app.extensions["database"]
    for ago in range(40):
        for each in versions:
            assert count_install(database, "acme", "clock", today() - ago, each["version"])
    rows = [
        database.fetch(f"SELECT count(*) FROM {table}", {})[0][0]
        for table in ("install_day", "install_version")
    ]
    assert rows == [40, 20]
    shown = app.test_client().get(INSTALLS).json
    assert [each["installs"] for each in shown["days"]] == [20] * 40
    assert [each["installs"] for each in shown["versions"]] == [40] * 20


@pytest.mark.parametrize(
    ("query", "days_ago"),
    [
        ("", [60, 25, 5]),
        ("?days=", [60, 25, 5]),
        ("?days=30", [25, 5]),
        ("?days=9007199254740991", [300, 60, 25, 5]),
    ],
)
def test_days_limits_the_days_and_not_the_versions(
    app: Flask, client: FlaskClient, query: str, days_ago: list[int]
) -> None:
    # None of them is at the end of a range, where midnight would matter.
    count_days_ago(app, 5, 5, 25, 60, 300, 450)
    count_install(app.extensions["database"], "acme", "clock", today() - 450, "1.0.0")
    shown = client.get(INSTALLS + query).json
    days = [date.fromisoformat(each["day"]) for each in shown["days"]]
    assert [(days[-1] - day).days + 5 for day in days] == days_ago
    assert [each["installs"] for each in shown["days"]] == [1] * (len(days) - 1) + [2]
    assert (shown["total"], shown["versions"]) == (107, [{"version": "1.0.0", "installs": 1}])


def test_days_begin_with_the_first_of_so_many_and_end_today(
    app: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No midnight is between the installs and the request.
    seconds = time.time()
    monkeypatch.setattr("time.time", lambda: seconds)
    count_days_ago(app, 0, 29, 30)
    shown = client.get(f"{INSTALLS}?days=30").json["days"]
    first, last = (date.fromisoformat(each["day"]) for each in shown)
    assert (last - first).days == 29


@pytest.mark.parametrize("days", ["0", "x", "1.5", "９", "9007199254740992"])
def test_invalid_days_are_400(client: FlaskClient, days: str) -> None:
    response = client.get(INSTALLS, query_string={"days": days})
    assert (response.status_code, response.json) == (
        400,
        {"error": f"days must be a whole number from 1 to 9007199254740991, not {days!r}."},
    )


def test_next_response_shows_the_install_and_has_another_etag(client: FlaskClient) -> None:
    headers = {"If-None-Match": client.get(INSTALLS).headers["ETag"]}
    client.post("/api/v1/widgets/acme/notes")
    assert client.get(INSTALLS, headers=headers).status_code == 304
    client.post(CLOCK)
    after = client.get(INSTALLS, headers=headers)
    assert (after.status_code, after.json["total"]) == (200, 101)


def test_cached_response_ends_with_its_day(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post(CLOCK)
    assert len(client.get(f"{INSTALLS}?days=1").json["days"]) == 1
    seconds = (today() + 2) * 86_400
    monkeypatch.setattr("time.time", lambda: seconds)
    assert client.get(f"{INSTALLS}?days=1").json["days"] == []
