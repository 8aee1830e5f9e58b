"""The browse page: what search answers, as cards, with a form that keeps what was typed."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

from catalog.settings import DEFAULTS
from catalog.store.search_params import MAX_Q_LENGTH
from catalog.web.icons import find_icon, letter_avatar
from catalog.web.pages import PAGE_SIZE

WEATHER = "/widgets/acme/weather"


def status(page: str) -> str:
    return element(page, role="status").text


def test_browse_shows_what_search_answers_in_its_order(demo: FlaskClient) -> None:
    answer = demo.get(f"/api/v1/widgets/search?limit={PAGE_SIZE}").json
    page = assert_page(demo.get("/"), 200)
    assert cards(page) == [f"/widgets/{each['scope']}/{each['name']}" for each in answer["widgets"]]
    assert status(page) == "33 widgets, page 1 of 2"


@pytest.mark.parametrize(
    "query",
    [
        *("q=weather", "q=天気", "scope=hearth", "official=true", "official=false", "page=2"),
        *("q=meteo&scope=community", "q=e&official=true&scope=acme", "page=77", "q=nothing+such"),
    ],
)
def test_browse_takes_the_parameters_of_search(demo: FlaskClient, query: str) -> None:
    answer = demo.get(f"/api/v1/widgets/search?{query}&limit={PAGE_SIZE}").json
    page = assert_page(demo.get(f"/?{query}"), 200)
    assert cards(page) == [f"/widgets/{each['scope']}/{each['name']}" for each in answer["widgets"]]


def test_browse_says_of_each_widget_which_version_fits_the_sdk(demo: FlaskClient) -> None:
    answer = demo.get("/api/v1/widgets/search?q=weather&compatSdk=1.4.0").json
    page = demo.get("/?q=weather&compatSdk=1.4.0").text
    fitting = [each["latestCompatibleVersion"] for each in answer["widgets"]]
    assert [each.text for each in elements(page, "p", class_="fit")] == [
        f"{each['version']} runs on SDK 1.4.0" if each else "None runs on SDK 1.4.0"
        for each in fitting
    ]
    assert "2.6.0 runs on SDK 1.4.0" in page.replace("<strong>", "").replace("</strong>", "")
    assert cards(page)[0] == f"{WEATHER}?compatSdk=1.4.0"


def test_a_card_shows_icon_names_version_installs_and_marks(
    client_with: Callable[..., FlaskClient],
) -> None:
    latest = version("2.0.0", deprecationMessage="Use radio.")
    fields = {"displayName": "World Clock", "description": "Twelve cities.", "icon": "mdi:clock"}
    client = client_with(
        document("acme/clock", latest, isOfficial=True, downloadCount=301_482, **fields),
        document("acme/none", icon="custom:x"),
    )
    first, second = elements(client.get("/").text, "li", class_="card")
    assert first.text == (
        "World Clock acme/clock Official Deprecated Twelve cities. Latest 2.0.0 301k installs"
    )
    assert second.text.split() == ["N", "None", "acme/none", "Nothing", "to", "install"]
    page = client.get("/").text
    assert (find_icon("mdi:clock", "") or "?") in page
    assert letter_avatar("None", "acme/none") in page
    assert element(page, "span", class_="installs").attributes["title"] == "301,482 installs"
    assert element(page, "span", class_="deprecated").attributes["title"] == "Use radio."


def test_the_form_keeps_what_was_asked(demo: FlaskClient) -> None:
    page = demo.get("/?q=caf%C3%A9+%22x%22&scope=hearth&official=false&compatSdk=1.4.0%2Bb").text
    assert element(page, "input", id="q").attributes["value"] == 'café "x"'
    assert element(page, "input", id="compatSdk").attributes["value"] == "1.4.0+b"
    selected = [each.text for each in elements(page, "option", selected="")]
    assert selected == ["hearth", "Not official"]


def test_the_form_offers_the_scopes_that_have_listed_widgets(
    client_with: Callable[..., FlaskClient],
) -> None:
    client = client_with(document("b/x"), document("a/x"), document("c/x", listed=False))
    scopes = [each.text for each in elements(client.get("/").text, "option")][:3]
    assert scopes == ["All scopes", "a", "b"]
    asked = client.get("/?scope=zz").text
    assert "zz" in [each.text for each in elements(asked, "option", selected="")]


def test_empty_fields_of_the_form_ask_for_nothing(demo: FlaskClient) -> None:
    asked = demo.get("/?q=&scope=&official=&compatSdk=&page=")
    assert assert_page(asked, 200) == demo.get("/").text


@pytest.mark.parametrize(
    ("query", "field", "typed", "message"),
    [
        ("compatSdk=1.4", "compatSdk", "1.4", "such as 1.4.0"),
        ("compatSdk=%3Cb%3E", "compatSdk", "<b>", "such as 1.4.0"),
        ("official=perhaps", "official", "perhaps", "true or false, not 'perhaps'"),
        ("q=" + "x" * 1001, "q", "x" * 1001, "at most 1000 characters, not 1001"),
    ],
    ids=["SDK", "markup", "official", "q"],
)
def test_an_odd_value_is_kept_with_the_message_beside_its_field(
    demo: FlaskClient, query: str, field: str, typed: str, message: str
) -> None:
    page = assert_page(demo.get(f"/?{query}"), 400)
    shown = element(page, id=field)
    assert shown.attributes["aria-invalid"] == "true"
    assert shown.attributes["aria-describedby"] == f"{field}-error"
    said = element(page, id=f"{field}-error")
    assert message in said.text
    assert "hidden" not in said.attributes
    kept = shown if shown.tag == "input" else elements(page, "option", selected="")[-1]
    assert kept.attributes["value"] == typed
    assert cards(page) == []


def test_what_the_fields_can_hold_has_room_in_an_address(demo: FlaskClient) -> None:
    limits = [int(each.attributes["maxlength"]) for each in elements(demo.get("/").text, "input")]
    assert limits[0] > MAX_Q_LENGTH  # what is too long is still said beside the field
    longest = len("%E5%A4%A9")  # of a character
    assert sum(limits) * longest < int(DEFAULTS["MAX_HEAD_BYTES"]) * 3 / 4


def test_every_odd_value_has_its_message_at_once(demo: FlaskClient) -> None:
    page = demo.get("/?official=x&compatSdk=y&page=z").text
    shown = [each for each in elements(page, class_="field-error") if each.text]
    assert [each.attributes["id"].split("-")[0] for each in shown] == [
        *("compatSdk", "official", "page")
    ]


@pytest.mark.parametrize("number", ["0", "-1", "x", "１", "1e3", "9" * 30])
def test_an_odd_page_is_refused_with_a_way_back(demo: FlaskClient, number: str) -> None:
    page = assert_page(demo.get("/", query_string={"page": number, "q": "a"}), 400)
    assert "must be a whole number from 1" in element(page, id="page-error").text
    assert element(page, "a", href="/?q=a").text == "Go to the first page"


@pytest.mark.parametrize("number", ["3", "9007199254740991"])
def test_a_page_past_the_end_leads_to_the_last(demo: FlaskClient, number: str) -> None:
    page = assert_page(demo.get(f"/?page={number}&q=e"), 200)
    assert status(page) == "31 widgets"
    (link,) = (each for each in elements(page, "a") if each.text == "Go to the last page")
    last = demo.get(link.attributes["href"]).text
    assert status(last) == "31 widgets, page 2 of 2"
    assert len(cards(last)) == 31 - PAGE_SIZE


def test_the_pager_keeps_the_rest_of_the_search(client_with: Callable[..., FlaskClient]) -> None:
    client = client_with(*(document(f"acme/w{n}") for n in range(PAGE_SIZE * 3)))
    page = client.get("/?scope=acme&page=2&compatSdk=1.0.0").text
    links = [each for each in elements(page, "a") if each.attributes.get("aria-label")]
    assert [each.text for each in links] == ["1", "2", "3"]
    assert [each.text for each in links if "aria-current" in each.attributes] == ["2"]
    seen = [card for link in links for card in cards(client.get(link.attributes["href"]).text)]
    assert len(set(seen)) == PAGE_SIZE * 3
    assert all(card.endswith("?compatSdk=1.0.0") for card in seen)
