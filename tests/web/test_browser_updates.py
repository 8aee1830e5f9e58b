"""The updates page and cached files in a real browser."""

import json
import re
from typing import TYPE_CHECKING

import pytest
from browser_tools import expect_text, expect_url, recorded
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WEATHER, CLOCK = "acme/weather@2.6.1", "acme/clock@1.0.0"
JSON_FORM = (
    'This JSON is not an array like ["acme/clock@1.0.0"] or an object like {"acme/clock": "1.0.0"}.'
)
LONG = {f"acme/none-{n}": "1.0.0" for n in range(400)}


def check(page: "Page", server: Server, text: str) -> None:
    page.goto(f"{server.url}/updates?compatSdk=1.4.0")
    page.get_by_label("Installed versions").fill(text)
    page.get_by_role("button", name="Check for updates").click()


@pytest.mark.parametrize(
    "value",
    [
        [WEATHER, CLOCK],
        {"acme/weather": "2.6.1", "acme/clock": "1.0.0"},
    ],
    ids=["array", "object"],
)
def test_address_has_only_the_versions_of_a_json_list(
    page: "Page", server: Server, value: object
) -> None:
    check(page, server, json.dumps(value, indent=2))
    expect_text(page.locator("#result"), "2 installed versions: 1 yanked, 1 outdated")
    assert page.locator("#installed").input_value() == f"{WEATHER}\n{CLOCK}"
    query = f"installed={WEATHER}&installed={CLOCK}"
    expect_url(page, f"{server.url}/updates?compatSdk=1.4.0&{query}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ', "This is not valid JSON: is it complete?"),
        ("{}", JSON_FORM),
        ('{"packages": {"node_modules/a": {"version": "1.0.0"}}}', JSON_FORM),
        ("x", "Line 1: 'x' is not scope/name@version, such as acme/clock@1.0.0."),
        ("", "The list of installed versions is missing."),
    ],
)
def test_text_without_versions_is_reported(
    page: "Page", server: Server, text: str, message: str
) -> None:
    check(page, server, text)
    expect_text(page.locator("#installed-error"), message)
    assert page.locator("#installed").get_attribute("aria-invalid") == "true"
    assert page.locator("#installed").input_value() == text


def test_json_list_with_a_range_is_checked_without_it(page: "Page", server: Server) -> None:
    check(page, server, '{"acme/weather": "^2.6.1", "acme/clock": "1.0.0"}')
    expect_text(page.locator("#result"), "1 installed version: 1 outdated")
    expect_url(page, f"{server.url}/updates")


def test_long_json_list_is_checked_in_parts(page: "Page", server: Server) -> None:
    check(page, server, json.dumps(LONG))
    page.get_by_role("button", name="Check the other 300").click()
    page.get_by_role("button", name="Check the other 200").click()
    expect_text(page.locator("#result"), "100 installed versions: 100 not in this catalog")
    page.get_by_role("button", name="Check the other 100").click()
    # These fit into an address.
    page.wait_for_url(re.compile(r"/updates\?"))
    assert "acme/none-399" in page.url


def test_new_list_is_copied(tab: "Page", server: Server) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    check(tab, server, f"{WEATHER}\n{CLOCK}")
    button = tab.get_by_role("button", name="Copy the new list")
    button.click()
    expect_text(tab.locator("#copy-status"), "Copied")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied == "acme/weather@2.6.0\nacme/clock@2.1.1"
    tab.get_by_role("button", name="Copy the new list").wait_for()
    tab.context.clear_permissions()


@pytest.mark.parametrize("path", ["/", "/widgets/acme/weather"])
def test_second_visit_is_one_request(browser: "Browser", server: Server, path: str) -> None:
    with browser.new_context(base_url=server.url) as context:
        page = context.new_page()
        page.goto(path)
        # Pictures that are out of sight would be loaded later.
        page.evaluate(
            "Promise.all([...document.images].map((each) => {"
            " each.loading = 'eager'; return each.decode(); }))"
        )
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
