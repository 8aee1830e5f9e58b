"""The page of a scope: its widgets, totals, registry and feed."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

ClientWith = Callable[..., FlaskClient]


def test_scope_has_its_widgets_and_totals(client_with: ClientWith) -> None:
    client = client_with(
        document("ac me/clock", version("1.0.0"), version("1.1.0"), downloadCount=1200),
        document("ac me/bell", displayName="Bell", downloadCount=None),
        document("ac me/hidden", version(), downloadCount=5000, listed=False, displayName="Secret"),
        document("other/clock", version(), downloadCount=7),
    )
    page = assert_page(client.get("/widgets/ac%20me"), 200)
    assert element(page, "title").text == "\u2068ac me\u2069 - Widget Catalog"
    numbers, history = elements(page, class_="totals")
    assert numbers.text == "2 widgets, 2 versions, 1,200 installs"
    assert history.text.startswith("Publishing here since 2 Jan 2025, last release ")
    assert history.text.endswith(" ago. None of its widgets is official.")
    assert "Secret" not in page
    links = {link.text: link.attributes["href"] for link in elements(page, "a")}
    assert (links["Clock"], links["Bell"]) == ("/widgets/ac%20me/clock", "/widgets/ac%20me/bell")
    for text in ("registry.json", "New releases (Atom)", "Search in this scope"):
        assert client.get(links[text]).status_code == 200
    feeds = elements(page, "link", type="application/atom+xml")
    assert feeds[-1].attributes["href"] == "/feed.atom?scope=ac+me"


@pytest.mark.parametrize(
    ("official", "text"),
    [
        (
            [True, True],
            "All of its widgets are official: maintained by the operator of this catalog.",
        ),
        ([True, None], "1 of them is official: maintained by the operator of this catalog."),
        ([False, None], "None of its widgets is official."),
    ],
)
def test_scope_says_whether_it_is_official(
    client_with: ClientWith, official: list[bool | None], text: str
) -> None:
    widgets = [document(f"acme/w{n}", isOfficial=each) for n, each in enumerate(official)]
    page = client_with(*widgets).get("/widgets/acme").text
    assert elements(page, class_="totals")[1].text.endswith(text)


def test_scope_honours_the_sdk(demo: FlaskClient) -> None:
    page = demo.get("/widgets/acme?compatSdk=1.4").text
    compatible = [line.text for line in elements(page, "p", class_="compatibility")]
    assert compatible[0] == "2.6.0 runs on SDK 1.4.0"
    assert len(compatible) == 7
    assert "/widgets/acme/weather?compatSdk=1.4.0" in cards(page)


@pytest.mark.parametrize("scope", ["none", "hidden", "%00", "acme%2Fclock"])
def test_scope_without_a_listed_widget_is_404(client_with: ClientWith, scope: str) -> None:
    client = client_with(document("hidden/clock", version(), listed=False))
    assert_page(client.get(f"/widgets/{scope}"), 404)


def test_widgets_of_a_scope_are_paged(client_with: ClientWith) -> None:
    client = client_with(*(document(f"acme/w{n:02}") for n in range(30)))
    pages = [client.get(f"/widgets/acme?page={number}").text for number in (1, 2)]
    names = [[heading.text for heading in elements(page, "h2")] for page in pages]
    assert [len(each) for each in names] == [20, 10]
    assert len({*names[0], *names[1]}) == 30
    pager = elements(pages[0], "a", **{"aria-label": "Page 2"})
    assert [link.attributes["href"] for link in pager] == ["/widgets/acme?page=2"]
    assert "There is no page 3" in client.get("/widgets/acme?page=3").text
    invalid = assert_page(client.get("/widgets/acme?page=x"), 400)
    assert element(invalid, id="page-error").text == "x: There is no such page."
    assert len(elements(invalid, "h2")) == 20
