"""The browse page in a real browser: filters, a narrow screen, the keyboard, no shifts."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from browser_tools import expect_text, expect_url, expect_value, is_too_wide, recorded
from builders import document, version
from conftest import Server, create_catalog

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

NARROW: "ViewportSize" = {"width": 360, "height": 640}
WIDE: "ViewportSize" = {"width": 1440, "height": 900}


def expect_status(page: "Page", text: str) -> None:
    expect_text(page.locator("#status"), text)


@pytest.fixture
def narrow_page(any_page: "Page") -> Iterator["Page"]:
    """A shared tab as narrow as a phone, with JavaScript and without."""
    any_page.set_viewport_size(NARROW)
    yield any_page
    any_page.set_viewport_size(WIDE)


def test_first_card_is_visible_on_a_narrow_screen(narrow_page: "Page", server: Server) -> None:
    narrow_page.goto(server.url)
    box = narrow_page.locator(".card").first.bounding_box()
    assert box
    assert box["y"] + box["height"] < NARROW["height"]
    assert narrow_page.get_by_label("Your SDK version").is_hidden()


def test_invalid_field_is_unfolded_on_a_narrow_screen(narrow_page: "Page", server: Server) -> None:
    narrow_page.goto(f"{server.url}/?compatible=true")
    assert narrow_page.locator("#compatible-error").is_visible()


# How much wider the longest option of each field is than the field.
CLIPPED = """
() => [...document.querySelectorAll(".browse-head select")].flatMap((field) => {
    const natural = field.cloneNode(true);
    natural.style.width = "auto";
    natural.style.position = "absolute";
    field.after(natural);
    const excess = natural.getBoundingClientRect().width - field.getBoundingClientRect().width;
    natural.remove();
    return excess > 0.5 ? [`${field.id}: ${excess}`] : [];
})
"""


@pytest.mark.parametrize("width", [360, 640, 1024, 1280, 1440])
def test_no_option_of_a_filter_is_clipped(page: "Page", server: Server, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(server.url)
    page.locator("details.filters").evaluate("(details) => { details.open = true; }")
    assert page.evaluate(CLIPPED) == []


def test_start_page_has_four_columns_from_80_rem(page: "Page", server: Server) -> None:
    for width, columns in ((1279, 3), (1280, 4), (1440, 4)):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(server.url)
        tops = [page.locator(".card").nth(n).bounding_box() for n in range(6)]
        assert len([box for box in tops if box and box["y"] == tops[0]["y"]]) == columns


def test_checkbox_is_enabled_by_an_sdk(page: "Page", server: Server) -> None:
    page.goto(server.url)
    box = page.get_by_label("Hide incompatible widgets")
    assert box.is_disabled()
    page.get_by_label("Your SDK version").press_sequentially("1.4.0")
    box.check()
    expect_text(page.locator("#status"), re.compile(r"^\d+ widgets run on SDK 1.4.0"))
    page.get_by_role("link", name="Clear filters").click()
    expect_url(page, f"{server.url}/?compatSdk=1.4.0")


def test_filter_keeps_its_focus_and_value_when_the_counts_change(
    page: "Page", server: Server
) -> None:
    page.goto(server.url)
    page.get_by_label("Licence").focus()
    page.get_by_label("Licence").select_option("MIT")
    expect_url(page, f"{server.url}/?license=MIT")
    page.get_by_label("Scope").focus()
    page.get_by_label("Scope").select_option("acme")
    expect_url(page, f"{server.url}/?scope=acme&license=MIT")
    expect_text(page.locator("#license option:checked"), "MIT (7)")
    assert page.evaluate("document.activeElement.id") == "scope"
    assert page.get_by_label("Licence").input_value() == "MIT"
    page.go_back()
    expect_url(page, f"{server.url}/?license=MIT")
    expect_value(page.get_by_label("Scope"), "")


@pytest.fixture(scope="module")
def scopes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog of many scopes, some in other scripts."""
    scripts = [
        document("天気/予報", version(), displayName="天気予報", description="雨と雪。"),
        document("مواقيت/ساعة", version(), displayName="ساعة", description="مواقيت الصلاة"),
    ]
    others = [document(f"scope-{n}/w", version(), downloadCount=n) for n in range(30)]
    path = tmp_path_factory.mktemp("scopes") / "catalog.db"
    running = Server(create_catalog(path, *scripts, *others))
    yield running
    running.stop()


