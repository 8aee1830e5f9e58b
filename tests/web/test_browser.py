"""The pages in a real browser: search, filters, history and keyboard, with scripts and without."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from browser_tools import expect_text, expect_title, is_too_wide, recorded
from builders import document, version
from conftest import Server, putting

from catalog.domain.documents import check_document
from catalog.store.connection.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request

WEATHER = "/widgets/acme/weather"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
# Milliseconds after which pages.js has searched for what was typed.
TYPING_DELAY = 150


def cards(page: "Page") -> "Locator":
    return page.locator(".card")


def expect_status(page: "Page", text: str) -> None:
    expect_text(page.locator("#status"), text)


def test_typing_updates_the_results_and_keeps_focus_and_history(
    page: "Page", server: Server
) -> None:
    page.goto(server.url)
    field = page.get_by_label("Search")
    field.press_sequentially("rain rada")
    expect_status(page, "1 widget")
    field.press_sequentially("r")
    expect_title(page, "\u2068rain radar\u2069 - Widget Catalog")
    assert page.url == f"{server.url}/?q=rain+radar"
    assert page.evaluate("document.activeElement.id") == "q"
    assert page.evaluate("document.activeElement.selectionStart") == len("rain radar")
    # The whole text is one history entry.
    page.go_back()
    expect_status(
        page,
        "33 widgets for your dashboard. Enter your SDK version to see which of them run on it.",
    )
    assert (page.url, field.input_value()) == (f"{server.url}/", "")
    page.go_forward()
    expect_status(page, "1 widget")
    assert field.input_value() == "rain radar"


@pytest.fixture(scope="module")
def paused_tab(browser: "Browser", server: Server) -> Iterator["Page"]:
    """A tab in which timers run only when a test says so."""
    with browser.new_context(base_url=server.url) as context:
        context.set_default_timeout(60_000)
        context.clock.install(time=0)
        context.clock.pause_at(1000)
        yield context.new_page()


def type_slowly(page: "Page", field: "Locator", text: str) -> None:
    """Type the text with pauses that are long enough for a search after each letter."""
    for letter in text:
        field.press_sequentially(letter)
        page.clock.run_for(TYPING_DELAY)


def searched_sdks(requests: "list[Request]") -> list[str]:
    urls = [request.url for request in requests if "compatSdk=" in request.url]
    return [url.partition("compatSdk=")[2] for url in urls]


def test_incomplete_sdk_version_is_invalid_only_after_submission(paused_tab: "Page") -> None:
    paused_tab.goto("/")
    field = paused_tab.get_by_label("Your SDK version")
    message = paused_tab.locator("#compatSdk-error")
    with recorded(paused_tab, "request") as requests:
        type_slowly(paused_tab, field, "1.4.")
        field.press("Enter")
        expect_text(message, "An SDK version is three numbers, such as 1.4.0.")
        assert message.is_visible()
        # The results stay.
        assert cards(paused_tab).count() == 20
        assert (field.input_value(), field.get_attribute("aria-invalid")) == ("1.4.", "true")
        type_slowly(paused_tab, field, "0")
        expect_text(cards(paused_tab).first.locator(".compatibility"), "2.6.0 runs on SDK 1.4.0")
    assert searched_sdks(requests) == ["1.4.", "1.4.0"]
    assert message.is_hidden()
    assert field.get_attribute("aria-invalid") is None


def test_short_sdk_version_is_completed_after_submission(paused_tab: "Page") -> None:
    paused_tab.goto("/")
    field = paused_tab.get_by_label("Your SDK version")
    type_slowly(paused_tab, field, "1.4")
    field.press("Enter")
    expect_text(paused_tab.locator("#compatSdk-notice"), "Using SDK 1.4.0.")
    expect_text(cards(paused_tab).first.locator(".compatibility"), "2.6.0 runs on SDK 1.4.0")
    assert field.input_value() == "1.4"


@pytest.mark.parametrize("path", ["/?q=clock", WEATHER, "/none"])
def test_slash_focuses_the_search_field(page: "Page", server: Server, path: str) -> None:
    page.goto(server.url + path)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("a/b")
    assert page.get_by_label("Search").input_value() == "a/b"


def test_copy_button_copies_and_reports_it(paused_tab: "Page") -> None:
    paused_tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    paused_tab.goto(WEATHER)
    paused_tab.get_by_text("Command line", exact=True).click()
    paused_tab.get_by_role("button", name="Copy the command to download 3.1.0").click()
    expect_text(paused_tab.locator("#copy-status"), "Copied")
    copied = paused_tab.evaluate("navigator.clipboard.readText()")
    assert copied == paused_tab.locator("#selected-fetch").text_content()
    paused_tab.clock.run_for(2000)
    expect_text(paused_tab.locator("#copy-status"), "")


def test_copy_buttons_are_hidden_without_scripts(
    tab_without_scripts: "Page", server: Server
) -> None:
    tab_without_scripts.goto(server.url + WEATHER)
    assert tab_without_scripts.locator("button.copy").count() == 6
    assert tab_without_scripts.locator("button.copy:visible").count() == 0


def test_pages_follow_the_preferred_colour_scheme(page: "Page", server: Server) -> None:
    page.goto(server.url)
    lightness = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness[scheme] = sum(map(int, colour.strip("rgb()").split(",")))
    assert lightness["light"] > 600
    assert lightness["dark"] < 100


@pytest.fixture(scope="module")
def odd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog of names and texts that could break the layout."""
    long = version("1.0.0-" + "alpha." * 30 + "1", sdkVersion="^1.0.0 || " * 24 + "2")
    hostile = version(releaseNotes=HOSTILE, license=HOSTILE, permissions=[HOSTILE])
    huge = version(minSize={"w": 0, "h": 0}, maxSize={"w": 1000, "h": 1})
    ages = [version(f"1.0.{n}", publishedAt=f"{1900 + n}-01-01T00:00:00Z") for n in range(99)]
    documents = [
        document("acme/" + "long-name" * 20, long, displayName="W" * 3000, description="m" * 10**4),
        document("acme/hostile", hostile, displayName=HOSTILE, description=HOSTILE),
        document("acme/override", huge, displayName="abc\u202edef", description="one \u202etwo"),
        document("acme/ages", *ages, downloadCount=2**53 - 1, displayName="ערוץ 2"),
        document("acme/badges", version(deprecationMessage="Old."), isOfficial=True),
    ]
    database = Database(tmp_path_factory.mktemp("odd") / "odd.db")
    database.create(putting(map(check_document, documents)))
    running = Server(database.path)
    yield running
    running.stop()


