"""The filters of the browse page: their counts, what they find, and searches without results."""

from collections.abc import Callable
from typing import Any

import pytest
from builders import document, version
from conftest import run
from flask import Flask
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

from catalog.store.read.search import MAX_COUNTS
from catalog.web.browse import MAX_SCOPE_OPTIONS, PAGE_SIZE

ClientWith = Callable[..., FlaskClient]

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
    """Return the options of all filters that show a count."""
    return {option.text for option in elements(page, "option") if option.text.endswith(")")}


def status(page: str) -> str:
    return element(page, role="status").text


def links(page: str, text: str) -> list[str]:
    """Return the URLs of the links whose text contains this one."""
    return [link.attributes["href"] for link in elements(page, "a") if text in link.text]


def names(page: str) -> list[str]:
    return [card.partition("?")[0].rpartition("/")[2] for card in cards(page)]


ALL = {
    *("acme (2)", "beta (3)", "Official only (1)", "Not official (4)"),
    *("network (2)", "storage (2)", "No permissions (2)"),
    *("MIT (2)", "Apache-2.0 (1)", "No licence (2)"),
}


def test_filters_count_listed_widgets_by_their_latest_version(client: FlaskClient) -> None:
    assert options(client.get("/").text) == ALL


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        (
            "q=clock",
            {
                *("acme (2)", "beta (1)", "Official only (1)", "Not official (2)"),
                *("network (2)", "storage (2)", "MIT (2)", "Apache-2.0 (1)"),
            },
        ),
        (
            "scope=beta",
            {
                *("acme (2)", "beta (3)", "Official only (0)", "Not official (3)"),
                *("storage (1)", "No permissions (2)", "Apache-2.0 (1)", "No licence (2)"),
            },
        ),
        (
            "permission=storage&license=MIT",
            {
                *("acme (1)", "Official only (0)", "Not official (1)"),
                *("network (2)", "storage (1)", "MIT (1)", "Apache-2.0 (1)"),
            },
        ),
        (
            "compatSdk=1.4.0&compatible=true&official=false",
            {
                *("acme (1)", "beta (1)", "Official only (1)", "Not official (2)"),
                *("network (1)", "storage (1)", "No permissions (1)", "MIT (1)", "No licence (1)"),
            },
        ),
        (
            "q=egg&compatSdk=1.4.0&compatible=true&license=(none)",
            {
                *("beta (1)", "Official only (0)", "Not official (1)"),
                *("No permissions (1)", "No licence (1)"),
            },
        ),
        (
            # This one is found by its name only.
            "q=acme/radio&license=ISC",
            {"Official only (0)", "Not official (0)", "MIT (1)", "ISC (0)"},
        ),
    ],
    ids=["words", "scope", "permission and licence", "SDK", "words and SDK", "name"],
)
def test_counts_of_a_filter_honour_all_other_filters(
    client: FlaskClient, query: str, counts: set[str]
) -> None:
    assert options(client.get(f"/?{query}").text) == counts


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("permission=network", ["clock", "radio"]),
        ("permission=storage", ["radio", "timer"]),
        ("permission=(none)", ["egg", "none"]),
        ("permission=camera", []),
        ("license=MIT", ["clock", "radio"]),
        ("license=(none)", ["egg", "none"]),
        ("license=ISC", []),
        ("permission=storage&license=MIT&scope=acme&official=false", ["radio"]),
        ("q=clock&permission=storage", ["radio", "timer"]),
        ("q=clock&license=MIT&sort=name", ["clock", "radio"]),
        ("q=timer&permission=network", []),
        ("compatSdk=1.4.0&compatible=true&permission=storage", ["radio"]),
    ],
)
def test_permission_and_licence_filter_the_results(
    client: FlaskClient, query: str, found: list[str]
) -> None:
    page = assert_page(client.get(f"/?{query}"), 200)
    assert names(page) == found
    assert status(page).split()[0] == (str(len(found)) if found else "No")


def test_filter_by_licence_has_its_own_total_and_pages(client_with: ClientWith) -> None:
    count = PAGE_SIZE + 2
    mine = [document(f"a/w{n}", version(license="MIT")) for n in range(count)]
    client = client_with(*mine, *(document(f"a/x{n}", version()) for n in range(9)))
    page = client.get("/?license=MIT").text
    assert status(page) == f"{count} widgets, page 1 of 2"
    (following,) = links(page, "Next")
    assert len({*names(page), *names(client.get(following).text)}) == count


@pytest.mark.parametrize("compatible", ["true", "True"])
def test_only_widgets_that_run_on_the_sdk(client: FlaskClient, compatible: str) -> None:
    page = client.get(f"/?compatSdk=2.1&compatible={compatible}").text
    assert names(page) == ["timer"]
    assert status(page) == "1 widget runs on SDK 2.1.0"
    assert "checked" in element(page, id="compatible").attributes
    assert element(page, id="compatSdk").attributes["value"] == "2.1"
    assert element(page, id="compatSdk-notice").text == "2.1 is read as 2.1.0."