def test_scope_is_searched_when_it_is_complete(page: "Page", scopes_server: Server) -> None:
    page.goto(scopes_server.url)
    with recorded(page, "request") as requests:
        page.get_by_label("Scope").press_sequentially("天気")
        expect_status(page, "1 widget")
    assert len([request for request in requests if "scope=" in request.url]) == 1
    assert page.locator("#scopes option").count() == 32


# All shifts, also those within half a second after an input, which the metric itself ignores.
OBSERVE_SHIFTS = """
() => {
    window.shifts = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.shifts += entry.value;
    }).observe({ type: "layout-shift", buffered: false });
}
"""
NEXT_FRAMES = """
() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(
    () => setTimeout(() => resolve(window.shifts)))))
"""


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["360 px", "1440 px"])
def test_nothing_shifts_when_the_results_change(
    page: "Page", server: Server, size: "ViewportSize"
) -> None:
    page.set_viewport_size(size)
    page.goto(f"{server.url}/?compatSdk=1.4.0")
    page.locator("details.filters").evaluate("(details) => { details.open = true; }")
    page.evaluate(NEXT_FRAMES)
    page.evaluate(OBSERVE_SHIFTS)
    page.get_by_label("Search").fill("weather")
    expect_status(page, "4 widgets, with the newest version for SDK 1.4.0")
    page.get_by_label("Hide incompatible widgets").check()
    expect_status(page, "3 widgets run on SDK 1.4.0")
    page.get_by_label("Search").fill("")
    page.get_by_label("Sort by").select_option("name")
    expect_url(page, f"{server.url}/?sort=name&compatSdk=1.4.0&compatible=true")
    assert page.evaluate(NEXT_FRAMES) == 0


def test_all_filters_can_be_used_with_the_keyboard(page: "Page", server: Server) -> None:
    page.set_viewport_size(NARROW)
    page.goto(server.url)
    page.keyboard.press("/")
    page.keyboard.type("clock")
    # Past the button and three links, to the order.
    for _ in range(5):
        page.keyboard.press("Tab")
    page.keyboard.type("Name")
    expect_url(page, f"{server.url}/?q=clock&sort=name")
    # The summary opens the fields.
    for key in ("Tab", "Enter", "Tab"):
        page.keyboard.press(key)
    page.keyboard.type("1.4.0")
    fields = ["scope", "official", "permission", "license", "compatible"]
    visited = []
    for _ in fields:
        page.keyboard.press("Tab")
        visited.append(page.evaluate("document.activeElement.id"))
    assert visited == fields
    page.keyboard.press("Space")
    # The results come with the status, and would replace a link that has the focus.
    expect_status(page, "1 widget runs on SDK 1.4.0")
    expect_url(page, f"{server.url}/?q=clock&sort=name&compatSdk=1.4.0&compatible=true")
    # Past the link that clears the filters.
    for key in ("Tab", "Tab", "Enter"):
        page.keyboard.press(key)
    expect_url(page, f"{server.url}/widgets/acme/clock?compatSdk=1.4.0")


def test_right_to_left_and_east_asian_names_fit_their_cards(
    page: "Page", scopes_server: Server
) -> None:
    page.set_viewport_size(NARROW)
    page.goto(f"{scopes_server.url}/?sort=name&page=2")
    assert not is_too_wide(page)
    for name in ("天気予報", "ساعة"):
        card = page.locator(".card").filter(has_text=name)
        icon = card.locator(".widget-icon").bounding_box()
        title = card.locator("h2 bdi").bounding_box()
        assert icon
        assert title
        assert 0 <= title["x"] - (icon["x"] + icon["width"]) < 40