def test_odd_texts_do_not_break_the_layout(page: "Page", odd_server: Server) -> None:
    page.goto(odd_server.url)
    links = [str(link.get_attribute("href")) for link in cards(page).locator("h2 a").all()]
    assert len(links) == 5
    assert HOSTILE[:80] in page.locator("#results").inner_text()
    with recorded(page, "dialog") as dialogs:
        for path in ("/", *links):
            page.goto(odd_server.url + path)
            for width in (320, 1280):
                page.set_viewport_size({"width": width, "height": 640})
                assert not is_too_wide(page), path
    assert dialogs == []


def test_badges_leave_room_for_the_name_on_a_narrow_screen(
    page: "Page", odd_server: Server
) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(f"{odd_server.url}/?q=badges")
    card = cards(page).filter(has_text="Deprecated")
    assert card.locator(".badge").count() == 3
    box = card.locator(".names").bounding_box()
    assert box
    assert box["width"] > 160


def test_page_is_usable_without_css(page: "Page", server: Server) -> None:
    page.route("**/*.css", lambda route: route.abort())
    page.goto(f"{server.url}{WEATHER}?compatSdk=1.4.0")
    page.unroute_all()
    assert page.get_by_role("link", name="Download").is_visible()
    sizes = [page.locator("header svg").nth(n).bounding_box() for n in range(2)]
    assert all(box and box["width"] <= 48 for box in sizes)
