"""The browse page also finds widgets by name, which the API's q does not search."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

from catalog.web.browse import PAGE_SIZE

ClientWith = Callable[..., FlaskClient]


def find(client: FlaskClient, q: str, **arguments: str) -> list[str]:
    """Return the widgets on the page for the text, in its order, as scope/name."""
    page = assert_page(client.get("/", query_string={"q": q, **arguments}), 200)
    return [card.partition("?")[0].removeprefix("/widgets/") for card in cards(page)]


def status(client: FlaskClient, q: str, **arguments: str) -> str:
    page = client.get("/", query_string={"q": q, **arguments}).text
    return element(page, role="status").text


@pytest.mark.parametrize(
    "q", ["focus-timer", "acme/focus-timer", " Focus-Timer ", "ACME/focus-timer"]
)
def test_widget_is_found_by_its_name(client_with: ClientWith, q: str) -> None:
    client = client_with(
        document("acme/focus-timer", displayName="Pomodoro"), document("acme/clock")
    )
    assert find(client, q) == ["acme/focus-timer"]
    assert status(client, q) == "1 widget"
    assert client.get("/api/v1/widgets/search", query_string={"q": q}).json["total"] == 0


@pytest.mark.parametrize("path", ["Café/Été", "天気/雨", "한국/시계", "a_b/50%", "a!b/c d", "x/go"])
def test_name_of_any_characters_is_found(client_with: ClientWith, path: str) -> None:
    other = document("axb/500", displayName="Other")
    client = client_with(document(path, displayName="Shown"), other)
    name = path.partition("/")[2]
    for q in (path, name):
        listed = [
            heading.text for heading in elements(client.get("/", query_string={"q": q}).text, "h2")
        ]
        assert listed == ["Shown"], q


def test_widgets_with_the_typed_name_come_before_the_results(client_with: ClientWith) -> None:
    client = client_with(
        document("a/clock-face", displayName="Dial", downloadCount=9),
        document("a/world", displayName="World Clock", downloadCount=999),
        document("y/clock", displayName="Horloge", downloadCount=1),
        document("z/clock", displayName="Horloge", downloadCount=2),
    )
    assert find(client, "clock") == ["z/clock", "y/clock", "a/world"]
    assert find(client, "z/clock") == ["z/clock"]


def test_widget_that_the_search_finds_too_is_listed_once(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/clock", displayName="Clock"),
        document("acme/clock-2", description="Made after acme/clock-2 and clock."),
    )
    assert find(client, "clock") == ["acme/clock", "acme/clock-2"]
    assert find(client, "acme/clock-2") == ["acme/clock-2"]
    assert status(client, "clock") == "2 widgets"


def test_scope_and_official_filter_names_too(client_with: ClientWith) -> None:
    client = client_with(
        document("a/clock", displayName="One", isOfficial=True),
        document("b/clock", displayName="Two"),
    )
    assert find(client, "clock") == ["a/clock", "b/clock"]
    assert find(client, "clock", scope="b") == ["b/clock"]
    assert find(client, "clock", official="true") == ["a/clock"]


def test_unlisted_widget_is_not_found_by_its_name(client_with: ClientWith) -> None:
    client = client_with(document("acme/secret-clock", displayName="Dial", listed=False))
    assert find(client, "acme/secret-clock") == []
    assert status(client, "acme/secret-clock") == "No widget found."


def test_widget_found_by_name_has_the_same_card_as_a_search_result(
    client_with: ClientWith,
) -> None:
    fields = {"displayName": "Dial", "description": "Face.", "icon": "mdi:clock"}
    old = version("1.0.0", publishedAt="2024-01-01T00:00:00.000Z", sdkVersion="^1.0.0")
    new = version("2.0.0", sdkVersion="^2.0.0", deprecationMessage="Old.")
    yanked = version("1.1.0", yanked=True)
    widget = document("acme/x-1", old, new, yanked, isOfficial=True, downloadCount=5, **fields)
    client = client_with(widget)
    for more in ({}, {"compatSdk": "1.4.0"}, {"compatSdk": "3.0.0"}):
        by_name, by_text = (
            element(client.get("/", query_string={"q": q, **more}).text, "li", class_="card")
            for q in ("x-1", "dial")
        )
        assert by_name == by_text


def test_later_pages_have_search_results_only(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/clock", displayName="Dial"),
        *(document(f"text/{n}", displayName="Clock") for n in range(PAGE_SIZE + 1)),
    )
    pages = [find(client, "clock", page=number) for number in ("1", "2", "3")]
    assert [len(page) for page in pages] == [PAGE_SIZE + 1, 1, 0]
    assert pages[0][0] == "acme/clock"
    assert status(client, "clock").partition(",")[0] == f"{PAGE_SIZE + 2} widgets"


MANY_WORDS = " ".join(chr(0x4E00 + n) for n in range(500))


@pytest.mark.parametrize("q", ["c", "cl", "clo\0", "\0", "%", "_", "!", "' OR 1 --", MANY_WORDS])
def test_text_that_is_not_a_name_finds_nothing(client_with: ClientWith, q: str) -> None:
    client = client_with(document("acme/clock", displayName="Dial"))
    assert find(client, q) == []
