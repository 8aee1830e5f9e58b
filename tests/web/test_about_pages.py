"""Pictures, readmes, links and origins of widgets on the pages."""

from collections.abc import Callable
from typing import Any

import pytest
from builders import described, document, png, version
from conftest import hold, put, run
from flask import Flask
from markup import elements
from mirrors import mirror_summary, serve

AppWith = Callable[..., Flask]
PICTURE = png(640, 360)
CLOCK = "/widgets/acme/clock"


def about(path: str, **said: Any) -> dict[str, Any]:
    return {**document(path, version()), "about": said}


def pictures(page: str) -> list[dict[str, str]]:
    """Return the attributes of the pictures on a page."""
    return [node.attributes for node in elements(page) if node.tag == "img"]


def outside_links(page: str) -> dict[str, str]:
    """Return the rel attribute of each link to another site."""
    links = [node.attributes for node in elements(page) if node.tag == "a"]
    return {each["href"]: each.get("rel", "") for each in links if "//" in each["href"]}


@pytest.mark.parametrize("path", ["/", "/widgets/acme"])
def test_cards_show_pictures_without_a_shift(app_with: AppWith, path: str) -> None:
    app = app_with(about("acme/clock", picture=described(PICTURE)), document("acme/notes"))
    client = app.test_client()
    # Without its file, all cards are as in a catalog without pictures.
    assert pictures(client.get(path).text) == []
    assert "pictured" not in client.get(path).text
    hold(app, PICTURE)
    page = client.get(path).text
    (image,) = pictures(page)
    with client.get(image["src"]) as response:
        assert response.data == PICTURE
    size = {"width": "640", "height": "360", "fetchpriority": "high", "alt": ""}
    assert size.items() <= image.items()
    classes = [node.attributes.get("class", "") for node in elements(page)]
    assert "cards pictured" in classes
    # The other one has its icon in the place of the picture.
    assert classes.count("picture widget-icon") == 1
    assert "widget-icon" not in classes


def test_pictures_after_the_first_row_load_lazily(app_with: AppWith) -> None:
    app = app_with(*(about(f"acme/w{n}", picture=described(PICTURE)) for n in range(6)))
    hold(app, PICTURE)
    images = pictures(app.test_client().get("/").text)
    assert [image.get("loading") for image in images] == [None] * 4 + ["lazy"] * 2


def test_widget_page_shows_picture_links_and_readme(app_with: AppWith) -> None:
    readme = (
        "# Clock\n\nA [manual](https://acme.example/manual)\nand ![a face](https://acme.example/x.png)."
        "\n\n### Hands\n\n<script>alert(1)</script>"
    )
    links = {key: f"https://acme.example/{key}" for key in ("homepage", "repository", "issues")}
    clock = about("acme/clock", readme=readme, picture=described(PICTURE), **links)
    app = app_with(clock, document("acme/notes"), PUBLIC_URL="https://widgets.example")
    hold(app, PICTURE)
    client = app.test_client()
    page = client.get(CLOCK).text
    (image,) = pictures(page)
    assert image["alt"] == "Screenshot of Clock"
    # It is not lazy, since it is on the first screen, and it links to the whole file.
    assert (image["fetchpriority"], "loading" in image) == ("high", False)
    assert f'<a class="screenshot" href="{image["src"]}">' in page
    assert f'<meta property="og:image" content="https://widgets.example{image["src"]}">' in page
    assert image["src"].startswith("/api/v1/widgets/acme/clock/picture?sha256=")
    outside = outside_links(page)
    expected = {*links.values(), "https://acme.example/manual", "https://acme.example/x.png"}
    assert {url for url, rel in outside.items() if rel == "nofollow noopener"} == expected
    assert '<h3 dir="auto">Clock</h3>' in page
    assert '<h4 dir="auto">Hands</h4>' in page
    assert "&lt;script&gt;alert(1)" in page
    assert "manual</a>\nand" in page
    other = client.get("/widgets/acme/notes").text
    assert pictures(other) == []
    assert "og:image" not in other
    assert "Readme" not in other


def test_hostile_links_cannot_leave_their_attribute(app_with: AppWith) -> None:
    url = 'https://acme.example/"><script>alert(1)</script>'
    page = app_with(about("acme/clock", homepage=url)).test_client().get(CLOCK).text
    assert "<script>alert" not in page
    assert url in outside_links(page)


def test_scope_page_names_the_homepage_that_its_widgets_share(app_with: AppWith) -> None:
    shared = "https://acme.example/"
    app = app_with(
        about("acme/clock", homepage=shared),
        about("acme/tide", homepage=shared),
        document("acme/x"),
    )
    client = app.test_client()
    assert outside_links(client.get("/widgets/acme").text) == {shared: "nofollow noopener"}
    put(app, about("acme/tide", homepage="https://tide.example/"))
    assert outside_links(client.get("/widgets/acme").text) == {}


def test_a_copy_says_from_where_it_is(app_with: AppWith, mirror_app: Flask) -> None:
    with serve(app_with(document("acme/clock", version()))) as upstream:
        mirror_summary(mirror_app, upstream.url)
        page = mirror_app.test_client().get(CLOCK).text
        assert f"<dt>Copied from</dt> <dd>{upstream.url}, refreshed just now</dd>" in page
        shown = run(mirror_app, "show", "acme/clock").output
        assert f"  copied from: {upstream.url}, refreshed just now\n" in shown
        assert "Copied from" not in upstream.app.test_client().get(CLOCK).text
