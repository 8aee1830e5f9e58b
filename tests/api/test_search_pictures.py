"""include=picture: the picture of each widget in search results."""

import hashlib
from collections.abc import Callable

import pytest
from builders import described, document, png, version
from conftest import hold, put
from flask import Flask
from flask.testing import FlaskClient

SEARCH = "/api/v1/widgets/search?include=picture"
URL = "https://widgets.example/base"
AppWith = Callable[..., Flask]


def pictured(path: str, picture: bytes, **fields: object) -> dict[str, object]:
    return {
        **document(path, version(), **fields),
        "about": {"readme": "# R", "picture": described(picture)},
    }


def picture_url(path: str, picture: bytes) -> str:
    sha256 = hashlib.sha256(picture).hexdigest()
    return f"{URL}/api/v1/widgets/{path}/picture?sha256={sha256}"


def test_each_result_has_its_picture_or_null_as_the_last_key(app_with: AppWith) -> None:
    small, large = png(4, 3), png(640, 360)
    app = app_with(
        pictured("acme/clock", small, downloadCount=3),
        document("acme/plain", version(), downloadCount=2),
        {**document("acme/readme"), "about": {"readme": "# R"}},
        pictured("acmé/météo 1", large),
        PUBLIC_URL=URL,
    )
    hold(app, small, large)
    plain = app.test_client().get("/api/v1/widgets/search").json["widgets"]
    for sdk in ("", "&compatSdk=1.0.0", "&q=e"):
        found = app.test_client().get(SEARCH + sdk).json["widgets"]
        assert {list(each)[-1] for each in found} == {"picture"}
        pictures = {each["name"]: each["picture"] for each in found}
        if not sdk:
            assert [{**each, "picture": pictures[each["name"]]} for each in plain] == found
        expected = {
            "clock": {"url": picture_url("acme/clock", small), "width": 4, "height": 3},
            "plain": None,
            "readme": None,
            "météo 1": {
                "url": picture_url("acm%C3%A9/m%C3%A9t%C3%A9o%201", large),
                "width": 640,
                "height": 360,
            },
        }
        assert pictures == {name: expected[name] for name in pictures}
    assert len(pictures) >= 2


def test_url_is_that_of_about_and_gives_the_picture(app_with: AppWith) -> None:
    picture = png(4, 3)
    app = app_with(pictured("a@b/c!d", picture))
    hold(app, picture)
    client = app.test_client()
    url = client.get(SEARCH).json["widgets"][0]["picture"]["url"]
    assert client.get("/api/v1/widgets/a@b/c!d/about").json["picture"]["url"] == url
    with client.get(url.removeprefix("http://localhost")) as response:
        assert (response.status_code, response.mimetype) == (200, "image/png")


def test_picture_whose_file_arrives_later_is_shown_at_once(app_with: AppWith) -> None:
    picture = png(4, 3)
    app = app_with(pictured("acme/clock", picture))
    client = app.test_client()
    first = client.get(SEARCH)
    assert first.json["widgets"][0]["picture"] is None
    known = {"If-None-Match": first.headers["ETag"]}
    assert client.get(SEARCH, headers=known).status_code == 304
    app.extensions["bundles"].path(described(picture)["sha256Hash"]).parent.mkdir(exist_ok=True)
    app.extensions["bundles"].path(described(picture)["sha256Hash"]).write_bytes(picture)
    assert client.get(SEARCH, headers=known).json["widgets"][0]["picture"]["width"] == 4


def test_new_picture_ends_a_cached_response(app_with: AppWith) -> None:
    old, new = png(4, 3), png(8, 6)
    app = app_with(pictured("acme/clock", old))
    hold(app, old, new)
    client: FlaskClient = app.test_client()
    first = client.get(SEARCH)
    put(app, pictured("acme/clock", new))
    again = client.get(SEARCH, headers={"If-None-Match": first.headers["ETag"]})
    assert again.json["widgets"][0]["picture"]["width"] == 8


def test_page_without_results_has_no_pictures(app_with: AppWith) -> None:
    response = app_with().test_client().get(SEARCH)
    assert response.json == {"widgets": [], "total": 0, "page": 1, "limit": 20}


@pytest.mark.parametrize("value", ["pictures", "Picture", "readme", "picture,readme"])
def test_another_value_is_400(app_with: AppWith, value: str) -> None:
    response = (
        app_with().test_client().get("/api/v1/widgets/search", query_string={"include": value})
    )
    message = f"include must be picture, not '{value}'."
    assert (response.status_code, response.json) == (400, {"error": message})
    assert app_with().test_client().get("/api/v1/widgets/search?include=").status_code == 200
