"""The browse page: search results as cards, filters with counts, a form that keeps its values."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

from catalog.web.browse import MAX_SCOPE_OPTIONS, PAGE_SIZE
from catalog.web.icons import find_icon, letter_avatar

ClientWith = Callable[..., FlaskClient]
API = "/api/v1/widgets/search"
SDK_ERROR = "An SDK version is three numbers, such as 1.4.0."
OLD, NEW = "2024-01-01T00:00:00.000Z", "2025-01-01T00:00:00.000Z"


def released(number: str = "1.0.0", **fields: Any) -> dict[str, Any]:
    """Return a version that runs on SDK 1."""
    return version(number, sdkVersion="^1.0.0", **fields)


CATALOG = [
    document(
        "acme/clock",
        released("2.0.0", permissions=["network"], license="MIT", publishedAt=NEW),
        released("1.0.0", permissions=["camera"], license="ISC", publishedAt=OLD),
        **{"displayName": "Clock", "isOfficial": True, "downloadCount": 9},
    ),
    document(
        "acme/radio",
        released(permissions=["network", "storage"], license="MIT"),
        displayName="Clock radio",
    ),
    document(
        "beta/timer",
        version("1.0.0", sdkVersion="^2.0.0", permissions=["storage"], license="Apache-2.0"),
        displayName="Timer clock",
    ),
    document("beta/egg", released("1.0.0", permissions=[], license=None), displayName="Egg"),
    document("beta/none", displayName="None"),
    document("beta/hidden", released(permissions=["network"], license="MIT"), listed=False),
]


@pytest.fixture
def client(client_with: ClientWith) -> FlaskClient:
    return client_with(*CATALOG)


def options(page: str) -> set[str]:
    """Return the options of all filters that show a count, permissions without their words."""
    texts = {option.text for option in elements(page, "option") if option.text.endswith(")")}
    return {re.sub(r"^([a-z-]+): .* (?=\()", r"\1 ", text) for text in texts}


def status(page: str) -> str:
    return element(page, role="status").text


def links(page: str, text: str) -> list[str]:
    """Return the URLs of the links whose text contains this one."""
    return [link.attributes["href"] for link in elements(page, "a") if text in link.text]


def names(page: str) -> list[str]:
    return [card.partition("?")[0].rpartition("/")[2] for card in cards(page)]


def find(client: FlaskClient, q: str, **arguments: str) -> list[str]:
    """Return the widgets on the page for the text, in its order, as scope/name."""
    page = assert_page(client.get("/", query_string={"q": q, **arguments}), 200)
    return [card.partition("?")[0].removeprefix("/widgets/") for card in cards(page)]


@pytest.mark.parametrize(
    "query",
    [
        *("", "q=weather", "q=天気", "scope=hearth", "official=true", "official=false", "page=2"),
        *("q=meteo&scope=community", "q=e&official=true&scope=acme", "page=77", "q=nothing"),
    ],
)
def test_results_are_those_of_search_in_their_order(demo: FlaskClient, query: str) -> None:
    results = demo.get(f"{API}?{query}&limit={PAGE_SIZE}").json
    page = assert_page(demo.get(f"/?{query}"), 200)
    paths = [f"/widgets/{widget['scope']}/{widget['name']}" for widget in results["widgets"]]
    assert cards(page) == paths
    count = results["total"]
    assert status(page).startswith(f"{count} widget" if count else "No widgets found.")


def test_card_says_which_version_runs_or_which_sdk_is_needed(client_with: ClientWith) -> None:
    client = client_with(
        document("a/fits", released(), version("2.0.0", sdkVersion="^2.0.0"), downloadCount=4),
        document("a/needs", version("3.0.0", sdkVersion=">=2.1.0"), downloadCount=3),
        document("a/unreadable", version("1.0.0", sdkVersion="soon"), downloadCount=2),
        document("a/nothing", downloadCount=1),
    )
    page = client.get("/?compatSdk=v1.4").text
    assert [line.text for line in elements(page, "p", class_="compatibility")] == [
        "1.0.0 runs on SDK 1.4.0",
        "No version runs on SDK 1.4.0: 3.0.0 needs >=2.1.0",
        "No version runs on SDK 1.4.0",
        "No version runs on SDK 1.4.0",
    ]
    assert element(page, id="compatSdk-notice").text == "Using SDK 1.4.0."
    assert cards(page)[0] == "/widgets/a/fits?compatSdk=1.4.0"


def test_card_shows_icon_names_version_installs_and_badges(client_with: ClientWith) -> None:
    latest = version("2.0.0", deprecationMessage="Use radio.")
    fields = {"displayName": "World Clock", "description": "Twelve cities.", "icon": "mdi:clock"}
    client = client_with(
        document("acme/clock", latest, isOfficial=True, downloadCount=301_482, **fields),
        document("acme/none", icon="custom:x"),
    )
    page = client.get("/").text
    first, second = elements(page, "li", class_="card")
    assert first.text.startswith(
        "World Clock acme/clock Official Deprecated Twelve cities. 2.0.0 · 301k installs · "
    )
    assert first.text.endswith(" ago No network access")
    assert second.text.split() == ["N", "None", "acme/none", "Nothing", "to", "install"]
    assert (find_icon("mdi:clock", "") or "?") in page
    assert letter_avatar("None", "acme/none") in page
    assert element(page, "span", class_="installs").attributes["title"] == "301,482 installs"
    assert element(page, "span", class_="deprecated").attributes["title"] == "Use radio."
    assert element(page, "time").attributes["title"] == "2 Jan 2025"
    assert {link.attributes["href"] for link in elements(page, "a", class_="scope")} == {
        "/widgets/acme"
    }


def test_form_keeps_its_values(demo: FlaskClient) -> None:
    page = demo.get("/?q=caf%C3%A9+%22x%22&scope=hearth&official=False&compatSdk=1.4.0%2Bb").text
    assert element(page, "input", id="q").attributes["value"] == 'café "x"'
    assert element(page, "input", id="compatSdk").attributes["value"] == "1.4.0+b"
    selected = [option.attributes["value"] for option in elements(page, "option", selected="")]
    assert selected == ["", "hearth", "false", "", ""]
    # The SDK is not a filter.
    cleared = "/?q=caf%C3%A9+%22x%22&compatSdk=1.4.0%2Bb"
    assert links(page, "Clear filters") == [cleared]
    assert "hidden" in element(demo.get("/?q=a").text, id="clear").attributes


@pytest.mark.parametrize(
    ("query", "field", "value", "message"),
    [
        ("compatSdk=1.x", "compatSdk", "1.x", SDK_ERROR),
        ("compatSdk=%3Cb%3E", "compatSdk", "<b>", SDK_ERROR),
        ("official=perhaps", "official", "perhaps", "Choose one of the options."),
        ("sort=best", "sort", "best", "Choose one of the options."),
        ("compatible=maybe&compatSdk=1.4.0", "compatible", "true", "Choose one of the options."),
        ("compatible=true", "compatible", "true",
         "Enter your SDK version to see only what runs on it."),
        ("q=" + "x" * 1001, "q", "x" * 1001, "Use at most 1,000 characters."),
    ],
    ids=["SDK", "markup", "official", "sort", "compatible", "no SDK", "q"],
)  # fmt: skip
def test_invalid_value_is_marked_and_kept_with_the_results_without_it(
    demo: FlaskClient, query: str, field: str, value: str, message: str
) -> None:
    page = assert_page(demo.get(f"/?{query}"), 400)
    control = element(page, id=field)
    assert control.attributes["aria-invalid"] == "true"
    assert control.attributes["aria-describedby"] == f"{field}-error"
    error = element(page, id=f"{field}-error")
    assert (error.text, "hidden" in error.attributes) == (message, False)
    selected = elements(page, "option", selected="", value=value)
    kept = control if control.tag == "input" else selected[0]
    assert kept.attributes["value"] == value
    assert len(cards(page)) == PAGE_SIZE
    assert status(page).startswith("33 widgets, page 1 of 2")
    assert status(page).endswith(". Please correct the marked fields.")


@pytest.mark.parametrize("number", ["0", "-1", "x", "１", "1e3", "9" * 30])
def test_invalid_page_is_the_first_one_without_machine_words(
    demo: FlaskClient, number: str
) -> None:
    page = assert_page(demo.get("/", query_string={"page": number, "sort": "x"}), 400)
    assert element(page, id="page-error").text == "There is no such page."
    assert element(page, id="sort-error").text == "Choose one of the options."
    assert len(cards(page)) == PAGE_SIZE
    assert "9007199254740991" not in page


@pytest.mark.parametrize("number", ["3", "9007199254740991"])
def test_page_after_the_last_links_to_the_last(demo: FlaskClient, number: str) -> None:
    page = assert_page(demo.get(f"/?page={number}&q=e"), 200)
    assert element(page, class_="empty").text == (
        f"There is no page {int(number):,}; the last page is 2."
    )
    (link,) = links(page, "the last page is 2")
    last = demo.get(link).text
    assert status(last) == "33 widgets, page 2 of 2"
    assert len(cards(last)) == 33 - PAGE_SIZE


def test_pager_leads_through_all_pages_and_keeps_the_parameters(client_with: ClientWith) -> None:
    client = client_with(*(document(f"acme/w{n}") for n in range(PAGE_SIZE * 3)))
    url, seen = "/?scope=acme&compatSdk=1.0.0", []
    for number in ("1", "2", "3"):
        page = client.get(url).text
        seen += cards(page)
        numbered = [link for link in elements(page, "a") if "aria-label" in link.attributes]
        assert [link.text for link in numbered] == ["1", "2", "3"]
        assert [each.text for each in numbered if "aria-current" in each.attributes] == [number]
        url = (links(page, "Next") or [""])[0]
    assert len(set(seen)) == PAGE_SIZE * 3
    assert all(card.endswith("?compatSdk=1.0.0") for card in seen)
    assert links(page, "Next") == []
    assert links(page, "Previous") == ["/?compatSdk=1.0.0&scope=acme&page=2"]


# Names and scopes, which the API's q does not search.


@pytest.mark.parametrize(
    "q",
    ["focus-timer", "lab/focus-timer", " Focus-Timer ", "LAB/foc", "@lab/focus-timer", "@lab"],
)
def test_widget_is_found_by_its_name_or_scope(client_with: ClientWith, q: str) -> None:
    client = client_with(
        document("lab/focus-timer", displayName="Pomodoro"), document("acme/clock")
    )
    assert find(client, q) == ["lab/focus-timer"]
    assert client.get(API, query_string={"q": q}).json["total"] == 0


@pytest.mark.parametrize("path", ["Café/Été", "天気/雨", "한국/시계", "a_b/50%", "a!b/c d", "x/go"])
def test_name_of_any_characters_is_found(client_with: ClientWith, path: str) -> None:
    client = client_with(
        document(path, displayName="Shown"), document("axb/500", displayName="Other")
    )
    for q in (path, path.partition("/")[2]):
        page = client.get("/", query_string={"q": q}).text
        assert [heading.text for heading in elements(page, "h2")] == ["Shown"], q


@pytest.mark.parametrize(
    ("q", "rows"),
    [
        ("acme", ["Scope acme, 2 widgets", "Scope Acme, 1 widget"]),
        ("@ACME/", ["Scope acme, 2 widgets", "Scope Acme, 1 widget"]),
        ("acme/clock", []),
        ("hidden", []),
    ],
)
def test_typed_scope_has_a_row_with_its_link(
    client_with: ClientWith, q: str, rows: list[str]
) -> None:
    client = client_with(
        *(document(path) for path in ("acme/clock", "acme/bell", "Acme/map", "lab/clock")),
        document("hidden/x", listed=False),
    )
    page = client.get("/", query_string={"q": q, "compatSdk": "1.4"}).text
    assert [row.text for row in elements(page, class_="scope-row")] == rows
    assert links(page, "Scope acme") == (["/widgets/acme?compatSdk=1.4.0"] if rows else [])


def test_typed_name_comes_first_then_words_then_the_rest_of_a_scope(
    client_with: ClientWith,
) -> None:
    client = client_with(
        document("a/clock-face", displayName="Dial", downloadCount=9),
        document("a/world", displayName="World Clock", downloadCount=999),
        document("y/clock", displayName="Horloge", downloadCount=1, isOfficial=True),
        document("z/clock", displayName="Horloge", downloadCount=2),
        document("clock/radio", displayName="Radio", downloadCount=5000),
    )
    names = ["z/clock", "y/clock", "a/world", "a/clock-face", "clock/radio"]
    assert find(client, "clock") == names
    assert find(client, "clock", sort="installs")[0] == "clock/radio"
    assert find(client, "clock", scope="z") == ["z/clock"]
    assert find(client, "clock", official="true") == ["y/clock"]


def test_widget_that_words_and_name_find_is_listed_once(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/clock", displayName="Clock"),
        document("acme/clock-2", description="Made after acme/clock-2 and clock."),
        document("acme/secret-clock", displayName="Dial", listed=False),
    )
    assert find(client, "clock") == ["acme/clock", "acme/clock-2"]
    assert find(client, "acme/clock-2") == ["acme/clock-2"]
    assert find(client, "acme/secret-clock") == []


def test_name_that_many_scopes_share_is_paged(client_with: ClientWith) -> None:
    client = client_with(
        *(document(f"s{n:02}/clock", displayName="Dial") for n in range(PAGE_SIZE + 6)),
        document("text/a", displayName="Clock"),
    )
    pages = [find(client, "clock", page=number) for number in ("1", "2")]
    assert [len(page) for page in pages] == [PAGE_SIZE, 7]
    assert len({*pages[0], *pages[1]}) == PAGE_SIZE + 7
    assert status(client.get("/?q=clock").text) == f"{PAGE_SIZE + 7} widgets, page 1 of 2"


MANY_WORDS = " ".join(chr(0x4E00 + n) for n in range(500))


@pytest.mark.parametrize("q", ["x", "clo\0", "\0", "%", "_", "!", "' OR 1", MANY_WORDS])
def test_text_that_is_not_a_name_finds_nothing(client_with: ClientWith, q: str) -> None:
    client = client_with(document("acme/clock", displayName="Dial"))
    assert find(client, q) == []


# Filters.

ALL = {
    *("acme (2)", "beta (3)", "Official only (1)", "Not official (4)"),
    *(
        "network (2)",
        "storage (2)",
        "Does not use: network (2)",
        "Does not use: storage (2)",
    ),
    # One widget needs no permission, and two state no licence.
    *("Does not use: any permission (1)", "Not stated (2)", "MIT (2)", "Apache-2.0 (1)"),
}


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ("", ALL),
        ("q=clock", {"acme (2)", "beta (1)", "Official only (1)", "Not official (2)",
                     "network (2)", "storage (2)", "Does not use: network (1)",
                     "Does not use: storage (1)", "MIT (2)", "Apache-2.0 (1)"}),
        ("scope=beta", {"acme (2)", "beta (3)", "Official only (0)", "Not official (3)",
                        "storage (1)", "Does not use: storage (1)",
                        "Does not use: any permission (1)", "Not stated (2)", "Apache-2.0 (1)"}),
        ("permission=storage&license=MIT",
         {"acme (1)", "Official only (0)", "Not official (1)",
          "network (2)", "storage (1)", "Does not use: network (0)",
          "Does not use: storage (1)", "MIT (1)", "Apache-2.0 (1)"}),
        ("compatSdk=1.4.0&compatible=true&official=false",
         {"acme (1)", "beta (1)", "Official only (1)", "Not official (2)",
          "network (1)", "storage (1)", "Does not use: network (1)",
          "Does not use: storage (1)", "Does not use: any permission (1)", "Not stated (1)",
          "MIT (1)"}),
        # No version for the SDK needs the network; widgets without one have no permissions.
        ("compatSdk=2.1.0&permission=-network",
         {"beta (1)", "Official only (0)", "Not official (1)", "storage (1)", "network (0)",
          "Does not use: storage (0)", "Does not use: network (1)", "Apache-2.0 (1)"}),
        ("q=egg&compatSdk=1.4.0&compatible=true&license=(none)",
         {"beta (1)", "Official only (0)", "Not official (1)",
          "Does not use: any permission (1)", "Not stated (1)"}),
        # This one is found by its name only.
        ("q=acme/radio&license=ISC",
         {"Official only (0)", "Not official (0)", "MIT (1)", "ISC (0)"}),
    ],
    ids=["all", "words", "scope", "permission and licence", "SDK", "without", "words and SDK",
         "name"],
)  # fmt: skip
def test_counts_of_a_filter_honour_all_other_filters(
    client: FlaskClient, query: str, counts: set[str]
) -> None:
    assert options(client.get(f"/?{query}").text) == counts


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("permission=network", ["clock", "radio"]),
        ("permission=(none)", ["egg"]),
        ("permission=-network", ["egg", "timer"]),
        ("permission=-network&compatSdk=1.4.0", ["egg"]),
        ("permission=-network&compatSdk=2.1.0", ["timer"]),
        ("permission=camera", []),
        ("license=MIT", ["clock", "radio"]),
        ("license=(none)", ["egg", "none"]),
        ("license=ISC", []),
        ("permission=storage&license=MIT&scope=acme&official=false", ["radio"]),
        ("q=clock&permission=storage", ["radio", "timer"]),
        ("q=clock&license=MIT&sort=name", ["clock", "radio"]),
        ("q=timer&permission=network", []),
        ("compatSdk=1.4.0&compatible=true&permission=storage", ["radio"]),
        ("compatSdk=2.1&compatible=True", ["timer"]),
        ("permission=%00", []),
        ("scope=%00&license=" + "x" * 9999, []),
    ],
)
def test_filters_restrict_the_results(client: FlaskClient, query: str, found: list[str]) -> None:
    page = assert_page(client.get(f"/?{query}"), 200)
    assert names(page) == found
    assert status(page).split()[0] == (str(len(found)) if found else "No")


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", ["none", "egg", "clock"]),
        ("name", ["clock", "egg", "none"]),
        ("created", ["egg", "none", "clock"]),
        ("updated", ["clock", "egg", "none"]),
        ("installs", ["none", "egg", "clock"]),
    ],
)
def test_order_of_the_results_can_be_chosen(
    client_with: ClientWith, sort: str, order: list[str]
) -> None:
    client = client_with(
        document("a/clock", version(publishedAt=NEW), createdAt=OLD, downloadCount=1),
        document("a/egg", version(publishedAt=OLD), createdAt=NEW, downloadCount=2),
        document("a/none", createdAt="2024-06-01T00:00:00.000Z", downloadCount=3),
    )
    assert names(client.get(f"/?sort={sort}").text) == order


def test_many_scopes_are_suggested_in_a_text_field(client_with: ClientWith) -> None:
    few = [document(f"s{n}/w", version()) for n in range(MAX_SCOPE_OPTIONS)]
    page = client_with(*few).get("/?scope=zz").text
    field = element(page, "select", id="scope")
    assert field.text.startswith("All scopes s0 (1) s1 (1)")
    assert field.text.endswith("zz (0)")
    client = client_with(*few, document("天気/w", version()), document("天気/x", version()))
    page = client.get("/?scope=s1").text
    attributes = element(page, "input", id="scope").attributes
    assert (attributes["value"], attributes["list"]) == ("s1", "scopes")
    assert element(page, "option", value="天気").text == "2 widgets"
    # The kind of field depends on the catalog, not on the results.
    assert element(client.get("/?q=nothing").text, "input", id="scope")


# Searches without results.


@pytest.mark.parametrize(
    ("q", "suggested"),
    [
        ("wether", "weather"),
        ("@acme/wether", "weather"),
        ("Météoo", "meteo"),
        ("天気予法", "yoho"),
        ("foccus tmer", "focus-timer"),
        ("Pomodora", "focus-timer"),
    ],
)
def test_similar_name_is_suggested(client_with: ClientWith, q: str, suggested: str) -> None:
    client = client_with(
        *(document(f"a/{name}", displayName=name) for name in ("rain", "map", "calendar")),
        document("acme/weather", displayName="Weather"),
        document("fr/meteo", displayName="Météo"),
        document("jp/yoho", displayName="天気予報"),
        document("acme/focus-timer", displayName="Pomodoro"),
    )
    page = assert_page(client.get("/", query_string={"q": q, "compatSdk": "1.4.0"}), 200)
    assert status(page) == "No widgets found."
    first = elements(page, "a", class_="suggestion")[0].attributes["href"]
    assert first.endswith(f"/{suggested}?compatSdk=1.4.0")
    assert client.get(first).status_code == 200


@pytest.mark.parametrize("q", ["secret-wether", "xyzzy", "\0", " ", "🙂", "/", "x" * 1000])
def test_nothing_is_suggested_without_a_similar_listed_name(
    client_with: ClientWith, q: str
) -> None:
    client = client_with(document("acme/secret-weather", listed=False), document("acme/clock"))
    page = client.get("/", query_string={"q": q, "scope": "none"}).text
    assert elements(page, class_="suggestion") == []


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("compatSdk=3.0.0&compatible=true&scope=acme", "2 widgets for any SDK", 2),
        ("q=timer&scope=acme", "1 widget in any scope", 1),
        ("scope=beta&official=true", "3 widgets made by anyone", 3),
        ("scope=beta&official=true", "1 widget in any scope", 1),
        ("q=egg&permission=network", "1 widget with any permissions", 1),
        ("q=egg&license=MIT", "1 widget with any licence", 1),
        ("q=egg&license=MIT&scope=acme&official=true", "1 widget without filters", 1),
        ("q=beta/egg&license=MIT&scope=acme", "1 widget without filters", 1),
    ],
)
def test_search_without_results_links_to_wider_ones(
    client: FlaskClient, query: str, text: str, found: int
) -> None:
    page = client.get(f"/?{query}&page=1").text
    assert status(page) == "No widgets found."
    (url,) = links(page, text)
    wider = client.get(url).text
    assert len(cards(wider)) == found
    assert element(wider, id="q").attributes["value"] in query


def test_counts_follow_the_catalog_and_are_cached_between_installs(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    assert options(client.get("/").text) == ALL
    statements: list[str] = []
    connection = app.extensions["database"].reader()
    client.post("/api/v1/widgets/acme/clock")
    connection.set_trace_callback(statements.append)
    assert options(client.get("/").text) == ALL
    connection.set_trace_callback(None)
    assert not [sql for sql in statements if "GROUP BY permissions" in sql]
    assert run(app, "yank", "acme/clock@2.0.0").exit_code == 0
    assert {
        "camera (1)",
        "network (1)",
        "ISC (1)",
    } < options(client.get("/").text)


@pytest.mark.parametrize(
    ("query", "active"),
    [
        ("", ""),
        ("?compatible=false", ""),
        ("?sort=name", ""),
        ("?compatSdk=1.4.0", "1 set"),
        ("?compatSdk=1.4.0&compatible=true&sort=name&q=a", "2 set"),
        ("?official=false", "1 set"),
    ],
)
def test_only_filters_and_the_sdk_are_counted(demo: FlaskClient, query: str, active: str) -> None:
    page = assert_page(demo.get(f"/{query}"), 200)
    assert ("hidden" in element(page, id="active-filters").attributes) is not bool(active)
    assert not active or element(page, id="active-filters").text == active


@pytest.mark.parametrize(
    ("query", "is_clearable"),
    [("", False), ("?compatSdk=1.4&sort=name", False), ("?official=false&sort=name", True)],
)
def test_filters_are_cleared_but_not_the_sdk_or_the_order(
    demo: FlaskClient, query: str, is_clearable: bool
) -> None:
    page = demo.get(f"/{query}").text
    assert ("hidden" not in element(page, id="clear").attributes) is is_clearable
    (link,) = (node for node in elements(page, "a") if node.text == "Clear filters")
    assert ("sort=name" in link.attributes["href"]) is ("sort=name" in query)


def test_first_link_skips_to_the_results(demo: FlaskClient) -> None:
    page = demo.get("/").text
    assert elements(page, "a")[0].attributes["href"] == "#results"
    assert element(page, id="results").attributes["tabindex"] == "-1"


def test_official_is_explained(demo: FlaskClient) -> None:
    for path in ("/", "/widgets/acme/weather"):
        badge = elements(demo.get(path).text, class_="official")[0]
        assert badge.attributes["title"] == "Maintained by the operator of this catalog"
    page = demo.get("/widgets/acme/weather").text
    facts = elements(page, "dl", class_="facts")[-1].text
    assert facts.startswith("Official maintained by the operator of this catalog")


# What the page says about itself.


@pytest.mark.parametrize(
    ("query", "heading"),
    [
        ("", "Widgets"),
        ("compatSdk=1.4.0", "Widgets"),
        ("q=+rain+radar", "Widgets matching “rain radar”"),
        ("compatSdk=1.4&compatible=true&scope=acme", "Widgets by acme for SDK 1.4.0"),
        ("official=true&license=MIT", "Official widgets under MIT"),
        ("official=false&license=(none)", "Widgets that are not official without a stated licence"),
        ("permission=network", "Widgets that use network"),
        ("permission=-network", "Widgets that do not use network"),
        ("permission=(none)", "Widgets that use no permissions"),
        ("compatSdk=abc", "Invalid SDK abc"),
    ],
)
def test_heading_says_the_filter(demo: FlaskClient, query: str, heading: str) -> None:
    assert element(demo.get(f"/?{query}").text, "h1").text == heading


def test_sentence_under_the_heading_says_what_this_is(demo: FlaskClient) -> None:
    page = demo.get("/").text
    assert (
        status(page)
        == "33 widgets for your dashboard. Enter your SDK version to see which of them run on it."
    )
    assert status(demo.get("/?page=2").text) == "33 widgets, page 2 of 2"


def test_invalid_sdk_keeps_the_results_without_compatibility_marks(demo: FlaskClient) -> None:
    page = assert_page(demo.get("/?compatSdk=abc"), 400)
    assert len(cards(page)) == PAGE_SIZE
    assert elements(page, class_="compatibility") == []


def test_empty_catalog_says_so_and_how_to_publish(client_with: ClientWith) -> None:
    page = client_with(document("acme/hidden", listed=False)).get("/").text
    assert status(page) == "This catalog is empty."
    assert "words" not in element(page, class_="empty").text
    assert links(page, "Publish the first widget") == ["/publish"]


NETWORKS = [
    document(f"a/{name}", released(permissions=permissions))
    for name, permissions in {
        "both": ["network", "local-network"],
        "local": ["local-network", "storage"],
        "neither": ["storage"],
        "none": [],
    }.items()
]


@pytest.mark.parametrize("sdk", ["", "1.4.0"])
def test_widget_that_uses_the_local_network_has_network_access(
    client_with: ClientWith, sdk: str
) -> None:
    client = client_with(*NETWORKS)
    page = client.get("/", query_string={"compatSdk": sdk}).text
    badges = {
        card.text.split()[1]
        for card in elements(page, "li", class_="card")
        if "No network access" in card.text
    }
    assert badges == {"Neither", "None"}
    filtered = {"compatSdk": sdk, "permission": "-network"}
    page = client.get("/", query_string=filtered).text
    assert names(page) == ["neither", "none"]
    # The option counts what it finds.
    counts = {"Does not use: network (2)", "Does not use: local-network (2)"}
    assert counts < options(page)
    # The API keeps its rule: only the permission that is named.
    found = client.get(
        API, query_string={**({"compatSdk": sdk} if sdk else {}), "permission": "-network"}
    )
    assert [each["name"] for each in found.json["widgets"]] == ["local", "neither", "none"]


def test_no_network_stands_on_the_badge_only(demo: FlaskClient) -> None:
    page = demo.get("/?permission=local-network").text
    assert "No network" not in page
    assert "Without network" not in page


def test_permissions_are_in_two_groups_with_plain_words(demo: FlaskClient) -> None:
    page = demo.get("/").text
    groups = [group.attributes["label"] for group in elements(page, "optgroup")]
    assert groups == ["Does not use", "Uses"]
    uses = elements(page, "optgroup", label="Uses")[0].text
    assert uses.startswith("network: talks to the internet (")
    assert element(page, "option", value="-network").text.startswith("Does not use: network (")


# Search as people type.

TASKS = {
    **document("acme/task-list", displayName="Tasks", description="A to-do list for one map."),
    "about": {"keywords": ["Météo", "kan-ban", "check list"]},
}


@pytest.mark.parametrize(
    "q",
    [
        *("todo", "to-do", "to do", "todo widget", "Widgets to-do list", "tasklist", "task-list"),
        *("@acme/task-list", "acme/task", "maps", "lists", "meteo", "kanban", "check list todo"),
    ],
)
def test_words_are_found_as_people_type_them(client_with: ClientWith, q: str) -> None:
    client = client_with(TASKS, document("acme/other", displayName="Mapping"))
    assert find(client, q) == ["acme/task-list"]


def test_the_singular_of_a_word_must_end_a_word(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/a", displayName="Newest releases"),
        document("acme/b", displayName="The new one"),
        document("acme/c", displayName="News"),
        document("acme/d", displayName="Glas"),
    )
    assert find(client, "news") == ["acme/c", "acme/b"]
    # A word that ends in ss is no plural.
    assert find(client, "glass") == []


def test_only_ignored_words_find_everything(client_with: ClientWith) -> None:
    client = client_with(document("acme/a"), document("acme/b"))
    assert find(client, "Widgets") == ["acme/a", "acme/b"]


def test_widgets_with_most_of_the_words_are_close_matches(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/a", displayName="World clock", downloadCount=1),
        document("acme/b", displayName="World clock radio", downloadCount=2),
        document("acme/c", displayName="World", downloadCount=3),
        document("acme/d", displayName="Radio clock", scope="acme", downloadCount=4),
    )
    page = client.get("/?q=world+clock+banana").text
    assert cards(page) == ["/widgets/acme/b", "/widgets/acme/a"]
    assert elements(page, "h2")[0].text == "Close matches"
    assert status(page) == "No widget has all of these words. 2 widgets come close."
    exact = client.get("/?q=world+clock").text
    assert (len(cards(exact)), elements(exact, "h2")[0].text) == (2, "World clock")
    # The filters hold for close matches too.
    assert cards(client.get("/?q=world+clock+banana&official=true").text) == []
    assert cards(client.get("/?q=banana+apple").text) == []


def test_keyword_is_a_filter_of_its_own(client_with: ClientWith) -> None:
    client = client_with(TASKS, document("acme/kanban", displayName="Kanban"))
    page = client.get("/?keyword=Kan-Ban&q=list").text
    assert cards(page) == ["/widgets/acme/task-list"]
    heading = element(page, "h1").text
    assert heading == "Widgets matching “list” about Kan-Ban"
    assert element(page, id="active-filters").text.startswith("1")
    assert cards(client.get("/?keyword=kan").text) == []
    assert "1 widget with any keywords" in client.get("/?keyword=kan&q=list").text


def test_page_of_a_widget_links_its_keywords(client_with: ClientWith) -> None:
    client = client_with(TASKS)
    page = client.get("/widgets/acme/task-list?compatSdk=1.4.0").text
    (link,) = links(page, "check list")
    assert link == "/?keyword=check+list&compatSdk=1.4.0"
    assert cards(client.get(link).text) == ["/widgets/acme/task-list?compatSdk=1.4.0"]
