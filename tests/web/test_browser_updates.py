"""The updates page and cached files in a real browser."""

from typing import TYPE_CHECKING

import pytest
from browser_tools import expect_text, is_too_wide, recorded
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

INSTALLED = """acme/weather@2.6.1
acme/clock@1.0.0
community/rain-radar@1.0.0
acme/notes@9.9.9
acme/none@1.0.0"""


def test_visitor_checks_five_installed_widgets(any_page: "Page", server: Server) -> None:
    any_page.set_viewport_size({"width": 360, "height": 740})
    any_page.goto(server.url)
    any_page.get_by_role("link", name="Updates", exact=True).click()
    any_page.get_by_label("Installed versions").fill(INSTALLED)
    any_page.get_by_label("Your SDK version").fill("1.4")
    any_page.get_by_role("button", name="Check for updates").click()
    expect_text(any_page.locator("#result"), "2 updates for 5 installed versions")
    assert any_page.get_by_text("1.4 is read as 1.4.0.").is_visible()
    row = any_page.get_by_role("row").filter(has_text="acme/weather")
    assert "2.6.1 was yanked" in row.inner_text()
    assert not is_too_wide(any_page)
    any_page.set_viewport_size({"width": 1280, "height": 900})
    # The address leads others to the same result.
    any_page.get_by_role("link", name="Link to this result").click()
    expect_text(any_page.locator("#result"), "2 updates for 5 installed versions")
    assert any_page.locator("#installed").input_value() == INSTALLED


def test_updates_can_be_checked_with_the_keyboard_alone(page: "Page", server: Server) -> None:
    page.goto(f"{server.url}/updates")
    page.get_by_label("Installed versions").focus()
    page.keyboard.type("acme/clock@1.0.0")
    page.keyboard.press("Tab")
    page.keyboard.type("1.4.0")
    page.keyboard.press("Enter")
    expect_text(page.locator("#result"), "1 update for 1 installed version")


@pytest.mark.parametrize("path", ["/", "/widgets/acme/weather"])
def test_second_visit_is_one_request(browser: "Browser", server: Server, path: str) -> None:
    with browser.new_context(base_url=server.url) as context:
        page = context.new_page()
        page.goto(path)
        page.goto("about:blank")
        with recorded(context, "response") as responses:
            page.goto(path)
        # Chromium loads the icon later, perhaps only on the second visit.
        downloaded = page.evaluate(
            "performance.getEntriesByType('resource').map((e) => [e.name, e.transferSize])"
            ".filter(([name, size]) => size > 0 && !name.endsWith('.svg'))"
        )
    documents = [each for each in responses if each.request.resource_type == "document"]
    assert [each.status for each in documents] in ([200], [304])
    assert downloaded == []