def test_checkbox_without_an_sdk_has_a_message_and_keeps_its_state(client: FlaskClient) -> None:
    page = assert_page(client.get("/?compatible=true&q=clock"), 400)
    assert element(page, id="compatible-error").text.startswith("Enter your SDK version")
    assert "checked" in element(page, id="compatible").attributes
    assert "acme (2)" in options(page)


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


@pytest.mark.parametrize(
    ("query", "orders", "selected"),
    [
        ("", "Most installed Recently updated Newest Name", ""),
        ("sort=name", "Most installed Recently updated Newest Name", "name"),
        ("q=a", "Best match Most installed Recently updated Newest Name", ""),
        ("q=a&sort=installs", "Best match Most installed Recently updated Newest Name", "installs"),
    ],
)
def test_default_order_is_named_after_what_it_is(
    client: FlaskClient, query: str, orders: str, selected: str
) -> None:
    page = client.get(f"/?{query}").text
    assert element(page, "select", id="sort").text == orders
    assert elements(page, "option", selected="")[-1].attributes["value"] == selected


def test_many_scopes_are_suggested_in_a_text_field(client_with: ClientWith) -> None:
    few = [document(f"s{n}/w", version()) for n in range(MAX_SCOPE_OPTIONS)]
    page = client_with(*few).get("/?scope=s1").text
    assert element(page, "select", id="scope").text.startswith("All scopes s0 (1) s1 (1)")
    client = client_with(*few, document("天気/w", version()), document("天気/x", version()))
    page = client.get("/?scope=s1").text
    field = element(page, "input", id="scope").attributes
    assert (field["value"], field["list"]) == ("s1", "scopes")
    assert element(page, "option", value="天気").text == "2 widgets"
    # The kind of field depends on the catalog, not on the results.
    assert element(client.get("/?q=nothing").text, "input", id="scope")


def test_card_has_the_date_of_its_latest_release(client: FlaskClient) -> None:
    page = client.get("/?q=clock&permission=network&scope=acme&license=MIT&official=true").text
    date = element(page, "time")
    assert date.text == "1 Jan 2025"
    assert date.attributes == {"datetime": NEW, "title": NEW}


def test_pager_has_previous_and_next(client_with: ClientWith) -> None:
    client = client_with(*(document(f"acme/w{n}") for n in range(PAGE_SIZE * 3)))
    page = client.get("/?scope=acme").text
    assert links(page, "Previous") == []
    for number in ("2", "3"):
        (url,) = links(page, "Next")
        page = client.get(url).text
        assert f"page={number}" in url
        assert element(page, "a", **{"aria-current": "page", "href": url}).text == number
    assert links(page, "Next") == []
    assert links(page, "Previous") == ["/?scope=acme&page=2"]


@pytest.mark.parametrize(
    ("q", "suggested"),
    [
        ("wether", "weather"),
        ("acme/wether", "weather"),
        ("Météoo", "meteo"),
        ("天気予法", "yoho"),
        ("مواقيت الصلاه", "prayer"),
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
        document("ar/prayer", displayName="مواقيت الصلاة"),
        document("acme/focus-timer", displayName="Pomodoro"),
    )
    page = assert_page(client.get("/", query_string={"q": q, "compatSdk": "1.4.0"}), 200)
    assert status(page) == "No widget found."
    first = elements(page, "a", class_="suggestion")[0].attributes["href"]
    assert first.partition("?")[0].endswith(f"/{suggested}")
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
    assert status(page) == "No widget found."
    (url,) = links(page, text)
    wider = client.get(url).text
    assert len(cards(wider)) == found
    if "q=" in query:
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
    assert not [sql for sql in statements if "GROUP BY scope" in sql]
    assert run(app, "yank", "acme/clock@2.0.0").exit_code == 0
    assert {"camera (1)", "network (1)", "ISC (1)"} < options(client.get("/").text)


def test_cache_of_counts_is_bounded(app_with: Callable[..., Flask]) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    for number in range(MAX_COUNTS + 5):
        client.get(f"/?q={number}")
    assert len(app.extensions["database"].reader().counts) <= MAX_COUNTS


@pytest.mark.parametrize(
    "query",
    [
        "permission=%00",
        "license=%00",
        "scope=%00",
        "permission=%F0%9F%98%80",
        "license=" + "x" * 9999,
    ],
)
def test_odd_values_of_filters_find_nothing(client: FlaskClient, query: str) -> None:
    assert status(assert_page(client.get(f"/?{query}"), 200)) == "No widget found."
