"""The page of a scope: its widgets, totals, registry and feed."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

ClientWith = Callable[..., FlaskClient]


def test_scope_has_its_widgets_and_totals(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/clock", version("1.0.0"), version("1.1.0"), downloadCount=1200),
        document("acme/bell", displayName="Bell", downloadCount=None),
        document("acme/hidden", version(), downloadCount=5000, listed=False, displayName="Secret"),
        document("other/clock", version(), downloadCount=7),
    )
    page = assert_page(client.get("/widgets/acme"), 200)
    assert element(page, "title").text == "\u2068acme\u2069 - Widget Catalog"
    assert element(page, class_="totals").text == "2 widgets, 2 versions, 1,200 installs"
    assert cards(page) == ["/widgets/acme/clock", "/widgets/acme/bell"]
    rows = page[page.index('<ul class="rows">') :].partition("</ul>")[0] + "</ul>"
    assert [row.text for row in elements(rows, "li")] == [
        "C Clock 1.1.0, 2 Jan 2025 1.2k installs",
        "B Bell Nothing to install",
    ]
    assert "Secret" not in page


@pytest.mark.parametrize("scope", ["none", "hidden", "%00", "acme%2Fclock"])
def test_scope_without_a_listed_widget_is_404(client_with: ClientWith, scope: str) -> None:
    client = client_with(document("hidden/clock", version(), listed=False))
    assert_page(client.get(f"/widgets/{scope}"), 404)


def test_widgets_of_a_scope_are_paged(client_with: ClientWith) -> None:
    client = client_with(*(document(f"acme/w{n:02}") for n in range(30)))
    pages = [client.get(f"/widgets/acme?page={number}").text for number in (1, 2)]
    names = [[heading.text for heading in elements(page, "h3")] for page in pages]
    assert [len(each) for each in names] == [24, 6]
    assert len({*names[0], *names[1]}) == 30
    pager = elements(pages[0], "a", **{"aria-label": "Page 2"})
    assert [link.attributes["href"] for link in pager] == ["/widgets/acme?page=2"]
    assert "after the last one" in client.get("/widgets/acme?page=3").text
    assert_page(client.get("/widgets/acme?page=x"), 400)


def test_scope_has_the_address_of_its_registry(client_with: ClientWith) -> None:
    client = client_with(document("ac me/clock", version()))
    page = client.get("/widgets/ac%20me").text
    registry = client.get(element(page, id="registry-url").text.removeprefix("http://localhost"))
    assert registry.status_code == 200


def test_scope_links_to_its_feed_and_widgets_link_to_their_scope(demo: FlaskClient) -> None:
    page = demo.get("/widgets/acme").text
    feeds = elements(page, "link", type="application/atom+xml")
    assert [feed.attributes["href"] for feed in feeds][-1] == "/feed.atom?scope=acme"
    assert elements(demo.get("/widgets/acme/weather").text, "a", href="/widgets/acme")
