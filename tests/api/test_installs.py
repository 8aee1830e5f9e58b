"""POST …/{version} counts an install of a version; GET …/installs has them by day and version."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from flask.testing import FlaskClient

from catalog.store.connection.sqlite import today

Apps = Callable[..., Flask]

CLOCK = "/api/v1/widgets/acme/clock"
INSTALLS = f"{CLOCK}/installs"


def versions() -> list[dict[str, Any]]:
    """Return versions whose order of publication is not that of their numbers."""
    days = {"1.0.0": 3, "1.1.0-rc.1+5": 2, "1.1.0": 1}
    return [
        version(number, publishedAt=f"2025-01-0{day}T00:00:00.000Z") for number, day in days.items()
    ]


@pytest.fixture
def app(app_with: Apps) -> Flask:
    return app_with(document("acme/clock", *versions(), downloadCount=100), document("acme/notes"))


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def count_days_ago(app: Flask, *days: int) -> None:
    for ago in days:
        assert app.extensions["database"].count_install("acme", "clock", today() - ago)


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


def test_keys_are_in_the_documented_order(client: FlaskClient) -> None:
    client.post(f"{CLOCK}/1.0.0")
    shown = client.get(INSTALLS).json
    assert list(shown) == ["total", "days", "versions"]
    assert list(shown["days"][0]) == ["day", "installs"]
    assert list(shown["versions"][0]) == ["version", "installs"]


@pytest.mark.parametrize("number", ["9.9.9", "1.0", "latest", "1.0.0%20", "%00", "%FF", "1.1.0+5"])
def test_install_of_a_missing_version_is_404_and_counts_nothing(
    client: FlaskClient, number: str
) -> None:
    response = client.post(f"{CLOCK}/{number}")
    assert (response.status_code, list(response.json)) == (404, ["error"])
    assert client.get(INSTALLS).json == {"total": 100, "days": [], "versions": []}


def test_message_names_the_missing_version(client: FlaskClient) -> None:
    for path in ("acme/clock/9.9.9", "acme/none/9.9.9"):
        name = "@".join(path.rsplit("/", 1))
        error = client.post(f"/api/v1/widgets/{path}").json["error"]
        assert error == f"There is no version '{name}'."


def test_version_of_another_widget_is_404(client: FlaskClient) -> None:
    assert client.post("/api/v1/widgets/acme/notes/1.0.0").status_code == 404


def test_install_of_a_yanked_version_is_counted(app: Flask, client: FlaskClient) -> None:
    run(app, "yank", "acme/clock@1.0.0")
    assert client.post(f"{CLOCK}/1.0.0").status_code == 200
    assert client.get(INSTALLS).json["versions"] == [{"version": "1.0.0", "installs": 1}]


def test_unlisted_widget_is_counted_and_not_shown(app: Flask, client: FlaskClient) -> None:
    run(app, "unlist", "acme/clock")
    assert client.post(f"{CLOCK}/1.0.0").status_code == 200
    response = client.get(INSTALLS)
    assert (response.status_code, response.json) == (
        404,
        {"error": "There is no widget 'acme/clock'."},
    )
    run(app, "relist", "acme/clock")
    assert client.get(INSTALLS).json["total"] == 101


def test_days_are_oldest_first_and_without_gaps_of_zero(app: Flask, client: FlaskClient) -> None:
    count_days_ago(app, 5, 40, 5)
    shown = client.get(INSTALLS).json["days"]
    assert [each["installs"] for each in shown] == [1, 2]
    first, second = (date.fromisoformat(each["day"]) for each in shown)
    assert second - first == timedelta(days=35)


@pytest.mark.parametrize(
    ("query", "installs"),
    [
        ("", [1, 1, 2]),
        ("?days=", [1, 1, 2]),
        ("?days=30", [1, 2]),
        ("?days=0010", [2]),
        ("?days=400", [1, 1, 1, 2]),
        ("?days=9007199254740991", [1, 1, 1, 2]),
        ("?days=30&day=x&limit=0", [1, 2]),
    ],
)
def test_days_limits_the_days_and_not_the_versions(
    app: Flask, client: FlaskClient, query: str, installs: list[int]
) -> None:
    # None of them is at the end of a range, where midnight would matter.
    count_days_ago(app, 5, 5, 25, 60, 300, 450)
    app.extensions["database"].count_install("acme", "clock", today() - 450, "1.0.0")
    shown = client.get(INSTALLS + query).json
    assert [each["installs"] for each in shown["days"]] == installs
    assert (shown["total"], shown["versions"]) == (107, [{"version": "1.0.0", "installs": 1}])


@pytest.mark.parametrize("days", ["0", "-1", "x", "1.5", "1e3", "９", " 7", "9007199254740992"])
def test_invalid_days_are_400(client: FlaskClient, days: str) -> None:
    response = client.get(INSTALLS, query_string={"days": days})
    assert (response.status_code, response.json) == (
        400,
        {"error": f"days must be a whole number from 1 to 9007199254740991, not {days!r}."},
    )


def test_next_response_shows_the_install_and_an_etag_of_its_own(client: FlaskClient) -> None:
    before = client.get(INSTALLS)
    assert (
        client.get(INSTALLS, headers={"If-None-Match": before.headers["ETag"]}).status_code == 304
    )
    client.post("/api/v1/widgets/acme/notes")
    assert client.get(INSTALLS).headers["ETag"] == before.headers["ETag"]
    client.post(CLOCK)
    after = client.get(INSTALLS, headers={"If-None-Match": before.headers["ETag"]})
    assert (after.status_code, after.json["total"]) == (200, 101)


def test_cached_response_ends_with_its_day(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post(CLOCK)
    assert len(client.get(f"{INSTALLS}?days=1").json["days"]) == 1
    seconds = (today() + 2) * 86_400
    monkeypatch.setattr("time.time", lambda: seconds)
    assert client.get(f"{INSTALLS}?days=1").json["days"] == []


def test_deleted_version_is_not_listed_and_its_day_stays(app: Flask, client: FlaskClient) -> None:
    client.post(f"{CLOCK}/1.0.0")
    run(app, "delete", "acme/clock@1.0.0", "--yes")
    shown = client.get(INSTALLS).json
    assert (shown["total"], len(shown["days"]), shown["versions"]) == (101, 1, [])
