"""The 404 page searches for what the path asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, cards, element

from app import create_app

ClientWith = Callable[..., FlaskClient]


@pytest.mark.parametrize(
    ("path", "words", "first"),
    [
        ("/widgets/acme/wether", "wether", "/widgets/acme/weather"),
        ("/widgets/acmee/weather", "weather", "/widgets/acme/weather"),
        ("/widgets/acme/weather/9.9.9/x", "weather", "/widgets/acme/weather"),
        ("/weather.html", "weather", "/widgets/acme/weather"),
        ("/rain_radar", "rain radar", "/widgets/community/rain-radar"),
        ("/widgets/clok", "clok", "/widgets/acme/clock"),
    ],
)
def test_nearest_widget_is_suggested(demo: FlaskClient, path: str, words: str, first: str) -> None:
    page = assert_page(demo.get(path), 404)
    assert cards(page)[0] == first
    assert element(page, "input", name="q").attributes["value"] == words


def test_widget_of_the_same_scope_comes_first(client_with: ClientWith) -> None:
    client = client_with(
        document("other/clocks", version(), downloadCount=9), document("acme/clocky", version())
    )
    assert cards(client.get("/widgets/acme/clock").text) == [
        "/widgets/acme/clocky",
        "/widgets/other/clocks",
    ]


def test_unlisted_widget_is_not_suggested(client_with: ClientWith) -> None:
    client = client_with(document("acme/secret", version(), listed=False))
    for path in ("/widgets/acme/secret", "/secret", "/secre"):
        assert cards(assert_page(client.get(path), 404)) == []


@pytest.mark.parametrize(
    "path", ["/xyzzyx", "/%00", "/%F0%9F%98%80", "/" + "a" * 5000, "/nothing/here"]
)
def test_page_without_a_similar_name_suggests_nothing(demo: FlaskClient, path: str) -> None:
    assert cards(assert_page(demo.get(path), 404)) == []


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/weather"), ("PUT", "/weather"), ("GET", "/static/weather")]
)
def test_nothing_is_searched_for_a_client_that_shows_no_page(
    demo: FlaskClient, method: str, path: str
) -> None:
    assert cards(assert_page(demo.open(path, method=method), 404)) == []


def test_missing_database_is_no_hindrance(tmp_path: Path) -> None:
    client = create_app({"DATABASE": tmp_path / "none.db"}).test_client()
    assert cards(assert_page(client.get("/weather"), 404)) == []
