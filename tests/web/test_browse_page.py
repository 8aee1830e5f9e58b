"""The browse page: search results as cards, and a form that keeps its values."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

from catalog.serving.http_syntax import MAX_HEAD
from catalog.store.read.search_params import MAX_Q_LENGTH
from catalog.web.browse import PAGE_SIZE
from catalog.web.icons import find_icon, letter_avatar

WEATHER = "/widgets/acme/weather"


def status(page: str) -> str:
    return element(page, role="status").text


def test_browse_shows_search_results_in_their_order(demo: FlaskClient) -> None:
    results = demo.get(f"/api/v1/widgets/search?limit={PAGE_SIZE}").json
    page = assert_page(demo.get("/"), 200)
    assert cards(page) == [
        f"/widgets/{widget['scope']}/{widget['name']}" for widget in results["widgets"]
    ]
    assert status(page) == "33 widgets, page 1 of 2"


@pytest.mark.parametrize(
    "query",
    [
        *("q=weather", "q=天気", "scope=hearth", "official=true", "official=false", "page=2"),
        *("q=meteo&scope=community", "q=e&official=true&scope=acme", "page=77", "q=nothing+such"),
    ],
)
def test_browse_accepts_the_parameters_of_search(demo: FlaskClient, query: str) -> None:
    results = demo.get(f"/api/v1/widgets/search?{query}&limit={PAGE_SIZE}").json
    page = assert_page(demo.get(f"/?{query}"), 200)
    assert cards(page) == [
        f"/widgets/{widget['scope']}/{widget['name']}" for widget in results["widgets"]
    ]


def test_card_shows_the_latest_compatible_version(demo: FlaskClient) -> None:
    results = demo.get("/api/v1/widgets/search?q=weather&compatSdk=1.4.0").json
    page = demo.get("/?q=weather&compatSdk=1.4.0").text
    compatible = [widget["latestCompatibleVersion"] for widget in results["widgets"]]
    assert [line.text for line in elements(page, "p", class_="compatibility")] == [
        f"{entry['version'] if entry else 'No version'} runs on SDK 1.4.0" for entry in compatible
    ]
    assert "2.6.0 runs on SDK 1.4.0" in page.replace("<strong>", "").replace("</strong>", "")
    assert cards(page)[0] == f"{WEATHER}?compatSdk=1.4.0"


def test_card_shows_icon_names_version_installs_and_badges(
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
        "World Clock acme/clock Official Deprecated Twelve cities. Latest 2.0.0 301k installs "
        "Updated 2 Jan 2025"
    )
    assert second.text.split() == ["N", "None", "acme/none", "Nothing", "to", "install"]
    page = client.get("/").text
    assert (find_icon("mdi:clock", "") or "?") in page
    assert letter_avatar("None", "acme/none") in page
    assert element(page, "span", class_="installs").attributes["title"] == "301,482 installs"
    assert element(page, "span", class_="deprecated").attributes["title"] == "Use radio."


def test_form_keeps_its_values(demo: FlaskClient) -> None:
    page = demo.get("/?q=caf%C3%A9+%22x%22&scope=hearth&official=false&compatSdk=1.4.0%2Bb").text
    assert element(page, "input", id="q").attributes["value"] == 'café "x"'
    assert element(page, "input", id="compatSdk").attributes["value"] == "1.4.0+b"
    selected = [option.attributes["value"] for option in elements(page, "option", selected="")]
    assert selected == ["hearth", "false", "", "", ""]


def test_form_has_the_scopes_of_listed_widgets_and_the_selected_one(
    client_with: Callable[..., FlaskClient],
) -> None:
    client = client_with(document("b/x"), document("a/x"), document("c/x", listed=False))
    scopes = [option.text for option in elements(client.get("/").text, "option")][:3]
    assert scopes == ["All scopes", "a (1)", "b (1)"]
    page = client.get("/?scope=zz").text
    assert "zz (0)" in [option.text for option in elements(page, "option", selected="")]


def test_empty_fields_are_ignored(demo: FlaskClient) -> None:
    response = demo.get("/?q=&scope=&official=&compatSdk=&page=")
    assert assert_page(response, 200) == demo.get("/").text


@pytest.mark.parametrize(
    ("query", "field", "value", "message"),
    [
        ("compatSdk=1.x", "compatSdk", "1.x", "such as 1.4.0"),
        ("compatSdk=%3Cb%3E", "compatSdk", "<b>", "such as 1.4.0"),
        ("official=perhaps", "official", "perhaps", "true or false, not 'perhaps'"),
        ("sort=best", "sort", "best", "sort must be installs, updated, created or name"),
        ("compatible=maybe&compatSdk=1.4.0", "compatible", "true", "must be true or false"),
        ("compatible=true", "compatible", "true", "Enter your SDK version"),
        ("q=" + "x" * 1001, "q", "x" * 1001, "at most 1000 characters, not 1001"),
    ],
    ids=["SDK", "markup", "official", "sort", "compatible", "no SDK", "q"],
)
def test_invalid_value_is_kept_with_a_message_beside_its_field(
    demo: FlaskClient, query: str, field: str, value: str, message: str
) -> None:
    page = assert_page(demo.get(f"/?{query}"), 400)
    control = element(page, id=field)
    assert control.attributes["aria-invalid"] == "true"
    assert control.attributes["aria-describedby"] == f"{field}-error"
    error = element(page, id=f"{field}-error")
    assert message in error.text
    assert "hidden" not in error.attributes
    selected = elements(page, "option", selected="", value=value)
    kept = control if control.tag == "input" else selected[0]
    assert kept.attributes["value"] == value
    assert cards(page) == []


def test_longest_values_of_the_fields_fit_into_a_request_head(demo: FlaskClient) -> None:
    page = demo.get("/").text
    fields = [*elements(page, "input", type="search"), *elements(page, "input", type="text")]
    limits = [int(field.attributes["maxlength"]) for field in fields]
    # A text that is too long is reported beside its field.
    assert limits[0] > MAX_Q_LENGTH
    encoded_length = len("%E5%A4%A9")
    assert sum(limits) * encoded_length < MAX_HEAD * 3 / 4


def test_all_invalid_values_are_reported_together(demo: FlaskClient) -> None:
    page = demo.get("/?official=x&compatSdk=y&page=z").text
    errors = [error for error in elements(page, class_="field-error") if error.text]
    assert [error.attributes["id"].split("-")[0] for error in errors] == [
        *("compatSdk", "official", "page")
    ]


@pytest.mark.parametrize("number", ["0", "-1", "x", "１", "1e3", "9" * 30])
def test_invalid_page_links_to_the_first_page(demo: FlaskClient, number: str) -> None:
    page = assert_page(demo.get("/", query_string={"page": number, "q": "a"}), 400)
    assert "must be a whole number from 1" in element(page, id="page-error").text
    assert element(page, "a", href="/?q=a").text == "Go to the first page"


@pytest.mark.parametrize("number", ["3", "9007199254740991"])
def test_page_after_the_last_links_to_the_last(demo: FlaskClient, number: str) -> None:
    page = assert_page(demo.get(f"/?page={number}&q=e"), 200)
    assert status(page) == "31 widgets"
    (link,) = (link for link in elements(page, "a") if link.text == "Go to the last page")
    last = demo.get(link.attributes["href"]).text
    assert status(last) == "31 widgets, page 2 of 2"
    assert len(cards(last)) == 31 - PAGE_SIZE


def test_pager_keeps_the_other_parameters(client_with: Callable[..., FlaskClient]) -> None:
    client = client_with(*(document(f"acme/w{n}") for n in range(PAGE_SIZE * 3)))
    page = client.get("/?scope=acme&page=2&compatSdk=1.0.0").text
    links = [link for link in elements(page, "a") if link.attributes.get("aria-label")]
    assert [link.text for link in links] == ["1", "2", "3"]
    assert [link.text for link in links if "aria-current" in link.attributes] == ["2"]
    listed = [card for link in links for card in cards(client.get(link.attributes["href"]).text)]
    assert len(set(listed)) == PAGE_SIZE * 3
    assert all(card.endswith("?compatSdk=1.0.0") for card in listed)
